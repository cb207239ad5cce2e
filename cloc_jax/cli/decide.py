"""Decision control: how a finished run chooses labels, by what a mistake costs.

Reads what evaluation wrote, no images. The temperature and, without a guarantee, the
thresholds come from the validation data; with one, the thresholds come from the
calibration data, as prediction sets do. The test data only show what was bought and
what it cost.
"""

import json
import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any

from cloc_jax.cli import decision_effects
from cloc_jax.cli.decision_effects import Graded
from cloc_jax.report import html_page
from cloc_jax.runtime import files
from cloc_jax.runtime import run_folder as folders
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import Damaged
from cloc_jax.scoring import (
    calibration,
    conformal_sets,
    decisions,
    metrics,
    predictions,
    results,
)
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import RunResults

CALIBRATION = "calibration"  # the split, as data/splits.py names it
_LABELS = ("costs", "thresholds", "max_missed", "guarantee")  # fields that choose them


def decide(
    folder: folders.RunFolder,
    *,
    boundaries: Sequence[str] = (),
    max_missed: float | Sequence[float] = (),
    costs: Sequence[str] = (),
    guarantee: bool = False,
    coverage: float | None = None,
) -> Decision:
    """Writes decision.json into a run's folder and prints what it changes on test.

    A decision that was there before is kept under another name. Of labels and sets,
    what is not asked for stays as it was saved. Where the run has a report, it is
    written again.

    Args:
      folder: of a finished run.
      boundaries: where `max_missed` holds; the run's critical ones if none is named.
      max_missed: the largest share of the images above a boundary that may be put
        below it; one for all boundaries, or one for each that is named.
      costs: in place of that, such as "1|2=5" or "1|2=5:1".
      guarantee: whether `max_missed` holds by conformal risk control.
      coverage: the share of prediction sets that have to hold the true rank.
    """
    shares = [max_missed] if isinstance(max_missed, float | int) else list(max_missed)
    _check(boundaries, shares, costs, guarantee, coverage)
    scores = results.read_results(folder)
    ranks = scores.ranks
    found = predictions.read_of_run(folder.path, scores)
    _check_counts(found, folder, scores)
    val = _with_probabilities(found, "val", folder, scores)
    temperature = calibration.fit_temperature(val.probabilities, val.true)
    before = _saved(folder, ranks, temperature)
    sets = None if before is None else before.sets
    if coverage is not None:
        held = _with_probabilities(found, CALIBRATION, folder, scores)
        at = calibration.apply_temperature(held.probabilities, temperature)
        sets = conformal_sets.fit(at, held.true, coverage)
    elif sets is not None:
        console.print("prediction sets stay as they were saved")
    choice: dict[str, Any] = {}
    fitted = None
    if costs:
        choice = {"costs": _costs(costs, ranks)}
    elif shares:
        targets = _targets(boundaries, shares, scores, ranks)
        fitted = val
        if guarantee:
            fitted = _with_probabilities(found, CALIBRATION, folder, scores)
        choice = _by_missed(fitted, temperature, targets, ranks, guarantee)
    elif before is not None and before.chooses_labels:
        choice = {name: getattr(before, name) for name in _LABELS}
        console.print("labels stay as the saved decision chooses them")
    decision = Decision(tuple(ranks), temperature, sets=sets, **choice)
    shown = list(decision.costs or decision.thresholds or {})
    test = None
    if "test" in found:
        test = _with_probabilities(found, "test", folder, scores)
    _save(folder, decision)  # once all that it needs was there
    decision_effects.say_decision(decision, val, fitted)
    if test:
        if decision.chooses_labels:
            decision_effects.show_labels(test, decision, shown)
            decision_effects.say_price(test, decision, shown)
        if sets is not None:
            decision_effects.say_sets(test, decision, sets)
    _draw_again(folder)
    console.print(
        f"written to {folder.decision}; `predict` now goes by it, and --remove takes "
        "it away",
        soft_wrap=True,
    )
    return decision


def remove(folder: folders.RunFolder) -> None:
    """Takes the saved decision of a run away; the file is kept under another name."""
    if not folder.decision.exists():
        raise FileNotFoundError(
            f"{folder.path} has no saved decision; `predict` gives the most probable "
            "rank."
        )
    kept = files.unused_path(folder.decision)
    folder.decision.rename(kept)
    _draw_again(folder)
    console.print(
        f"taken away, and kept as {kept.name}; `predict` gives the most probable rank",
        soft_wrap=True,
    )


def _draw_again(folder: folders.RunFolder) -> None:
    """Brings the run's report, where there is one, up to the decision."""
    if (folder.path / html_page.NAME).is_file():
        page = html_page.write_report(folder)
        console.print(f"report  {page}", soft_wrap=True)


# --- what is asked for ---


def _check(
    boundaries: Sequence[str],
    max_missed: Sequence[float],
    costs: Sequence[str],
    guarantee: bool,
    coverage: float | None,
) -> None:
    if (max_missed and costs) or not (max_missed or costs or coverage is not None):
        raise ValueError(
            "decide needs either --max-missed, such as --boundary='1|2' "
            "--max-missed=0.05 for at most 5% of the images above 1|2 put below it, or "
            "--cost, such as --cost='1|2=5' for mistakes there that cost 5 times as "
            "much as at other boundaries; or --coverage, such as --coverage=0.9 for "
            "sets of ranks that hold the true one in 90% of images."
        )
    if coverage is not None and not 0 < coverage < 1:
        raise ValueError(
            f"--coverage is {coverage:g}; it is the share of sets that have to hold "
            "the true rank, between 0 and 1, such as 0.9."
        )
    if not max_missed and (boundaries or guarantee):
        given = "--boundary" if boundaries else "--guarantee"
        raise ValueError(
            f"{given} belongs to --max-missed; --cost names its boundaries itself and "
            "guarantees nothing, and --coverage has no boundary. Leave it out."
        )
    for share in max_missed:
        if not 0 <= share < 1:
            raise ValueError(
                f"--max-missed is {share:g}; it is the share of images above the "
                "boundary that may be put below it, from 0 up and below 1, such as "
                "0.05."
            )
    if guarantee and not all(max_missed):
        raise ValueError(
            "--max-missed=0 cannot be guaranteed; use a number above 0, such as 0.05."
        )


