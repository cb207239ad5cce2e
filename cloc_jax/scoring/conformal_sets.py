"""Sets of neighbouring ranks that hold the true one as often as was asked for.

A set grows from one rank up to a level, which is chosen on calibration images (split
conformal prediction), so the share of sets that hold the true rank is what was asked
for, however poor the probabilities are. Sets are never empty and have no gaps. There
are two kinds: "greedy" starts with the most probable rank and takes in the more
probable of its two neighbours, time after time; "rps" starts with the median and takes
in the rank with the least ranked probability score.
"""

import dataclasses
import math

import numpy as np
from jaxtyping import Float

from cloc_jax.scoring import intervals, metrics
from cloc_jax.scoring.intervals import Interval
from cloc_jax.scoring.metrics import Labels, Probabilities


@dataclasses.dataclass(frozen=True)
class PredictionSets:
    """How far sets grow: a rank is in whose entry is at most `level`; see `ENTRIES`."""

    coverage: float  # that was asked for
    level: float
    images: int  # it was chosen on
    kind: str = "greedy"

    def apply(self, probabilities: Probabilities) -> tuple[Labels, Labels]:
        """The lowest and the highest rank of each set, from calibrated probabilities.

        All ranks between the two are in the set as well.
        """
        is_in = ENTRIES[self.kind](probabilities) <= self.level  # no gaps
        last = probabilities.shape[1] - 1
        return is_in.argmax(1), last - is_in[:, ::-1].argmax(1)


def share_before(probabilities: Probabilities) -> Probabilities:
    """The probability of all ranks that enter a growing set before each rank does.

    The most probable rank is first, with 0, the lowest of several such; of two
    neighbours the more probable one follows, the lower one of equals. So it never falls
    from one rank to the next that enters.
    """
    p = np.asarray(probabilities, np.float64)
    rows = np.arange(len(p))
    padded = np.pad(p, ((0, 0), (1, 1)), constant_values=-1.0)  # outside: never next
    low = high = p.argmax(1)
    before, inside = np.zeros_like(p), p[rows, low]
    for _ in range(p.shape[1] - 1):
        # Columns of `padded` are one further on.
        is_upward = padded[rows, high + 2] > padded[rows, low]
        entering = np.where(is_upward, high + 1, low - 1)
        before[rows, entering] = inside
        inside = inside + p[rows, entering]
        low, high = np.minimum(low, entering), np.maximum(high, entering)
    return np.minimum(before, 1.0)  # which rounding may pass


def distance_from_median(
    probabilities: Probabilities,
) -> Float[np.ndarray, "item rank"]:
    """The ranked probability score that each rank would have as the true one (Haas et
    al., PMLR 337, 2026), and 0 for the median, so that no set is empty.

    It never falls from one rank to the next further from the median.
    """
    scores = metrics.rank_scores(probabilities)
    below = np.cumsum(np.asarray(probabilities, np.float64), axis=1)[:, :-1]
    scores[np.arange(len(scores)), (below < 0.5).sum(axis=1)] = 0
    return scores


# By kind, how late each rank enters a set, [item, rank].
ENTRIES = {"greedy": share_before, "rps": distance_from_median}


def fit(
    probabilities: Probabilities, true: Labels, coverage: float, kind: str = "greedy"
) -> PredictionSets:
    """The smallest sets that keep the coverage, from images used for nothing else.

    Of n images, the true rank of at least k is in its set, where k / (n + 1) is at
    least the coverage. The set of an image drawn like these then holds its true rank
    with at least that probability, over the draw of both; equal probabilities can only
    add to it. The probabilities are calibrated ones.
    """
    count = len(true)
    wanted = _wanted(count, coverage)
    if wanted > count:
        raise ValueError(
            f"a coverage of {100 * coverage:g}% takes at least "
            f"{images_needed(coverage)} calibration images, but there are {count}. "
            f"With these, {math.floor(1e4 * count / (count + 1)) / 100:g}% can be "
            "had; a larger data.calibration_fraction gives more."
        )
    entries = ENTRIES[kind](probabilities)[np.arange(count), true]
    level = float(np.sort(entries)[wanted - 1])
    return PredictionSets(coverage, level, count, kind)


def _wanted(count: int, coverage: float) -> int:
    """The least k for which k / (count + 1) is at least the coverage."""
    # Shares as a reader of the rates would compute them; a product may round.
    shares = np.arange(count + 2) / (count + 1)
    return int(np.searchsorted(shares, coverage))


def images_needed(coverage: float) -> int:
    """The least number of calibration images that a coverage below 1 takes."""
    count = max(math.floor(coverage / (1 - coverage)) - 1, 1)
    while count / (count + 1) < coverage:
        count += 1
    return count


# --- how they fare ---


@dataclasses.dataclass(frozen=True)
class Fare:
    """How the sets of some images fare."""

    images: int
    held: int  # sets with the true rank in them
    mean_size: float
    interval: Interval  # of the share held, 95%, binomial

    @property
    def coverage(self) -> float:
        """The share of sets that hold the true rank; NaN without images."""
        return self.held / self.images if self.images else math.nan

    def verdict(self, target: float) -> str:
        """How the coverage compares with what was asked for."""
        if self.interval.high < target:
            return "is below"
        return "is above" if self.interval.low > target else "agrees with"


def fare(
    low: Labels, high: Labels, true: Labels, num_ranks: int
) -> tuple[Fare, list[Fare]]:
    """How sets from `low` to `high` fare: for all images, and for each true rank."""
    is_held = (low <= true) & (true <= high)
    sizes = high - low + 1

    def over(some: np.ndarray) -> Fare:
        images, held = int(some.sum()), int(is_held[some].sum())
        mean = float(sizes[some].mean()) if images else math.nan
        return Fare(images, held, mean, intervals.binomial(held, images))

    everything = np.ones(len(true), bool)
    return over(everything), [over(true == rank) for rank in range(num_ranks)]
