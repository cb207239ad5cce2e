"""How sure the mean of several runs is: over their seeds and over the test images.

A mean of n runs on the same test images varies for two reasons. Other seeds would give
other runs: the variance of that part is s²/n, with s from as few runs as there are.
Other test images would give another mean: the variance of that part is known from the
images. The interval is Student's, with the degrees of freedom of Welch and
Satterthwaite for the sum of the two.
"""

import math
from collections.abc import Sequence

import numpy as np

from cloc_jax.scoring.intervals import LEVEL, Interval


def of_images(values: np.ndarray) -> float:
    """Variance, over other test images, of the mean over runs of a score.

    Args:
      values: [run, image], of which the score is the mean: 1 where a run is right for
        accuracy, absolute errors for MAE.
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


def by_fold(scores: Sequence[float], folds: Sequence[int | None]) -> Sequence[float]:
    """What `of_mean` and `of_difference` take of runs on several folds.

    Runs on one fold share its images, so that they are not independent: one mean per
    fold. Of runs on one fold alone, or without folds, the scores as they are.

    Args:
      scores: one per run.
      folds: of the runs.
    """
    different = list(dict.fromkeys(folds))
    if len(different) < 2:
        return scores
    return [
        float(np.mean([s for s, of in zip(scores, folds, strict=True) if of == fold]))
        for fold in different
    ]


def of_mean(scores: Sequence[float], images_variance: float) -> Interval:
    """95% interval of the mean of runs; of one run it is over images only.

    Args:
      scores: one per run.
      images_variance: as `of_images` gives it; 0 where the runs had other test images
        each, so that the spread over runs holds that part too.
    """
    mean, count = float(np.mean(scores)), len(scores)
    over_seeds = [_of_seeds(scores)] if count > 1 else []
    if count < 2 and not images_variance:
        return Interval(math.nan, math.nan)
    return _student(mean, over_seeds, images_variance)


def of_difference(
    first: Sequence[float], second: Sequence[float], images_variance: float
) -> Interval:
    """95% interval of the mean of one list of runs minus that of another.

    Args:
      first: scores, one per run.
      second: likewise; seeds are not paired.
      images_variance: of that difference, over other test images; 0 as for `of_mean`.
    """
    difference = float(np.mean(first)) - float(np.mean(second))
    over_seeds = [_of_seeds(scores) for scores in (first, second) if len(scores) > 1]
    if not over_seeds and not images_variance:
        return Interval(math.nan, math.nan)
    return _student(difference, over_seeds, images_variance)


def _of_seeds(scores: Sequence[float]) -> tuple[float, int]:
    """Variance of the mean over other seeds, and its degrees of freedom."""
    return float(np.var(scores, ddof=1)) / len(scores), len(scores) - 1


def _student(
    centre: float, over_seeds: Sequence[tuple[float, int]], images_variance: float
) -> Interval:
    """Around a centre whose variance is a sum of parts; the images' part is known."""
    from scipy import special  # late; and not stats, which takes a second

    total = sum(variance for variance, _ in over_seeds) + images_variance
    if not math.isfinite(total):
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
    return Interval(centre - half, centre + half)
