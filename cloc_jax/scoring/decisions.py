"""What is decided from probabilities, and how far they hold.

A temperature T turns probabilities p into p**(1 / T), made to sum to 1, as dividing the
logits by T does: it changes how sure a run is, not which rank is most probable. Labels
are then chosen by what a mistake costs, in place of the most probable rank.

A boundary h lies between ranks h and h + 1. An image is *missed* there if it is truly
above and put below, however far; the other way round it is a *false alarm*. Everything
here starts from probabilities, so it works for any method and any trained run, and
nothing here sees an image.
"""

import dataclasses
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from cloc_jax.runtime import files
from cloc_jax.scoring import conformal_sets, intervals, metrics, predictions
from cloc_jax.scoring.conformal_sets import PredictionSets
from cloc_jax.scoring.intervals import Interval
from cloc_jax.scoring.metrics import Labels, Probabilities

COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are looked at
_AGAIN = "Make it again with `launch.py decide`, or move it away."

# --- the temperature ---


def fit_temperature(probabilities: Probabilities, true: Labels) -> float:
    """The temperature with the least mean of -log p(true rank).

    That mean is convex in 1 / T, so one root of its slope is found: the same data
    always give the same number. It stays within COLDEST and HOTTEST, where perfect
    predictions would ask for 0 and useless ones for infinity; it is 1 where no
    temperature matters. Probabilities below 1e-38 count as that.
    """
    from scipy import optimize, special  # late: they take half a second

    logs = metrics.log_probabilities(probabilities)
    chosen = logs[np.arange(len(true)), true]

    def slope(log_temperature: float) -> float:
        """By 1 / T; falls as T grows."""
        at = special.softmax(logs / np.exp(log_temperature), axis=1)
        return float(np.mean((at * logs).sum(1) - chosen))

    if not np.ptp(logs, axis=1).any():
        return 1.0
    low, high = np.log(COLDEST), np.log(HOTTEST)
    if slope(high) >= 0:
        return HOTTEST
    if slope(low) <= 0:
        return COLDEST
    return float(np.exp(optimize.brentq(slope, low, high, xtol=1e-12)))


