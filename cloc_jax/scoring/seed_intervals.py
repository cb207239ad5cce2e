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


def of_mean(scores: Sequence[float], images_variance: float) -> Interval:
    """95% interval of the mean of runs; of one run it is over images only.

    Args:
      scores: one per run.
      images_variance: as `of_images` gives it; 0 where the runs had other test images
        each, so that the spread over runs holds that part too.
    """
    from scipy import special  # late; and not stats, which takes a second

    mean, count = float(np.mean(scores)), len(scores)
    over_seeds = float(np.var(scores, ddof=1)) / count if count > 1 else 0.0
    total = over_seeds + images_variance
    if not math.isfinite(total) or (count < 2 and not images_variance):
        return Interval(math.nan, math.nan)
    freedom = math.inf
    if over_seeds:
        freedom = total**2 / (over_seeds**2 / (count - 1))
    quantile = (1 + LEVEL) / 2
    factor = (
        float(special.stdtrit(freedom, quantile))
        if freedom < 1e6
        else float(special.ndtri(quantile))
    )
    half = factor * math.sqrt(total)
    return Interval(mean - half, mean + half)
