"""Labels by what a mistake costs, in place of the most probable rank.

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
from jaxtyping import Float, Int

from cloc_jax.runtime import files, typed_json
from cloc_jax.scoring import calibration, metrics, predictions
from cloc_jax.scoring.conformal_sets import PredictionSets

_AGAIN = "Make it again with `launch.py decide`, or move it away."


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

    def __post_init__(self) -> None:
        names = metrics.boundary_names(self.ranks)
        if self.costs is not None and self.thresholds is not None:
            raise ValueError("a decision has either costs or thresholds.")
        if not self.chooses_labels and self.sets is None:
            raise ValueError("a decision has either costs, thresholds or sets.")
        given = self.thresholds if self.costs is None else self.costs
        unknown = [name for name in given or () if name not in names]
        if given is not None and (unknown or not given):
            raise ValueError(
                f"the decision is about the boundaries {', '.join(given) or '(none)'}; "
                f"there are {', '.join(names)}."
            )

    @property
    def chooses_labels(self) -> bool:
        """Whether labels differ from the run's own; else there are only sets."""
        return self.costs is not None or self.thresholds is not None

    def target(self, name: str) -> float | None:
        """The share that may be missed at a boundary with a threshold."""
        return (self.max_missed or {}).get(name)

    def calibrated(
        self, probabilities: Float[np.ndarray, "item rank"]
    ) -> Float[np.ndarray, "item rank"]:
        """The probabilities that the decision is made by."""
        if probabilities.shape[1] != len(self.ranks):
            raise ValueError(
                f"the decision is about {len(self.ranks)} ranks, but there are "
                f"{probabilities.shape[1]} probabilities per image."
            )
        return calibration.apply_temperature(probabilities, self.temperature)

    def apply(
        self, probabilities: Float[np.ndarray, "item rank"]
    ) -> Int[np.ndarray, "item"]:
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
        """Cost of each label (column) for each true rank (row)."""
        if self.costs is None:
            raise ValueError("a decision by thresholds has no costs.")
        names = metrics.boundary_names(self.ranks)
        pairs = [self.costs.get(name, (1.0, 1.0)) for name in names]
        return cost_matrix([pair[0] for pair in pairs], [pair[1] for pair in pairs])

    def apply_sets(
        self, probabilities: Float[np.ndarray, "item rank"]
    ) -> tuple[Int[np.ndarray, "item"], Int[np.ndarray, "item"]]:
        """The lowest and the highest rank of each image's prediction set, from
        probabilities as the run gives them."""
        if self.sets is None:
            raise ValueError("the decision has no prediction sets.")
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
            how = f"above {name} where the probability of that is over {threshold:.4g}"
            target = self.target(name)
            if target is not None:
                kind = "guaranteed" if self.guarantee else "chosen"
                how += f", {kind} to miss at most {100 * target:g}%"
                how += " on average" if self.guarantee else ""
            lines.append(how)
        if self.sets is not None:
            lines.append(self.sets.describe())
        return [*lines, f"probabilities at temperature {self.temperature:.3g}"]

    def to_json(self) -> dict[str, Any]:
        """Plain data that `read` takes back."""
        return typed_json.to_plain(self)

    @classmethod
    def read(cls, path: pathlib.Path, ranks: Sequence[str]) -> "Decision | None":
        """The decision that a file holds; None where there is no such file."""
        if not path.exists():
            return None
        plain = files.read_sealed(path, remedy=_AGAIN)
        try:
            decision = typed_json.from_plain(cls, plain)
            if decision.ranks != tuple(ranks):
                raise ValueError(
                    f"it is about the ranks {', '.join(decision.ranks)}, but the run "
                    f"has {', '.join(ranks)}"
                )
            return decision
        except ValueError as error:
            problem = str(error).rstrip(".")
            raise ValueError(
                f"{path} is no decision for this run: {problem}. {_AGAIN}"
            ) from None


# --- choosing labels ---


def cost_matrix(
    missed: Sequence[float], false_alarm: Sequence[float]
) -> Float[np.ndarray, "rank rank"]:
    """Cost of each label (column) for each true rank (row).

    A label costs the sum over all boundaries between it and the true rank: of `missed`
    where it is too low, of `false_alarm` where it is too high, both by boundary.
    """
    down, up = (np.append(0.0, np.cumsum(costs)) for costs in (missed, false_alarm))
    too_low = np.maximum(down[:, None] - down, 0)
    return too_low + np.maximum(up - up[:, None], 0)


