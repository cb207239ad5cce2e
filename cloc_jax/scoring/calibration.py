"""Probabilities that mean what they say: a temperature, and how far they hold.

A temperature T turns probabilities p into p**(1 / T), made to sum to 1: what dividing
the logits by T does. It changes how sure a run is, never which rank is most probable.
"""

from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from cloc_jax.scoring import intervals
from cloc_jax.scoring.intervals import Interval

COLDEST, HOTTEST = 0.05, 20.0  # temperatures that are looked at
BINS = 10
# A float32 softmax can end at 0, whose logarithm is none.
_LEAST = float(np.finfo(np.float32).tiny)
_HALVINGS = 60


def fit_temperature(
    probabilities: Float[np.ndarray, "item rank"], true: Int[np.ndarray, "item"]
) -> float:
    """The temperature with the least mean of -log p(true rank).

    That mean is convex in 1 / T, so its slope is halved down to 0: the same data
    always give the same number. It stays within COLDEST and HOTTEST, where perfect
    predictions would ask for 0 and useless ones for infinity; it is 1 where no
    temperature matters. Probabilities below 1e-38 count as that.
    """
    logs = _logs(_checked(probabilities, true))
    chosen = logs[np.arange(len(true)), true]

    def slope(temperature: float) -> float:
        """By 1 / T; falls as T grows."""
        at = _softmax(logs / temperature)
        return float(np.mean((at * logs).sum(1) - chosen))

    if not np.ptp(logs, axis=1).any():
        return 1.0
    if slope(HOTTEST) >= 0:
        return HOTTEST
    if slope(COLDEST) <= 0:
        return COLDEST
    low, high = np.log(COLDEST), np.log(HOTTEST)
    for _ in range(_HALVINGS):
        middle = (low + high) / 2
        if slope(float(np.exp(middle))) > 0:
            low = middle
        else:
            high = middle
    return float(np.exp((low + high) / 2))


def apply_temperature(
    probabilities: Float[np.ndarray, "item rank"], temperature: float
) -> Float[np.ndarray, "item rank"]:
    """p**(1 / T), made to sum to 1, in float64."""
    if not 0 < temperature < np.inf:
        raise ValueError(f"the temperature is {temperature}; wanted one above 0.")
    return _softmax(_logs(probabilities) / temperature)


def negative_log_likelihood(
    probabilities: Float[np.ndarray, "item rank"], true: Int[np.ndarray, "item"]
) -> float:
    """Mean of -log p(true rank), what `fit_temperature` makes least."""
    logs = _logs(_checked(probabilities, true))
    return float(-logs[np.arange(len(true)), true].mean())


def probability_above(
    probabilities: Float[np.ndarray, "item rank"], h: int
) -> Float[np.ndarray, "item"]:
    """P(rank > h), summed from above, so that small ones stay exact."""
    if not 0 <= h < probabilities.shape[1] - 1:
        raise ValueError(
            f"there is no boundary {h} between {probabilities.shape[1]} ranks; they "
            f"count from 0 to {probabilities.shape[1] - 2}."
        )
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


def expected_calibration_error(
    probabilities: Float[np.ndarray, "item rank"],
    true: Int[np.ndarray, "item"],
    bins: int = BINS,
) -> float:
    """Mean distance of predicted and observed over the bins of `reliability`."""
    found = reliability(probabilities, true, bins)
    off = sum(abs(b.predicted - b.observed) * b.images for b in found)
    return off / len(true)


def _bins(predicted: np.ndarray, came_true: np.ndarray, bins: int) -> list[Bin]:
    if bins < 1:
        raise ValueError(f"bins is {bins}; use 1 or more.")
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


# --- small parts ---


def _checked(probabilities: np.ndarray, true: np.ndarray) -> np.ndarray:
    """The probabilities as float64, or ValueError."""
    p = np.asarray(probabilities, np.float64)
    if not len(p) or len(p) != len(true):
        raise ValueError(
            f"there are probabilities of {len(p)} images and ranks of {len(true)}; "
            "wanted the same number, and at least one."
        )
    if true.min() < 0 or true.max() >= p.shape[1]:
        raise ValueError(
            f"true ranks go from {true.min()} to {true.max()}; with {p.shape[1]} "
            f"probabilities an image they must lie in 0 .. {p.shape[1] - 1}."
        )
    sums = p.sum(1)
    if not (np.all(p >= 0) and np.allclose(sums, 1, atol=1e-2)):
        raise ValueError(
            "probabilities must be at least 0 and sum to 1 for every image; got "
            f"{p.min():.4g} to {p.max():.4g} and sums from {sums.min():.4g} to "
            f"{sums.max():.4g}. Are they logits?"
        )
    return p


def _logs(probabilities: np.ndarray) -> np.ndarray:
    return np.log(np.maximum(np.asarray(probabilities, np.float64), _LEAST))


def _softmax(logits: np.ndarray) -> np.ndarray:
    powers = np.exp(logits - logits.max(1, keepdims=True))
    return powers / powers.sum(1, keepdims=True)
