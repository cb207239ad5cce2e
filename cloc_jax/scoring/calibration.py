"""Probabilities that mean what they say: a temperature, and how far they hold.

A temperature T turns probabilities p into p**(1 / T), made to sum to 1: what dividing
the logits by T does. It changes how sure a run is, never which rank is most probable.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from cloc_jax.scoring import intervals, metrics
from cloc_jax.scoring.intervals import Interval

COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are looked at
BINS = 10


def fit_temperature(
    probabilities: Float[np.ndarray, "item rank"], true: Int[np.ndarray, "item"]
) -> float:
    """The temperature with the least mean of -log p(true rank).

    That mean is convex in 1 / T, so one root of its slope is found: the same data
    always give the same number. It stays within COLDEST and HOTTEST, where perfect
    predictions would ask for 0 and useless ones for infinity; it is 1 where no
    temperature matters. Probabilities below 1e-38 count as that.
    """
    from scipy import optimize, special  # late: they take half a second

    logs = metrics.log_probabilities(_checked(probabilities, true))
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
    probabilities: Float[np.ndarray, "item rank"], temperature: float
) -> Float[np.ndarray, "item rank"]:
    """p**(1 / T), made to sum to 1, in float64."""
    logs = metrics.log_probabilities(probabilities) / temperature
    powers = np.exp(logs - logs.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)


def probability_above(
    probabilities: Float[np.ndarray, "item rank"], h: int
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


def reliability(
    probabilities: Float[np.ndarray, "item rank"],
    true: Int[np.ndarray, "item"],
    bins: int = BINS,
) -> list[Bin]:
    """How often the most probable rank is right, by how probable it is.

    Bins have the same number of images, give or take one, from the least probable up;
    fewer bins where there are fewer images.
    """
    checked = _checked(probabilities, true)
    return _bins(checked.max(1), checked.argmax(1) == true, bins)


def reliability_above(
    probabilities: Float[np.ndarray, "item rank"],
    true: Int[np.ndarray, "item"],
    h: int,
    bins: int = BINS,
) -> list[Bin]:
    """How often an image lies above the boundary between ranks h and h + 1, by the
    probability of that; bins as in `reliability`."""
    checked = _checked(probabilities, true)
    return _bins(probability_above(checked, h), true > h, bins)


def _bins(predicted: np.ndarray, came_true: np.ndarray, bins: int) -> list[Bin]:
    order = np.argsort(predicted, kind="stable")
    found = []
    for part in np.array_split(order, min(bins, len(order))):
        right = int(came_true[part].sum())
        found.append(
            Bin(
                float(predicted[part].mean()),
                right / len(part),
                intervals.binomial(right, len(part)),
                len(part),
            )
        )
    return found


def _checked(probabilities: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The probabilities as float64, or ValueError."""
    return metrics.checked_probabilities(probabilities, true, probabilities.shape[1])
