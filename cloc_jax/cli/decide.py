"""Decision control: how a finished run chooses labels, by what a mistake costs.

Reads what evaluation wrote, no images. The temperature and, without a guarantee, the
thresholds come from the validation data; with one, the thresholds come from the
calibration data, as prediction sets do. The test data only show what was bought and
what it cost.
"""

import math
import shutil
from collections.abc import Sequence
from typing import Any

import numpy as np
from rich.table import Table

from cloc_jax.cli.command_line import DecisionFlags
from cloc_jax.report import html_page, view
from cloc_jax.report.view import View
from cloc_jax.runtime import files
from cloc_jax.runtime import run_folder as folders
from cloc_jax.runtime.console import console
from cloc_jax.scoring import conformal_sets, decisions, metrics, predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import Ends, RunResults, SplitScores

CALIBRATION = "calibration"  # the split, as data/splits.py names it
FEW = 10  # ranks whose counts are shown


def decide(folder: folders.RunFolder, asked: DecisionFlags) -> Decision:
    """Writes decision.json into a run's folder and prints what it changes on test.

    A decision that was there before is kept under another name. Where the run has a
    report, it is written again.
    """
    _check(asked)
    run = View(folder)
    ranks, chances = run.results.ranks, run.test.probabilities
    if chances is None:
        raise ValueError(
            f"the method {run.results.method} of {folder.path} gives no probabilities, "
            "and without them there is nothing to decide by."
        )
    choice: dict[str, Any] = {}
    if asked.coverage is not None:
        held, at = _calibrated(run, CALIBRATION)
        choice["sets"] = conformal_sets.fit(at, held, asked.coverage, asked.sets)
    if asked.cost:
        choice["costs"] = _costs(asked.cost, ranks)
    elif asked.max_missed:
        targets = _targets(asked.boundary, asked.max_missed, run.results)
        true, at = _calibrated(run, CALIBRATION if asked.guarantee else "val")
        names = metrics.boundary_names(ranks)
        choice["max_missed"], choice["guarantee"] = targets, asked.guarantee
        choice["thresholds"] = {
            name: decisions.fit_threshold(
                at, true, names.index(name), share, asked.guarantee, name=name
            )
            for name, share in targets.items()
        }
    decision = Decision(tuple(ranks), run.temperature, **choice)
    after = decision.apply(chances)
    _save(folder, decision)  # once all that it needs was there
    for line in decision.describe():
        console.print(line, soft_wrap=True)
    if decision.chooses_labels:
        show_labels(run, decision, after)
    if decision.sets is not None:
        say_sets(run, decision.sets)
    _draw_again(folder)
    console.print(
        f"written to {folder.decision}; `predict` now goes by it, and --remove takes "
        "it away",
        soft_wrap=True,
    )
    return decision


def _calibrated(run: View, split: str) -> tuple[np.ndarray, np.ndarray]:
    """True ranks and calibrated probabilities of the images of a split."""
    if split not in run.splits:
        raise ValueError(
            f"{run.folder.path} was trained without a {split} slice, and neither "
            "--coverage nor --guarantee may use images that anything else was "
            "chosen on. Train a run with --config.data.calibration_fraction=0.1, "
            "or leave the flag out: thresholds of --max-missed then come from the "
            "validation data."
        )
    return run.splits[split].true, run.calibrated[split]


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


def _save(folder: folders.RunFolder, decision: Decision) -> None:
    """Writes the decision; another one that was there before is kept beside it."""
    kept = files.unused_path(folder.decision)
    is_there = folder.decision.exists()
    if is_there:
        shutil.copy2(folder.decision, kept)
    folder.write(folder.decision, decision.to_json())
    if is_there and kept.read_bytes() == folder.decision.read_bytes():
        kept.unlink()
    elif is_there:
        console.print(f"the decision before this one is kept as {kept.name}")


def _draw_again(folder: folders.RunFolder) -> None:
    """Brings the run's report, where there is one, up to the decision.

    The decision holds without it.
    """
    if not (folder.path / html_page.NAME).is_file():
        return
    try:
        page = html_page.write_report(folder)
    except files.Damaged as error:
        console.print(f"the report was not drawn again: {error}", soft_wrap=True)
    else:
        console.print(f"report  {page}", soft_wrap=True)


# --- what is asked for ---