def apply_temperature(
    probabilities: Probabilities, temperature: float
) -> Probabilities:
    """p**(1 / T), made to sum to 1, in float64."""
    logs = metrics.log_probabilities(probabilities) / temperature
    powers = np.exp(logs - logs.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def probability_above(
    probabilities: Probabilities, h: int
) -> Float[np.ndarray, "item"]:
    """P(rank > h), summed from above, so that small ones stay exact."""
    sums = np.asarray(probabilities, np.float64)[:, h + 1 :].sum(1)
    return np.minimum(sums, 1.0)  # which rounding may pass


# --- how far they hold ---


class Bin(NamedTuple):
    """Images with similar probabilities of some event."""

    predicted: float  # mean probability
    observed: float  # how often it came true
    interval: Interval  # of that, 95%
    images: int


def reliability(predicted: np.ndarray, came_true: np.ndarray, bins: int) -> list[Bin]:
    """How often an event came true, by how probable it was.

    Bins have the same number of images, give or take one, from the least probable up;
    fewer bins where there are fewer images.
    """
    order = np.argsort(predicted, kind="stable")
    found = []
    for part in np.array_split(order, min(bins, len(order))):
        right = int(came_true[part].sum())
        mean, ends = predicted[part].mean(), intervals.binomial(right, len(part))
        found.append(Bin(float(mean), right / len(part), ends, len(part)))
    return found


# --- a decision ---


@dataclasses.dataclass(frozen=True)
class Decision:
    """How labels are chosen from probabilities: by costs, or by thresholds.

    Probabilities are first brought to the temperature. With `costs`, the label with
    the least expected cost wins (see `least_cost`). With `thresholds`, an image goes
    above a boundary where the probability of that is above its threshold, and is the
    most probable of the ranks this leaves (see `by_thresholds`). Prediction `sets` come
    with either, or alone: labels are then left as they are.
    """

    ranks: tuple[str, ...]
    temperature: float = 1.0
    costs: dict[str, tuple[float, float]] | None = None  # missed, false alarm
    thresholds: dict[str, float] | None = None
    # The shares that the thresholds were fitted for; they do not change labels.
    max_missed: dict[str, float] | None = None
    guarantee: bool = False
    sets: PredictionSets | None = None

    @property
    def chooses_labels(self) -> bool:
        """Whether labels differ from the run's own; else there are only sets."""
        return self.costs is not None or self.thresholds is not None

    def calibrated(self, probabilities: Probabilities) -> Probabilities:
        """The probabilities that the decision is made by."""
        return apply_temperature(probabilities, self.temperature)

    def apply(self, probabilities: Probabilities) -> Labels:
        """The label of each image, from probabilities as the run gives them.

        The most probable rank where `chooses_labels` is False.
        """
        p = self.calibrated(probabilities)
        if not self.chooses_labels:
            return p.argmax(1)
        names = metrics.boundary_names(self.ranks)
        if self.thresholds is not None:
            places = {names.index(name): t for name, t in self.thresholds.items()}
            return by_thresholds(p, places)
        return least_cost(p, self.cost_matrix())

    def cost_matrix(self) -> Float[np.ndarray, "rank rank"]:
        """Cost of each label (column) for each true rank (row).

        A label costs the sum over all boundaries between it and the true rank: of a
        miss where it is too low, of a false alarm where it is too high; 1 where the
        boundary is not named.
        """
        names = metrics.boundary_names(self.ranks)
        pairs = [(self.costs or {}).get(name, (1.0, 1.0)) for name in names]
        missed, alarm = np.cumsum([(0.0, 0.0), *pairs], axis=0).T
        too_low = np.maximum(missed[:, None] - missed, 0)
        return too_low + np.maximum(alarm - alarm[:, None], 0)

    def apply_sets(self, probabilities: Probabilities) -> tuple[Labels, Labels]:
        """The lowest and the highest rank of each image's prediction set, from
        probabilities as the run gives them."""
        assert self.sets is not None
        return self.sets.apply(self.calibrated(probabilities))

    def describe(self) -> list[str]:
        """What it does, in one sentence per boundary."""
        lines = []
        for name, (missed, alarm) in (self.costs or {}).items():
            lines.append(
                f"at {name} a missed image costs {missed:g} and a false alarm {alarm:g}"
            )
        if self.costs and len(self.costs) < len(self.ranks) - 1:
            lines.append("at every other boundary either costs 1")
        for name, threshold in (self.thresholds or {}).items():
            how = f"above {name} where P(rank above) is over {threshold:.4g}"
            target = (self.max_missed or {}).get(name)
            if target is not None:
                kind = "guaranteed" if self.guarantee else "chosen"
                how += f", {kind} to miss at most {100 * target:g}%"
                how += " on average" if self.guarantee else ""
            lines.append(how)
        if self.sets is not None:
            lines.append(
                f"sets of neighbouring ranks hold the true one for at least "
                f"{100 * self.sets.coverage:g}% of images on average"
            )
        return [*lines, f"probabilities at temperature {self.temperature:.3g}"]

    def to_json(self) -> dict[str, Any]:
        """Plain data that `read` takes back."""
        return files.to_plain(self)

    @classmethod
    def read(
        cls, path: pathlib.Path, ranks: Sequence[str], owner: str | None = None
    ) -> "Decision | None":
        """The decision that a file holds; None where there is no such file.

        Damaged where it is not as `decide` wrote it for the owner, a run's mark.
        """
        if not path.exists():
            return None
        decision = files.read_dataclass(cls, path, remedy=_AGAIN, owner=owner)
        if decision.ranks != tuple(ranks):
            raise ValueError(
                f"{path} is about the ranks {', '.join(decision.ranks)}, but the run "
                f"has {', '.join(ranks)}. {_AGAIN}"
            )
        return decision


# --- choosing labels ---


def least_cost(
    probabilities: Probabilities, costs: Float[np.ndarray, "rank rank"]
) -> Labels:
    """The label with the least expected cost; the lowest of several such.

    Where every boundary costs the same, that is the median of the ranks, which need
    not be the most probable one.
    """
    expected = np.zeros_like(probabilities, np.float64)
    # One rank after the other, not a matrix product, whose rounding differs between
    # machines.
    for rank, by_label in enumerate(costs):
        expected += probabilities[:, rank, None] * by_label[None]
    return np.argmin(expected, axis=1)


def by_thresholds(
    probabilities: Probabilities, thresholds: Mapping[int, float]
) -> Labels:
    """The most probable rank on the sides that thresholds allow.

    An image goes above boundary h where P(rank > h) > thresholds[h]. Where a lower
    boundary says below and a higher one above, the higher side wins, so that a further
    boundary never adds to what is missed at another. Of equally probable ranks the
    lowest is taken, as by the run itself.
    """
    items, ranks = probabilities.shape
    least = np.zeros(items, np.int64)  # lowest rank allowed
    most = np.full(items, ranks - 1, np.int64)  # highest
    is_above = {
        h: probability_above(probabilities, h) > thresholds[h]
        for h in sorted(thresholds)
    }
    for h, above in is_above.items():
        least[above] = h + 1  # boundaries ascend: the highest wins
    for h, above in is_above.items():
        below = ~above & (h >= least)
        most[below] = np.minimum(most[below], h)
    places = np.arange(ranks)
    allowed = (places >= least[:, None]) & (places <= most[:, None])  # [item, rank]
    return np.argmax(np.where(allowed, probabilities, -1.0), axis=1)


# --- choosing thresholds ---


def fit_threshold(
    probabilities: Probabilities,
    true: Labels,
    h: int,
    max_missed: float,
    guarantee: bool = False,
    *,
    name: str = "the boundary",
) -> float:
    """The largest threshold at a boundary that misses few enough images.

    Of the images given that are truly above it, at most the share `max_missed` is put
    below. The largest such threshold has the fewest false alarms. It lies halfway
    between two probabilities that occur.

    With `guarantee`, conformal risk control: of n images above, k may be missed only
    if (k + 1) / (n + 1) <= max_missed. An image drawn like these is then missed with
    at most that probability, over the draw of both, whatever the probabilities are
    worth; provided that nothing else was chosen on these images.

    Args:
      probabilities: calibrated ones.
      max_missed: a share below 1; above 0 for a guarantee.
      name: of the boundary, for errors.
    """
    scores = probability_above(probabilities, h)
    above = np.sort(scores[true > h])
    count = len(above)
    if not count:
        raise ValueError(
            f"no image is truly above {name}, so there is nothing to choose its "
            "threshold by; name another boundary."
        )
    used = missed_shares(count, guarantee)
    allowed = int(np.searchsorted(used, max_missed, side="right")) - 1
    if allowed < 0:
        raise ValueError(
            f"to guarantee at most {100 * max_missed:g}% missed at {name} takes at "
            f"least {conformal_sets.images_needed(1 - max_missed)} images above it, "
            f"but there are {count}. With these, {math.ceil(1e4 / (count + 1)) / 100:g}"
            "% can be guaranteed; a larger data.calibration_fraction gives more."
        )
    return just_below(float(above[allowed]), scores)


def missed_shares(count: int, guarantee: bool) -> Float[np.ndarray, "missed"]:
    """The share that missing 0, 1, … of `count` images above a boundary uses up."""
    extra = 1 if guarantee else 0
    return (np.arange(count) + extra) / (count + extra)


def just_below(score: float, scores: np.ndarray) -> float:
    """A threshold just under a score: halfway to the next lower one, if any."""
    lower = scores[scores < score]
    if not lower.size and score <= 0:
        return -1.0  # everything is above
    under = float(lower.max()) if lower.size else 0.0
    middle = (under + score) / 2
    # Where no number lies between the two, the lower one does the same.
    return middle if middle < score else under


# --- what a threshold would buy and cost, before one is saved ---


class TradeOff(NamedTuple):
    """What a threshold at a boundary, None for the most probable rank, does on test."""

    threshold: float | None
    accuracy: float
    missed: float | None  # share of the images above the boundary


Graded = tuple[np.ndarray, np.ndarray]  # calibrated probabilities, true ranks


def trade_off(
    val: Graded, test: Graded, h: int, targets: Sequence[float]
) -> list[TradeOff]:
    """What each share missed at a boundary, asked for on validation, costs on test."""
    fitted = [fit_threshold(*val, h, target) for target in targets]
    return [_on_test(threshold, h, test) for threshold in fitted]


def at_accuracy(val: Graded, test: Graded, h: int, accuracy: float) -> TradeOff | None:
    """The fewest images missed at a boundary while validation accuracy is kept.

    Looks at no threshold, the most probable rank, and at all of them. Of those with
    which `val` has the accuracy, the one that misses least there is taken; of several
    such the most accurate one, then the largest. None where no choice has it.
    """
    probabilities, true = val
    scores = probability_above(probabilities, h)
    below, above = (by_thresholds(probabilities, {h: side}) for side in (1.0, -1.0))
    falling = (just_below(float(score), scores) for score in np.unique(scores)[::-1])
    best = None
    for threshold in (None, 1.0, *falling):
        labels = probabilities.argmax(1)
        if threshold is not None:
            labels = np.where(scores > threshold, above, below)
        right = int((labels == true).sum())
        cost = int((labels[true > h] <= h).sum()), -right
        if right / len(labels) >= accuracy and (best is None or cost < best[0]):
            best = cost, threshold
    if best is None:
        return None
    return _on_test(best[1], h, test)


def _on_test(threshold: float | None, h: int, test: Graded) -> TradeOff:
    probabilities, true = test
    labels = by_thresholds(probabilities, {} if threshold is None else {h: threshold})
    is_above = true > h
    missed = float((labels[is_above] <= h).mean()) if is_above.any() else None
    return TradeOff(threshold, float((labels == true).mean()), missed)


# --- grades, as `predict` shows them ---


class Grades(NamedTuple):
    """Grades of some images, in their order."""

    predicted: list[str]  # names of the ranks
    labels: np.ndarray  # [item], their indices
    expected: np.ndarray  # [item], a rank that need not be whole
    # [item, rank], where the method has them; calibrated where a decision chose.
    probabilities: np.ndarray | None
    most_likely: list[str] | None  # beside what a decision chose
    sets: list[tuple[str, str]] | None  # lowest and highest rank, where asked for


def grade(output: Any, ranks: Sequence[str], decision: Decision | None) -> Grades:
    """The grades of what a method predicts; a decision, where there is one, chooses."""
    probabilities = predictions.rank_probabilities(output)
    labels = np.asarray(output.label)
    expected = predictions.expected_rank(output, probabilities)
    most_likely = sets = None
    if decision:
        assert probabilities is not None  # as `decide` saw to
        if decision.chooses_labels:
            most_likely = [ranks[i] for i in probabilities.argmax(1)]
            labels = decision.apply(probabilities)
        if decision.sets:
            ends = zip(*decision.apply_sets(probabilities), strict=True)
            sets = [(ranks[low], ranks[high]) for low, high in ends]
        probabilities = decision.calibrated(probabilities)
        expected = probabilities @ np.arange(len(ranks))
    predicted = [ranks[i] for i in labels]
    return Grades(predicted, labels, expected, probabilities, most_likely, sets)
