"""How sure a number is: intervals over test images drawn again, and over runs.

Drawing n images again with replacement is drawing n times from the cells of their
confusion matrix, and every score of `metrics` is a function of that matrix, so a
bootstrap costs milliseconds.
"""

import math
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from cloc_jax.scoring.metrics import boundary_counts, boundary_rates, scores

LEVEL = 0.95
DRAWS = 2000


class Interval(NamedTuple):
    """The ends of an interval, NaN where it is not defined."""

    low: float
    high: float


def of_scores(confusion: ArrayLike, boundaries: Sequence[str]) -> dict[str, Any]:
    """95% intervals of the scores of a confusion matrix, as `metrics` names them.

    Plain JSON: [low, high], or None where a score is not defined. Drawing again never
    leaves a rate of 0 or 1; there the interval is Clopper and Pearson's.
    """
    counts = np.asarray(confusion, np.int64)
    drawn, total = draws_of(counts), int(counts.sum())
    values, over = scores(counts), scores(drawn)
    values.pop("gmsec")  # no rate, so there is no interval where it is 0
    sizes = counts.sum(1)
    recall = np.where(sizes > 0, np.diag(counts) / np.maximum(sizes, 1), np.inf)
    wholes = {"accuracy": total, "one_off_accuracy": total}
    wholes["minimum_sensitivity"] = int(sizes[recall.argmin()])
    by_score: dict[str, Any] = {
        name: _as_json(over[name], values[name], wholes.get(name, 0)) for name in values
    }
    values, over = boundary_rates(counts), boundary_rates(drawn)
    images = {name: of for name, (_, of) in boundary_counts(counts).items()}
    by_score["boundaries"] = {
        boundary: {
            name: _as_json(over[name][:, h], values[name][h], int(images[name][h]))
            for name in values
        }
        for h, boundary in enumerate(boundaries)
    }
    return by_score


