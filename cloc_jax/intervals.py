"""How sure a number is: intervals over images drawn again, and over seeds.

Drawing n images again with replacement is drawing n times from the cells of their
confusion matrix, and every score of `metrics` is a function of that matrix, so a
bootstrap costs milliseconds.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike

LEVEL = 0.95
DRAWS = 2000


class Interval(NamedTuple):
    """The ends of an interval, NaN where it is not defined."""

    low: float
    high: float


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


def scores(confusions: np.ndarray) -> dict[str, np.ndarray]:
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


def boundary_rates(confusions: np.ndarray, h: int) -> dict[str, np.ndarray]:
    """Error rates at the boundary between ranks h and h + 1, as `metrics` names them,
    of confusion matrices [..., rank, rank]; NaN where no image could err."""
    counts = np.asarray(confusions, np.float64)
    sizes = counts.sum(-1)
    missed, false_alarm = counts[..., h + 1, h], counts[..., h, h + 1]
    crossing_missed = counts[..., h + 1 :, : h + 1].sum((-2, -1))
    crossing_alarm = counts[..., : h + 1, h + 1 :].sum((-2, -1))
    below, above = sizes[..., : h + 1].sum(-1), sizes[..., h + 1 :].sum(-1)
    with np.errstate(divide="ignore", invalid="ignore"):
        return {
            "error_rate": (missed + false_alarm) / (sizes[..., h] + sizes[..., h + 1]),
            "missed_rate": missed / sizes[..., h + 1],
            "false_alarm_rate": false_alarm / sizes[..., h],
            "crossing_rate": (crossing_missed + crossing_alarm) / (below + above),
            "crossing_missed_rate": crossing_missed / above,
            "crossing_false_alarm_rate": crossing_alarm / below,
        }


def binomial(count: int, total: int) -> Interval:
    """Clopper and Pearson's 95% interval of a rate: `count` of `total`."""
    from scipy import special  # late; and not stats, which takes a second

    if not 0 <= count <= total:
        raise ValueError(f"{count} of {total} is not a rate.")
    if not total:
        return Interval(math.nan, math.nan)
    low, high = 0.0, 1.0
    if count:
        low = float(special.betaincinv(count, total - count + 1, (1 - LEVEL) / 2))
    if count < total:
        high = float(special.betaincinv(count + 1, total - count, (1 + LEVEL) / 2))
    return Interval(low, high)


def over_seeds(values: Sequence[float]) -> Interval:
    """Student's 95% interval of the mean over seeds; NaN for a single one."""
    from scipy import stats  # late: it takes a second

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