def least_cost(
    probabilities: Float[np.ndarray, "item rank"],
    costs: Float[np.ndarray, "rank rank"],
) -> Int[np.ndarray, "item"]:
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
    probabilities: Float[np.ndarray, "item rank"], thresholds: Mapping[int, float]
) -> Int[np.ndarray, "item"]:
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
        h: calibration.probability_above(probabilities, h) > thresholds[h]
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


def fit_thresholds(
    probabilities: Float[np.ndarray, "item rank"],
    true: Int[np.ndarray, "item"],
    boundaries: Mapping[str, int],
    max_missed: float | Mapping[str, float],
    guarantee: bool = False,
) -> dict[str, float]:
    """The largest threshold at each boundary that misses few enough images.

    Of the images given that are truly above a boundary, at most the share `max_missed`
    is put below. The largest such threshold has the fewest false alarms. It lies
    halfway between two probabilities that occur.

    With `guarantee`, conformal risk control: of n images above, k may be missed only
    if (k + 1) / (n + 1) <= max_missed. An image drawn like these is then missed with
    at most that probability, over the draw of both, whatever the probabilities are
    worth; provided that nothing else was chosen on these images.

    Args:
      probabilities: calibrated ones.
      true: index of the rank of each image.
      boundaries: h by the name that errors use; thresholds are returned by that name.
      max_missed: a share below 1, or one for each boundary; above 0 for a guarantee.
      guarantee: whether chance is allowed for.
    """
    thresholds = {}
    for name, h in boundaries.items():
        share = max_missed[name] if isinstance(max_missed, Mapping) else max_missed
        if not 0 <= share < 1 or (guarantee and not share):
            raise ValueError(
                f"the largest share that may be missed is {share}; give a number "
                f"{'above' if guarantee else 'from'} 0 and below 1, such as 0.05."
            )
        scores = calibration.probability_above(probabilities, h)
        above = np.sort(scores[true > h])
        if not len(above):
            raise ValueError(
                f"no image is truly above {name}, so there is nothing to choose its "
                "threshold by; name another boundary."
            )
        used = missed_shares(len(above), guarantee)
        allowed = int(np.searchsorted(used, share, side="right")) - 1
        if allowed < 0:
            raise ValueError(
                f"to guarantee at most {100 * share:g}% missed at {name} takes at "
                f"least {images_needed(share)} images above it, but there are "
                f"{len(above)}. With these, {math.ceil(1e4 / (len(above) + 1)) / 100:g}"
                "% can be guaranteed; a larger data.calibration_fraction gives more."
            )
        thresholds[name] = just_below(float(above[allowed]), scores)
    return thresholds


def missed_shares(count: int, guarantee: bool) -> Float[np.ndarray, "missed"]:
    """The share that missing 0, 1, … of `count` images above a boundary uses up."""
    extra = 1 if guarantee else 0
    return (np.arange(count) + extra) / (count + extra)


def images_needed(max_missed: float) -> int:
    """The least number of images above a boundary that a guarantee takes."""
    count = max(math.ceil(1 / max_missed) - 2, 0)
    while 1 / (count + 1) > max_missed:
        count += 1
    return count


def just_below(score: float, scores: np.ndarray) -> float:
    """A threshold just under a score: halfway to the next lower one, if any."""
    lower = scores[scores < score]
    if not lower.size and score <= 0:
        return -1.0  # everything is above
    under = float(lower.max()) if lower.size else 0.0
    middle = (under + score) / 2
    # Where no number lies between the two, the lower one does the same.
    return middle if middle < score else under


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


def grade(
    output: predictions.MethodOutput,
    ranks: Sequence[str],
    decision: Decision | None,
) -> Grades:
    """The grades of what a method predicts; a decision, where there is one, chooses."""
    probabilities = predictions.rank_probabilities(output)
    labels = np.asarray(output.label)
    expected = predictions.expected_rank(output, probabilities)
    most_likely = sets = None
    if decision:
        if probabilities is None:
            raise ValueError(
                "the run has a saved decision, but its method gives no probabilities; "
                "take it away with `launch.py decide --run=DIR --remove`."
            )
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
