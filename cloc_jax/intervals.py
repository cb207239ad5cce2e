"""How sure a number is: intervals over images drawn again, and over seeds.

Drawing n images again with replacement is drawing n times from the cells of their
confusion matrix, and every score of `metrics` is a function of that matrix, so a
bootstrap costs milliseconds.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
DRAWS = 2000


class Interval(NamedTuple):
    """The ends of an interval, NaN where it is not defined."""

    low: float
    high: float


def of_scores(
    confusion: ArrayLike, boundaries: Sequence[str], *, seed: int = 0
) -> dict[str, Any]:
    """95% intervals of the scores of a confusion matrix, as `metrics` names them.

    Plain JSON: [low, high], or None where a score is not defined. Drawing again never
    leaves a rate of 0 or 1; there the interval is Clopper and Pearson's.

    Args:
      confusion: counts, rows true, columns predicted.
      boundaries: their names, low to high; the rates of each are in "boundaries".
      seed: of the draws.
    """
    counts = np.asarray(confusion, np.int64)
    drawn = draws_of(counts, seed=seed)
    total = int(counts.sum())
    found: dict[str, Any] = {}
    values = scores(counts)
    for name, over in scores(drawn).items():
        of = total if name in ("accuracy", "one_off_accuracy") else 0
        found[name] = _as_json(percentiles(over), float(values[name]), of)
    rates: dict[str, dict[str, Any]] = {name: {} for name in boundaries}
    wholes = {name: of for name, (_, of) in _boundary_counts(counts).items()}
    values = _all_boundary_rates(counts)
    for name, over in _all_boundary_rates(drawn).items():
        for h, boundary in enumerate(boundaries):
            of = int(wholes[name][h])
            ends = percentiles(over[:, h])
            rates[boundary][name] = _as_json(ends, float(values[name][h]), of)
    return found | {"boundaries": rates}


def bootstrap(confusion: ArrayLike, *, seed: int = 0) -> dict[str, Interval]:
    """95% intervals of accuracy, mae, qwk, one_off_accuracy, macro_mae.

    Args:
      confusion: counts, rows true, columns predicted.
      seed: of the draws.
    """
    drawn = draws_of(confusion, seed=seed)
    return {name: percentiles(values) for name, values in scores(drawn).items()}


def bootstrap_boundary(
    confusion: ArrayLike, h: int, *, seed: int = 0
) -> dict[str, Interval]:
    """95% intervals of the rates at the boundary between ranks h and h + 1."""
    drawn = draws_of(confusion, seed=seed)
    return {name: percentiles(v) for name, v in boundary_rates(drawn, h).items()}


def draws_of(confusion: ArrayLike, *, seed: int, draws: int = DRAWS) -> np.ndarray:
    """[draw, rank, rank]: confusion matrices of as many images, drawn again."""
    counts = np.asarray(confusion, np.int64)
    total = counts.sum()
    if counts.ndim != 2 or counts.shape[0] != counts.shape[1] or total < 1:
        raise ValueError(
            f"the confusion matrix has shape {counts.shape} and {total} images; wanted "
            "a square one of at least one image."
        )
    rng = np.random.default_rng(seed)
    drawn = rng.multinomial(total, counts.ravel() / total, size=draws)
    return drawn.reshape(draws, *counts.shape)


def scores(confusions: np.ndarray) -> dict[str, Any]:
    """Scores of confusion matrices [..., rank, rank]; NaN where not defined."""
    counts = np.asarray(confusions, np.float64)
    ranks = np.arange(counts.shape[-1])
    distance = np.abs(ranks[:, None] - ranks)
    total = counts.sum((-2, -1))
    sizes, called = counts.sum(-1), counts.sum(-2)
    chance = sizes[..., :, None] * called[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = (counts * distance**2).sum((-2, -1)) / total
        expected = (chance * distance**2).sum((-2, -1)) / total**2
        by_rank = (counts * distance).sum(-1) / sizes
        return {
            "accuracy": np.trace(counts, axis1=-2, axis2=-1) / total,
            "mae": (counts * distance).sum((-2, -1)) / total,
            "qwk": 1 - observed / expected,
            "one_off_accuracy": (counts * (distance <= 1)).sum((-2, -1)) / total,
            "macro_mae": np.nanmean(by_rank, axis=-1),
        }


def boundary_rates(confusions: np.ndarray, h: int) -> dict[str, Any]:
    """Error rates at the boundary between ranks h and h + 1, as `metrics` names them,
    of confusion matrices [..., rank, rank]; NaN where no image could err."""
    return {name: v[..., h] for name, v in _all_boundary_rates(confusions).items()}


def _all_boundary_rates(confusions: np.ndarray) -> dict[str, np.ndarray]:
    """As `boundary_rates`, of every boundary: [..., boundary]."""
    counts = _boundary_counts(np.asarray(confusions, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {name: errors / of for name, (errors, of) in counts.items()}


def _boundary_counts(
    counts: np.ndarray,
) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """How many images err at each boundary and how many could, [..., boundary]."""
    sizes = counts.sum(-1)
    low, high = sizes[..., :-1], sizes[..., 1:]
    missed = np.diagonal(counts, -1, -2, -1)  # true h + 1, called h
    false_alarm = np.diagonal(counts, 1, -2, -1)
    below = sizes.cumsum(-1)[..., :-1]
    above = sizes.sum(-1, keepdims=True) - below
    called_below = counts.sum(-2).cumsum(-1)[..., :-1]
    # Below the boundary and called so.
    kept = np.diagonal(counts.cumsum(-2).cumsum(-1), 0, -2, -1)[..., :-1]
    crossing_missed, crossing_alarm = called_below - kept, below - kept
    return {
        "error_rate": (missed + false_alarm, low + high),
        "missed_rate": (missed, high),
        "false_alarm_rate": (false_alarm, low),
        "crossing_rate": (crossing_missed + crossing_alarm, below + above),
        "crossing_missed_rate": (crossing_missed, above),
        "crossing_false_alarm_rate": (crossing_alarm, below),
    }


def binomial(count: int, total: int) -> Interval:
    """Clopper and Pearson's 95% interval of a rate: `count` of `total`."""
    from scipy import stats  # late: it takes a second

    if not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is not a rate.")
    if not total:
        return Interval(math.nan, math.nan)
    found = stats.binomtest(count, total).proportion_ci(LEVEL, method="exact")
    return Interval(float(found.low), float(found.high))


def over_seeds(values: Sequence[float | int]) -> Interval:
    """Student's 95% interval of the mean over seeds; NaN for a single one."""
    from scipy import stats

    if len(values) < 2:
        return Interval(math.nan, math.nan)
    mean, error = float(np.mean(values)), float(stats.sem(values))
    half = float(stats.t.ppf((1 + LEVEL) / 2, len(values) - 1)) * error
    return Interval(mean - half, mean + half)


def percentiles(values: np.ndarray) -> Interval:
    """The middle 95% of the values that are defined."""
    known = values[np.isfinite(values)]
    if not known.size:
        return Interval(math.nan, math.nan)
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def _as_json(ends: Interval, value: float, of: int) -> list[float] | None:
    """[low, high] of a value, which is a rate of `of` images unless that is 0."""
    if not math.isfinite(value):
        return None
    if of and value in (0.0, 1.0):
        # Clopper and Pearson's, whose formula is short here.
        far = 1 - ((1 - LEVEL) / 2) ** (1 / of)
        ends = Interval(0.0, far) if value == 0 else Interval(1 - far, 1.0)
    return [ends.low, ends.high]
