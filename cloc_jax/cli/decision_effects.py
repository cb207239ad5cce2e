"""What a decision changes, in sentences and a table for the console."""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from rich.table import Table

from cloc_jax.runtime.console import console
from cloc_jax.scoring import conformal_sets, intervals, metrics
from cloc_jax.scoring.conformal_sets import PredictionSets
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.intervals import Interval

FEW = 10  # ranks whose counts are shown


class Graded(NamedTuple):
    """Images of a split with their probabilities."""

    true: np.ndarray
    predicted: np.ndarray
    probabilities: np.ndarray


class Tally(NamedTuple):
    """How labels fare at a boundary."""

    missed: int
    above: int
    false_alarms: int
    below: int


def _tally(true: np.ndarray, labels: np.ndarray, h: int) -> Tally:
    above = true > h
    return Tally(
        int((above & (labels <= h)).sum()),
        int(above.sum()),
        int((~above & (labels > h)).sum()),
        int((~above).sum()),
    )


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
        h = names.index(name)
        now, then = (_tally(fitted.true, x, h) for x in (labels, fitted.predicted))
        console.print(
            f"  threshold from {now.above} {source} images above {name}: {now.missed} "
            f"of them missed, {then.missed} without the decision",
            soft_wrap=True,
        )


def show_labels(test: Graded, decision: Decision, shown: Sequence[str]) -> None:
    """A table of the test split, before the decision and after it."""
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
        scores, ends = intervals.scores(counts[None]), intervals.bootstrap(counts)
        right = int(np.trace(counts))
        cells = {
            "accuracy": _share(right, len(test.true)),
            "MAE": _number(float(scores["mae"][0]), ends["mae"]),
            "QWK": _number(float(scores["qwk"][0]), ends["qwk"]),
        }
        for name in shown:
            tally = _tally(test.true, given, names.index(name))
            cells[f"missed at {name}"] = _share(tally.missed, tally.above)
            cells[f"false alarms at {name}"] = _share(tally.false_alarms, tally.below)
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


def say_price(test: Graded, decision: Decision, shown: Sequence[str]) -> None:
    """What was bought and what it cost, one sentence per boundary."""
    names = metrics.boundary_names(decision.ranks)
    labels = decision.apply(test.probabilities)
    accuracy = [np.mean(given == test.true) for given in (test.predicted, labels)]
    for name in shown:
        h = names.index(name)
        then, now = (_tally(test.true, x, h) for x in (test.predicted, labels))
        fewer = then.missed - now.missed
        more = now.false_alarms - then.false_alarms
        text = (
            f"Of the {now.above} test images above {name}, {now.missed} are put below "
            f"it, {_change(-fewer)}; of the {now.below} below it, "
            f"{now.false_alarms} are put above, {_change(more)}; accuracy goes from "
            f"{accuracy[0]:.3f} to {accuracy[1]:.3f}."
        )
        console.print(text, soft_wrap=True)
        target = decision.target(name) if decision.thresholds else None
        if target is not None and now.above:
            console.print(_against_target(now, target), soft_wrap=True)


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
    low_end, high_end = sets.over_slices()
    console.print(
        f"  {100 * sets.coverage:g}% is a mean over calibration slices; single slices "
        f"of {sets.images} images mostly give {100 * low_end:.1f}% to "
        f"{100 * high_end:.1f}%",
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


def _against_target(tally: Tally, target: float) -> str:
    """Whether what is missed on test agrees with what was asked for."""
    low, high = intervals.binomial(tally.missed, tally.above)
    rate = tally.missed / tally.above
    verdict = "agrees with"
    if low > target:
        verdict = "is above"
    elif high < target:
        verdict = "is below"
    return (
        f"The missed rate on test, {100 * rate:.1f}% (95% interval {100 * low:.1f}% to "
        f"{100 * high:.1f}%), {verdict} the target of {100 * target:g}%."
    )


def _change(more: int) -> str:
    if not more:
        return "as many as before"
    return f"{abs(more)} {'more' if more > 0 else 'fewer'} than before"


def _share(count: int, total: int) -> str:
    if not total:
        return "–"
    low, high = intervals.binomial(count, total)
    return f"{100 * count / total:.1f}% ({100 * low:.1f} to {100 * high:.1f})"


def _number(value: float, ends: Interval) -> str:
    if not math.isfinite(value):
        return "–"
    return f"{value:.3f} ({ends.low:.3f} to {ends.high:.3f})"
