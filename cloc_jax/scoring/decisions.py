"""Labels by what a mistake costs, in place of the most probable rank.

A boundary h lies between ranks h and h + 1. An image is *missed* there if it is truly
above and put below, however far; the other way round it is a *false alarm*. Everything
here starts from probabilities, so it works for any method and any trained run, and
nothing here sees an image.
"""

import dataclasses
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

from cloc_jax.runtime import checked_files
from cloc_jax.scoring import calibration, intervals, metrics
from cloc_jax.scoring.predictions import Predictions

_AGAIN = "make it again with `launch.py decide`, or move decision.json away"


@dataclasses.dataclass(frozen=True)
class Decision:
    """How labels are chosen from probabilities: by costs, or by thresholds.

    Probabilities are first brought to the temperature. With `costs`, the label with
    the least expected cost wins (see `least_cost`). With `thresholds`, an image goes
    above a boundary where the probability of that is above its threshold, and is the
    most probable of the ranks this leaves (see `by_thresholds`).
    """

    ranks: tuple[str, ...]
    temperature: float = 1.0
    costs: Mapping[str, tuple[float, float]] | None = None  # missed, false alarm
    thresholds: Mapping[str, float] | None = None
    # What the thresholds were fitted for; they do not change labels.
    max_missed: float | None = None
    guarantee: bool = False

    def __post_init__(self) -> None:
        names = metrics.boundary_names(self.ranks)
        if not 0 < self.temperature < math.inf:
            raise ValueError(f"the temperature is {self.temperature}; use above 0.")
        if (self.costs is None) == (self.thresholds is None):
            raise ValueError("a decision has either costs or thresholds.")
        given = self.thresholds if self.costs is None else self.costs
        assert given is not None
        unknown = [name for name in given if name not in names]
        if unknown or not given:
            raise ValueError(
                f"the decision is about the boundaries {', '.join(given) or '(none)'}; "
                f"there are {', '.join(names)}."
            )
        for name, pair in (self.costs or {}).items():
            if len(pair) != 2 or not all(0 < cost < math.inf for cost in pair):
                raise ValueError(
                    f"the costs at {name} are {tuple(pair)}; wanted two numbers above "
                    "0, of a missed image and of a false alarm."
                )
        for name, threshold in (self.thresholds or {}).items():
            if not -1 <= threshold <= 1:
                raise ValueError(
                    f"the threshold at {name} is {threshold}; wanted a probability."
                )
        if self.max_missed is not None and not 0 <= self.max_missed < 1:
            raise ValueError(f"max_missed is {self.max_missed}; wanted a share.")

    def calibrated(
        self, probabilities: Float[np.ndarray, "item rank"]
    ) -> Float[np.ndarray, "item rank"]:
        """The probabilities that the decision is made by."""
        if probabilities.shape[1] != len(self.ranks):
            raise ValueError(
                f"the decision is about {len(self.ranks)} ranks, but there are "
                f"{probabilities.shape[1]} probabilities an image."
            )
        return calibration.apply_temperature(probabilities, self.temperature)

    def apply(
        self, probabilities: Float[np.ndarray, "item rank"]
    ) -> Int[np.ndarray, "item"]:
        """The label of each image, from probabilities as the run gives them."""
        p = self.calibrated(probabilities)
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
            if self.max_missed is not None:
                kind = "guaranteed" if self.guarantee else "chosen"
                how += f", {kind} to miss at most {100 * self.max_missed:g}%"
                how += " on average" if self.guarantee else ""
            lines.append(how)
        return [*lines, f"probabilities at temperature {self.temperature:.3g}"]

    def to_json(self) -> dict[str, Any]:
        """Plain data that `from_json` reads."""
        fields: dict[str, Any] = {
            "ranks": list(self.ranks),
            "temperature": self.temperature,
        }
        if self.costs is not None:
            fields["costs"] = {
                name: {"missed": missed, "false_alarm": alarm}
                for name, (missed, alarm) in self.costs.items()
            }
        else:
            fields["thresholds"] = dict(self.thresholds or {})
            fields["max_missed"] = self.max_missed
            fields["guarantee"] = self.guarantee
        return fields

    @classmethod
    def from_json(cls, text: str, ranks: Sequence[str]) -> "Decision":
        """The decision that a text holds, for a run with these ranks.

        Raises:
            ValueError: It is no decision, or one about other ranks.
        """
        try:
            fields = checked_files.opened(text)
            kind = "costs" if "costs" in fields else "thresholds"
            wanted = {"ranks", "temperature", kind}
            wanted |= {"max_missed", "guarantee"} if kind == "thresholds" else set()
            odd = sorted(wanted ^ set(fields))
            if odd:
                raise ValueError(
                    f"wanted the fields {', '.join(sorted(wanted))}, and there is "
                    f"something about {', '.join(odd)}"
                )
            fields["ranks"] = tuple(_text(rank) for rank in fields["ranks"])
            fields["temperature"] = _number(fields["temperature"])
            if kind == "costs":
                fields["costs"] = {k: _pair(v) for k, v in fields["costs"].items()}
            else:
                found = fields["thresholds"].items()
                fields["thresholds"] = {k: _number(v) for k, v in found}
                if fields["max_missed"] is not None:
                    fields["max_missed"] = _number(fields["max_missed"])
                if not isinstance(fields["guarantee"], bool):
                    raise ValueError("guarantee must be true or false")
            decision = cls(**fields)
        except (ValueError, TypeError, AttributeError, KeyError) as error:
            problem = str(error).rstrip(".")
            raise ValueError(
                f"the saved decision cannot be read: {problem}; {_AGAIN}."
            ) from None
        if decision.ranks != tuple(ranks):
            raise ValueError(
                f"the saved decision is about the ranks {', '.join(decision.ranks)}, "
                f"but the run has {', '.join(ranks)}; {_AGAIN}."
            )
        return decision


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
    return np.argmin(probabilities @ costs, axis=1)


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
    max_missed: float,
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
      max_missed: a share below 1; above 0 for a guarantee.
      guarantee: whether chance is allowed for.
    """
    if not 0 <= max_missed < 1 or (guarantee and not max_missed):
        raise ValueError(
            f"the largest share that may be missed is {max_missed}; give a number "
            f"{'above' if guarantee else 'from'} 0 and below 1, such as 0.05."
        )
    found = {}
    for name, h in boundaries.items():
        scores = calibration.probability_above(probabilities, h)
        above = np.sort(scores[true > h])
        if not len(above):
            raise ValueError(
                f"no image is truly above {name}, so there is nothing to choose its "
                "threshold by; name another boundary."
            )
        allowed = _allowed(len(above), max_missed, guarantee)
        if allowed < 0:
            raise ValueError(
                f"to guarantee at most {100 * max_missed:g}% missed at {name} takes at "
                f"least {images_needed(max_missed)} images above it, but there are "
                f"{len(above)}. With these, {math.ceil(1e4 / (len(above) + 1)) / 100:g}"
                "% can be guaranteed; a larger data.calibration_fraction gives more."
            )
        found[name] = _below(float(above[allowed]), scores)
    return found


def images_needed(max_missed: float) -> int:
    """The least number of images above a boundary that a guarantee takes."""
    count = max(math.ceil(1 / max_missed) - 2, 0)
    while 1 / (count + 1) > max_missed:
        count += 1
    return count


def _allowed(count: int, max_missed: float, guarantee: bool) -> int:
    """How many of so many images may be missed; -1 if the guarantee is out of reach."""
    extra = 1 if guarantee else 0
    allowed = int(max_missed * (count + extra)) + 1 - extra
    # The division is what a reader of the rates would compute; the product may round.
    while (allowed + extra) / (count + extra) > max_missed:
        allowed -= 1
    return allowed


def _below(score: float, scores: np.ndarray) -> float:
    """A threshold just under a score: halfway to the next lower one, if any."""
    lower = scores[scores < score]
    if not lower.size and score <= 0:
        return -1.0  # everything is above
    under = float(lower.max()) if lower.size else 0.0
    middle = (under + score) / 2
    # Where no number lies between the two, the lower one does the same.
    return middle if middle < score else under


# --- what it would cost ---

Row = dict[str, float | None]


def trade_off(
    val: Predictions, test: Predictions, h: int, targets: Sequence[float]
) -> list[Row]:
    """What each share missed at a boundary, asked for on validation, costs on test.

    Temperature and thresholds come from `val` alone.

    Returns:
      A row a target: `target`, `threshold`, `temperature`, `accuracy`, `mae`, `qwk`,
      `crossing_missed_rate` and `crossing_false_alarm_rate` of `test`, and the same
      five of `val` as `val_…`; None where a number is not defined.
    """
    temperature, on_val, on_test = _calibrated(val, test)
    rows = []
    for target in targets:
        fitted = fit_thresholds(on_val, val.true, {"the boundary": h}, target)
        row: Row = {"target": float(target)}
        threshold = fitted["the boundary"]
        rows.append(row | _row(temperature, threshold, h, val, on_val, test, on_test))
    return rows


def at_accuracy(
    val: Predictions, test: Predictions, h: int, accuracy: float
) -> Row | None:
    """The fewest images missed at a boundary while validation accuracy is kept.

    Looks at all thresholds, and at none: the most probable rank. Of those with which
    `val` has at least the given accuracy, the one that misses least there is taken; of
    several such the one with the best accuracy, then the largest threshold. Nothing,
    None, where no choice has it.

    Returns:
      A row as in `trade_off`, whose `target` is the accuracy; its `threshold` is None
      where the most probable rank is the best choice.
    """
    temperature, on_val, on_test = _calibrated(val, test)
    labels = on_val.argmax(1)
    right = int((labels == val.true).sum())
    plain = int(((val.true > h) & (labels <= h)).sum()), -right
    choices: list[tuple[tuple[int, int], float | None]] = []
    if right / len(labels) >= accuracy:
        choices.append((plain, None))
    if (best := _keeping(on_val, val.true, h, accuracy)) is not None:
        choices.append(best)
    if not choices:
        return None
    _, threshold = min(choices, key=lambda choice: choice[0])
    row: Row = {"target": float(accuracy)}
    return row | _row(temperature, threshold, h, val, on_val, test, on_test)


def _keeping(
    probabilities: np.ndarray, true: np.ndarray, h: int, accuracy: float
) -> tuple[tuple[int, int], float] | None:
    """The best threshold of `at_accuracy`, behind how many it misses and how many are
    right, as a negative number."""
    scores = calibration.probability_above(probabilities, h)
    order = np.argsort(scores, kind="stable")
    ordered, sorted_true = scores[order], true[order]
    if_below = probabilities[order, : h + 1].argmax(1) == sorted_true
    if_above = probabilities[order, h + 1 :].argmax(1) + h + 1 == sorted_true
    # Entry i: the i images with the lowest scores go below, all others above.
    right = np.append(0, np.cumsum(if_below)) + if_above.sum()
    right = right - np.append(0, np.cumsum(if_above))
    missed = np.append(0, np.cumsum(sorted_true > h))
    last = len(ordered)
    splits_ties = np.append(False, ordered[1:] == ordered[:-1])
    possible = np.append(~splits_ties, True) & (right / last >= accuracy)
    if not possible.any():
        return None
    # Least missed, then most right, then the most put below.
    best = min(np.flatnonzero(possible), key=lambda i: (missed[i], -right[i], -i))
    threshold = 1.0 if best == last else _below(float(ordered[best]), scores)
    return (int(missed[best]), -int(right[best])), threshold


def _calibrated(
    val: Predictions, test: Predictions
) -> tuple[float, np.ndarray, np.ndarray]:
    if val.probabilities is None or test.probabilities is None:
        raise ValueError(
            "there are no probabilities, and without them nothing can be decided; the "
            "method gives labels only."
        )
    temperature = calibration.fit_temperature(val.probabilities, val.true)
    return (
        temperature,
        calibration.apply_temperature(val.probabilities, temperature),
        calibration.apply_temperature(test.probabilities, temperature),
    )


def _row(
    temperature: float,
    threshold: float | None,
    h: int,
    val: Predictions,
    on_val: np.ndarray,
    test: Predictions,
    on_test: np.ndarray,
) -> Row:
    row: Row = {"threshold": threshold, "temperature": temperature}
    for prefix, true, p in (("", test.true, on_test), ("val_", val.true, on_val)):
        labels = by_thresholds(p, {} if threshold is None else {h: threshold})
        counts = metrics.confusion_matrix(true, labels, p.shape[1])[None]
        scores = intervals.scores(counts) | metrics.boundary_rates(counts, h)
        for name in (
            "accuracy",
            "mae",
            "qwk",
            "crossing_missed_rate",
            "crossing_false_alarm_rate",
        ):
            value = float(scores[name][0])
            row[prefix + name] = value if math.isfinite(value) else None
    return row


# --- reading ---


def _text(value: Any) -> str:
    if not isinstance(value, str):
        raise ValueError(f"the rank {value!r} is no name")
    return value


def _number(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float):
        raise ValueError(f"{value!r} is no number")
    return float(value)


def _pair(value: Any) -> tuple[float, float]:
    if set(value) != {"missed", "false_alarm"}:
        raise ValueError(f"the costs {value!r} are not of missed and false_alarm")
    return _number(value["missed"]), _number(value["false_alarm"])
