"""Decision control: how a finished run chooses labels, by what a mistake costs.

Reads what evaluation wrote, no images. The temperature and, without a guarantee, the
thresholds come from the validation data; with one, the thresholds come from the
calibration data, as prediction sets do. The test data only show what was bought and
what it cost.
"""

import math
import shutil
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from rich.table import Table

from cloc_jax.report import html_page
from cloc_jax.runtime import files
from cloc_jax.runtime import run_folder as folders
from cloc_jax.runtime.console import console
from cloc_jax.scoring import (
    conformal_sets,
    decisions,
    intervals,
    metrics,
    predictions,
    results,
)
from cloc_jax.scoring.conformal_sets import PredictionSets
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import RunResults

CALIBRATION = "calibration"  # the split, as data/splits.py names it
_LABELS = ("costs", "thresholds", "max_missed", "guarantee")  # fields that choose them
FEW = 10  # ranks whose counts are shown


class Graded(NamedTuple):
    """Images of a split with their probabilities."""

    true: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray


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
    found = predictions.read(folder.path, scores)
    val = _with_probabilities(found, "val", folder, scores)
    temperature = decisions.fit_temperature(val.probabilities, val.true)
    before = _saved(folder, ranks, temperature)
    sets = None if before is None else before.sets
    if coverage is not None:
        held = _with_probabilities(found, CALIBRATION, folder, scores)
        at = decisions.apply_temperature(held.probabilities, temperature)
        sets = conformal_sets.fit(at, held.true, coverage)
    elif sets is not None:
        console.print("prediction sets stay as they were saved")
    choice: dict[str, Any] = {}
    fitted = None
    if costs:
        choice = {"costs": _costs(costs, ranks)}
    elif shares:
        split = CALIBRATION if guarantee else "val"
        fitted = _with_probabilities(found, split, folder, scores)
        targets = _targets(boundaries, shares, scores, ranks)
        choice = _by_missed(fitted, temperature, targets, ranks, guarantee)
    elif before is not None and before.chooses_labels:
        choice = {name: getattr(before, name) for name in _LABELS}
        console.print("labels stay as the saved decision chooses them")
    decision = Decision(tuple(ranks), temperature, sets=sets, **choice)
    test = _with_probabilities(found, "test", folder, scores)
    if decision != before:
        _save(folder, decision)  # once all that it needs was there
    say_decision(decision, val, fitted)
    if decision.chooses_labels:
        show_labels(test, decision)
    if sets is not None:
        say_sets(test, decision, sets)
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
        raise ValueError(
            f"{folder.path} was trained without a {split} slice, and neither "
            "--coverage nor --guarantee may use images that anything else was chosen "
            "on. Train a run with --config.data.calibration_fraction=0.1, or leave the "
            "flag out: thresholds of --max-missed then come from the validation data."
        )
    given = found[split]
    if given.probabilities is None:
        raise ValueError(
            f"the method {scores.method} of {folder.path} gives no "
            "probabilities, and without them there is nothing to decide by."
        )
    return Graded(given.true, given.predicted, given.probabilities)


def _by_missed(
    fitted: Graded,
    temperature: float,
    targets: Mapping[str, float],
    ranks: Sequence[str],
    guarantee: bool,
) -> dict[str, Any]:
    """The fields of a decision by thresholds."""
    names = metrics.boundary_names(ranks)
    at = decisions.apply_temperature(fitted.probabilities, temperature)
    thresholds = {
        name: decisions.fit_threshold(
            at, fitted.true, names.index(name), share, guarantee, name=name
        )
        for name, share in targets.items()
    }
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
    if folder.decision.exists():
        kept = files.unused_path(folder.decision)
        shutil.copy2(folder.decision, kept)
        console.print(f"the decision before this one is kept as {kept.name}")
    files.write_sealed(folder.decision, decision.to_json())


# --- what it changes, in sentences and a table ---


def _missed(true: np.ndarray, labels: np.ndarray, h: int) -> tuple[int, int]:
    """How many images above a boundary are put below it, and how many there are."""
    above = true > h
    return int((above & (labels <= h)).sum()), int(above.sum())


def say_decision(decision: Decision, val: Graded, fitted: Graded | None) -> None:
    for line in decision.describe():
        console.print(line, soft_wrap=True)
    before, after = (
        metrics.negative_log_likelihood(p, val.true)
        for p in (val.probabilities, decision.calibrated(val.probabilities))
    )
    console.print(
        f"  temperature from {len(val.true)} validation images, whose NLL goes from "
        f"{before:.3f} to {after:.3f}",
        soft_wrap=True,
    )
    if fitted is None:
        return
    source = "calibration" if decision.guarantee else "validation"
    names = metrics.boundary_names(decision.ranks)
    labels = decision.apply(fitted.probabilities)
    for name in decision.thresholds or {}:
        missed, above = _missed(fitted.true, labels, names.index(name))
        console.print(
            f"  threshold from {above} {source} images above {name}, of which "
            f"{missed} are missed",
            soft_wrap=True,
        )