def _targets(
    given: Sequence[str],
    max_missed: Sequence[float],
    scores: RunResults,
    ranks: Sequence[str],
) -> dict[str, float]:
    """The share that may be missed at each boundary, low to high."""
    names = _boundaries(given, scores, ranks)
    if len(max_missed) == 1:
        return dict.fromkeys(names, max_missed[0])
    if len(set(given)) != len(given) or len(given) != len(max_missed):
        raise ValueError(
            f"--max-missed is given {len(max_missed)} times and --boundary "
            f"{len(given)} times; give it once for all boundaries, or once for each "
            "that is named, in the same order."
        )
    by_name = dict(zip(given, max_missed, strict=True))
    return {name: by_name[name] for name in names}


def _boundaries(
    given: Sequence[str], scores: RunResults, ranks: Sequence[str]
) -> list[str]:
    names = metrics.boundary_names(ranks)
    chosen = list(dict.fromkeys(given or scores.critical))
    if not chosen:
        raise ValueError(
            "the run names no critical boundary, so --boundary has to; there are "
            f"{', '.join(names)}."
        )
    unknown = [name for name in chosen if name not in names]
    if unknown:
        raise ValueError(
            f"--boundary names {', '.join(unknown)}; the boundaries of this run are "
            f"{', '.join(names)}."
        )
    return sorted(chosen, key=names.index)


def _costs(
    given: Sequence[str], ranks: Sequence[str]
) -> dict[str, tuple[float, float]]:
    """Costs by boundary from texts such as "1|2=5" and "1|2=5:1"."""
    names = metrics.boundary_names(ranks)
    costs: dict[str, tuple[float, float]] = {}
    for text in given:
        name, _, numbers = text.rpartition("=")
        try:
            values = [float(number) for number in numbers.split(":")]
        except ValueError:
            values = []
        is_right = len(values) in (1, 2) and all(0 < v < math.inf for v in values)
        if name not in names or name in costs or not is_right:
            raise ValueError(
                f"--cost={text!r} is not understood; write '{names[0]}=5' for both "
                f"kinds of mistake or '{names[0]}=5:1' for missed and false alarm, "
                "with numbers above 0 and each boundary once. There are "
                f"{', '.join(names)}; those not named cost 1."
            )
        costs[name] = (values[0], values[-1])
    return {name: costs[name] for name in names if name in costs}


# --- what the run has ---


def _with_probabilities(
    found: Mapping[str, Predictions],
    split: str,
    folder: folders.RunFolder,
    scores: RunResults,
) -> Graded:
    if split not in found:
        if split == CALIBRATION:
            raise ValueError(
                f"{folder.path} was trained without a calibration slice, and neither "
                "--coverage nor --guarantee may use images that anything else was "
                "chosen on. Train a run with --config.data.calibration_fraction=0.1, "
                "or leave the flag out: thresholds of --max-missed then come from the "
                "validation data."
            )
        raise ValueError(
            f"{folder.path / predictions.NAME} has no {split} images; "
            f"`launch.py evaluate --run={folder.path}` makes it again."
        )
    given = found[split]
    if given.probabilities is None:
        raise ValueError(
            f"the method {scores.method} of {folder.path} gives no "
            "probabilities, and without them there is nothing to decide by."
        )
    return Graded(given.true, given.predicted, given.probabilities)


def _check_counts(
    found: Mapping[str, Predictions], folder: folders.RunFolder, scores: RunResults
) -> None:
    """Damaged where the file has other images than the scores are of."""
    for split, about in scores.final.items():
        listed = len(found[split].items) if split in found else 0
        if listed != about.count:
            raise Damaged(
                folder.path / predictions.NAME,
                f"it has {listed} {split} images, and the run was evaluated on "
                f"{about.count}",
                f"`launch.py evaluate --run={folder.path}` makes it again.",
            )


def _by_missed(
    fitted: Graded,
    temperature: float,
    targets: Mapping[str, float],
    ranks: Sequence[str],
    guarantee: bool,
) -> dict[str, Any]:
    """The fields of a decision by thresholds."""
    names = metrics.boundary_names(ranks)
    thresholds = decisions.fit_thresholds(
        calibration.apply_temperature(fitted.probabilities, temperature),
        fitted.true,
        {name: names.index(name) for name in targets},
        targets,
        guarantee,
    )
    return {
        "thresholds": thresholds,
        "max_missed": dict(targets),
        "guarantee": guarantee,
    }


def _saved(
    folder: folders.RunFolder, ranks: Sequence[str], temperature: float
) -> Decision | None:
    """The decision there is, if it goes with the probabilities there are."""
    try:
        decision = Decision.read(folder.decision, ranks)
    except ValueError:
        return None  # it is kept under another name
    return decision if decision and decision.temperature == temperature else None


def _save(folder: folders.RunFolder, decision: Decision) -> None:
    """Writes the decision; what was there before is kept beside it."""
    path, fields = folder.decision, files.sealed(decision.to_json())
    if path.exists():
        if path.read_bytes() == f"{json.dumps(fields, indent=2)}\n".encode():
            return
        kept = files.unused_path(path)
        shutil.copy2(path, kept)
        console.print(f"the decision before this one is kept as {kept.name}")
    files.write_json(path, fields)