def of_mean(values: np.ndarray) -> list[float]:
    """[low, high] of the mean of values, drawn again."""
    rng = np.random.default_rng(0)
    count = len(values)
    # In parts, as [draw, image] need not fit into memory.
    means = [
        rng.multinomial(count, np.full(count, 1 / count), size=DRAWS // 20) @ values
        for _ in range(20)
    ]
    return list(percentiles(np.concatenate(means) / count))


def draws_of(confusion: ArrayLike) -> np.ndarray:
    """[draw, rank, rank]: confusion matrices of as many images, drawn again."""
    counts = np.asarray(confusion, np.int64)
    total = counts.sum()
    rng = np.random.default_rng(0)
    drawn = rng.multinomial(total, counts.ravel() / total, size=DRAWS)
    return drawn.reshape(DRAWS, *counts.shape)


def redrawn(true: np.ndarray, predicted: np.ndarray, num_ranks: int) -> np.ndarray:
    """[draw, rank, rank]: mean confusion matrix of runs and images drawn again.

    The draws depend on the numbers of runs and images alone, so the results of two
    settings with the same of both belong together draw by draw, and their differences
    are paired. `predicted` is [run, image].
    """
    runs, images = predicted.shape
    rng = np.random.default_rng(0)
    of_runs = rng.multinomial(runs, np.full(runs, 1 / runs), size=DRAWS) / runs
    of_images = rng.multinomial(images, np.full(images, 1 / images), size=DRAWS)
    cells = np.eye(num_ranks**2, dtype=np.float32)
    total = np.zeros((DRAWS, num_ranks**2))
    for run in range(runs):
        counts = of_images.astype(np.float32) @ cells[true * num_ranks + predicted[run]]
        total += of_runs[:, run, None] * counts
    return total.reshape(DRAWS, num_ranks, num_ranks)


def binomial(count: int, total: int) -> Interval:
    """Clopper and Pearson's 95% interval of a rate: `count` of `total`."""
    from scipy import special  # late; and not stats, which takes a second

    if not total:
        return Interval(math.nan, math.nan)
    low, high = 0.0, 1.0
    if count:
        low = float(special.betaincinv(count, total - count + 1, (1 - LEVEL) / 2))
    if count < total:
        high = float(special.betaincinv(count + 1, total - count, (1 + LEVEL) / 2))
    return Interval(low, high)


def percentiles(values: np.ndarray) -> Interval:
    """The middle 95% of the values that are defined."""
    known = values[np.isfinite(values)]
    if not known.size:
        return Interval(math.nan, math.nan)
    low, high = np.quantile(known, [(1 - LEVEL) / 2, (1 + LEVEL) / 2])
    return Interval(float(low), float(high))


def _as_json(drawn: np.ndarray, value: float, of: int) -> list[float] | None:
    """[low, high] of a value, which is a rate of `of` images unless that is 0."""
    if not math.isfinite(value):
        return None
    ends = percentiles(drawn)
    if of and value in (0.0, 1.0):
        # Clopper and Pearson's, whose formula is short here.
        far = 1 - ((1 - LEVEL) / 2) ** (1 / of)
        ends = Interval(0.0, far) if value == 0 else Interval(1 - far, 1.0)
    return [ends.low, ends.high]


# --- the mean of several runs ---
#
# A mean of n runs on the same test images varies for two reasons. Other seeds would
# give other runs: the variance of that part is s²/n, with s from as few runs as there
# are. Other test images would give another mean: the variance of that part is known
# from the images. The interval is Student's, with the degrees of freedom of Welch and
# Satterthwaite for the sum of the two.


def variance_over_images(values: np.ndarray) -> float:
    """Variance, over other test images, of the mean over runs of a score.

    It is the mean of the values [run, image], such as 1 where a run is right.
    """
    mean = values.mean(0)  # [image]
    count = len(mean)
    if count < 2:
        return math.nan
    spread = float(mean.var(ddof=1))
    if not spread and mean[0] in (0, 1):
        # None or all of them: as if two of four more images were otherwise.
        share = 2 / (count + 4)
        spread = share * (1 - share)
    return spread / count


def mean_by_fold(
    scores: Sequence[float], folds: Sequence[int | None]
) -> Sequence[float]:
    """What `of_run_mean` takes of runs on several folds: one mean per fold.

    Runs on one fold share its images, so that they are not independent. Of runs on one
    fold alone, or without folds, the scores as they are.
    """
    by_fold: dict[int | None, list[float]] = {}
    for score, fold in zip(scores, folds, strict=True):
        by_fold.setdefault(fold, []).append(score)
    if len(by_fold) < 2:
        return scores
    return [float(np.mean(some)) for some in by_fold.values()]


def of_run_mean(
    scores: Sequence[float], images_variance: float, minus: Sequence[float] = ()
) -> Interval:
    """95% interval of the mean of runs, or of its difference from that of other runs.

    Args:
      scores: one per run; of a single one, the interval is over images only.
      images_variance: of the mean or the difference, as `variance_over_images` gives
        it; 0 where the runs had other test images each, so that the spread over runs
        holds that part too.
      minus: scores of the other runs; seeds are not paired.
    """
    from scipy import special  # late; and not stats, which takes a second

    over_seeds = [
        (float(np.var(some, ddof=1)) / len(some), len(some) - 1)
        for some in (scores, minus)
        if len(some) > 1
    ]
    total = sum(variance for variance, _ in over_seeds) + images_variance
    if not math.isfinite(total) or not (over_seeds or images_variance):
        return Interval(math.nan, math.nan)
    uncertain = sum(variance**2 / freedom for variance, freedom in over_seeds)
    freedom = total**2 / uncertain if uncertain else math.inf
    quantile = (1 + LEVEL) / 2
    factor = (
        float(special.stdtrit(freedom, quantile))
        if freedom < 1e6
        else float(special.ndtri(quantile))
    )
    half = factor * math.sqrt(total)
    centre = float(np.mean(scores)) - (float(np.mean(minus)) if len(minus) else 0.0)
    return Interval(centre - half, centre + half)