def _check(asked: DecisionFlags) -> None:
    is_both = asked.max_missed and asked.cost
    if is_both or not (asked.max_missed or asked.cost or asked.coverage is not None):
        raise ValueError(
            "decide needs either --max-missed, such as --boundary='1|2' "
            "--max-missed=0.05 for at most 5% of the images above 1|2 put below it, or "
            "--cost, such as --cost='1|2=5' for mistakes there that cost 5 times as "
            "much as at other boundaries; or --coverage, such as --coverage=0.9 for "
            "sets of ranks that hold the true one in 90% of images."
        )
    if not asked.max_missed and (asked.boundary or asked.guarantee):
        given = "--boundary" if asked.boundary else "--guarantee"
        raise ValueError(
            f"{given} belongs to --max-missed; --cost names its boundaries itself and "
            "guarantees nothing, and --coverage has no boundary. Leave it out."
        )
    for share in asked.max_missed:
        if not 0 <= share < 1 or (asked.guarantee and not share):
            raise ValueError(
                f"the share of images above a boundary that may be missed is {share}; "
                f"give a number {'above' if asked.guarantee else 'from'} 0 and below 1."
            )
    if asked.coverage is not None and not 0 < asked.coverage < 1:
        raise ValueError(
            f"the coverage is {asked.coverage:g}; give the share of sets that hold the "
            "true rank, above 0 and below 1, such as 0.9."
        )
    if asked.sets != "greedy" and asked.coverage is None:
        raise ValueError(
            f"--sets={asked.sets} belongs to --coverage; give that as well."
        )


def _targets(
    given: Sequence[str], max_missed: Sequence[float], scores: RunResults
) -> dict[str, float]:
    """The share that may be missed at each boundary, low to high."""
    names = metrics.boundary_names(scores.ranks)
    chosen = list(dict.fromkeys(given or scores.critical))
    unknown = [name for name in chosen if name not in names]
    if unknown or not chosen:
        raise ValueError(
            f"--boundary names {', '.join(unknown) or 'none'}, and the run's critical "
            f"boundaries are {', '.join(scores.critical) or 'none'}; give some of "
            f"{', '.join(names)}."
        )
    shares = dict.fromkeys(chosen, max_missed[0])
    if len(max_missed) > 1:
        if len(chosen) != len(given) or len(given) != len(max_missed):
            raise ValueError(
                f"--max-missed is given {len(max_missed)} times and --boundary "
                f"{len(given)} times; give it once for all boundaries, or once for "
                "each that is named, in the same order."
            )
        shares = dict(zip(given, max_missed, strict=True))
    return {name: shares[name] for name in names if name in shares}


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


# --- what it changes, in sentences and tables ---


def show_labels(run: View, decision: Decision, after: np.ndarray) -> None:
    """A table of the test split, before the decision and with its labels."""
    true = run.test.true
    table = Table(f"{len(true)} test images", box=None, pad_edge=False)
    columns = []
    for title, given in (("before", run.test.predicted), ("after", after)):
        table.add_column(title, justify="right")
        scores = predictions.scores_of_labels(true, given, decision.ranks)
        columns.append(_cells(scores, decision))
    for row in columns[0]:
        table.add_row(row, *(cells[row] for cells in columns))
    console.print(table)
    console.print("  in brackets: 95% intervals", soft_wrap=True)


def _cells(scores: SplitScores, decision: Decision) -> dict[str, str]:
    """What the table says of some scores."""
    ends = scores.intervals
    assert ends is not None
    cells = {
        "accuracy": _shown("percent", scores.accuracy, ends.accuracy),
        "MAE": _shown("number", scores.mae, ends.mae),
        "QWK": _shown("number", scores.qwk, ends.qwk),
    }
    for name in decision.costs or decision.thresholds or {}:
        rates, around = scores.boundaries[name], ends.boundaries[name]
        for title, rate in (
            ("missed", "crossing_missed_rate"),
            ("false alarms", "crossing_false_alarm_rate"),
        ):
            shown = _shown("percent", getattr(rates, rate), around[rate])
            cells[f"{title} at {name}"] = shown
    if decision.costs is not None:
        cost = (np.array(scores.confusion) * decision.cost_matrix()).sum()
        cells["mean cost of an image"] = f"{cost / scores.count:.3f}"
    counts = scores.predicted_counts if len(decision.ranks) <= FEW else {}
    for rank, count in counts.items():
        cells[f"graded {rank} ({scores.true_counts[rank]} truly are)"] = str(count)
    return cells


def say_sets(run: View, sets: conformal_sets.PredictionSets) -> None:
    """How the saved prediction sets fare on the test split."""
    fares = run.sets()
    assert fares is not None, "they are saved by now"
    overall = fares[0]
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


def _shown(kind: str, value: float | None, ends: Ends) -> str:
    """A score with its interval, as the report writes them."""
    around = view.interval(ends, kind)
    return f"{view.FORMATS[kind](value)} ({around})" if around else view.DASH