def show_labels(test: Graded, decision: Decision) -> None:
    """A table of the test split, before the decision and after it, and verdicts."""
    num_ranks = len(decision.ranks)
    names = metrics.boundary_names(decision.ranks)
    labels = {"before": test.predicted, "after": decision.apply(test.probabilities)}
    table = Table(box=None, pad_edge=False)
    table.add_column(f"{len(test.true)} test images", justify="left")
    for column in labels:
        table.add_column(column, justify="right")
    columns = []
    for given in labels.values():
        counts = metrics.confusion_matrix(test.true, given, num_ranks)
        scores, ends = metrics.scores(counts), intervals.of_scores(counts, names)
        right = int(np.trace(counts))
        cells = {
            "accuracy": _share(right, len(test.true)),
            "MAE": _number(scores["mae"], ends["mae"]),
            "QWK": _number(scores["qwk"], ends["qwk"]),
        }
        crossing = metrics.boundary_counts(counts)
        for name in decision.costs or decision.thresholds or {}:
            for title, rate in (("missed", "missed"), ("false alarms", "false_alarm")):
                pair = crossing[f"crossing_{rate}_rate"]
                count, total = (int(part[names.index(name)]) for part in pair)
                cells[f"{title} at {name}"] = _share(count, total)
        if decision.costs is not None:
            cost = (counts * decision.cost_matrix()).sum() / len(test.true)
            cells["mean cost of an image"] = f"{cost:.3f}"
        for rank, count in enumerate(counts.sum(0) if num_ranks <= FEW else ()):
            truly = int(counts[rank].sum())
            cells[f"graded {decision.ranks[rank]} ({truly} truly are)"] = str(count)
        columns.append(cells)
    for title in columns[0]:
        table.add_row(title, *(cells[title] for cells in columns))
    console.print(table)
    console.print("  in brackets: 95% intervals", soft_wrap=True)
    for name, target in (decision.max_missed or {}).items():
        missed, above = _missed(test.true, labels["after"], names.index(name))
        if above:
            console.print(_against_target(name, missed, above, target), soft_wrap=True)


def say_sets(test: Graded, decision: Decision, sets: PredictionSets) -> None:
    """How prediction sets fare on the test split: in all, and by rank."""
    low, high = decision.apply_sets(test.probabilities)
    num_ranks = len(decision.ranks)
    overall, by_rank = conformal_sets.fare(low, high, test.true, num_ranks)
    ends = overall.interval
    console.print(
        f"Prediction sets, from {sets.images} calibration images: of {overall.images} "
        f"test images, {overall.held} have their true rank in the set. That is "
        f"{100 * overall.coverage:.1f}% (95% interval {100 * ends.low:.1f}% to "
        f"{100 * ends.high:.1f}%) and {overall.verdict(sets.coverage)} the coverage "
        f"of {100 * sets.coverage:g}%. Sets have {overall.mean_size:.2f} ranks on "
        "average.",
        soft_wrap=True,
    )
    if num_ranks > FEW:
        return
    table = Table(box=None, pad_edge=False)
    for title in ("true rank", "images", "in the set", "mean size of the set"):
        table.add_column(title, justify="left" if title == "true rank" else "right")
    for rank, found in zip(decision.ranks, by_rank, strict=True):
        size = f"{found.mean_size:.2f}" if found.images else "–"
        share = _share(found.held, found.images)
        table.add_row(rank, str(found.images), share, size)
    console.print(table)


def _against_target(name: str, missed: int, above: int, target: float) -> str:
    """Whether what is missed on test agrees with what was asked for."""
    low, high = intervals.binomial(missed, above)
    verdict = "agrees with"
    if low > target:
        verdict = "is above"
    elif high < target:
        verdict = "is below"
    return (
        f"Of the {above} test images above {name}, {missed} are missed. That is "
        f"{100 * missed / above:.1f}% (95% interval {100 * low:.1f}% to "
        f"{100 * high:.1f}%) and {verdict} the target of {100 * target:g}%."
    )


def _share(count: int, total: int) -> str:
    if not total:
        return "–"
    low, high = intervals.binomial(count, total)
    return f"{100 * count / total:.1f}% ({100 * low:.1f} to {100 * high:.1f})"


def _number(value: float, ends: Sequence[float] | None) -> str:
    if ends is None:
        return "–"
    return f"{value:.3f} ({ends[0]:.3f} to {ends[1]:.3f})"
