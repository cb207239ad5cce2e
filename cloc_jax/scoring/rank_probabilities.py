"""Probabilities of ranks, whatever kind of head they come from."""

from typing import Any, Protocol, runtime_checkable

import numpy as np
from jaxtyping import Float


@runtime_checkable
class Said(Protocol):
    """What `methods.Prediction` holds, for those who do not import methods."""

    @property
    def label(self) -> Any: ...
    @property
    def value(self) -> Any: ...
    @property
    def above(self) -> Any: ...
    @property
    def probabilities(self) -> Any: ...


def of_prediction(
    prediction: Said,
) -> Float[np.ndarray, "item rank"] | None:
    """Probabilities [item, rank] of a prediction; None where a method gives labels
    only."""
    if prediction.probabilities is not None:
        return np.asarray(prediction.probabilities)
    if prediction.above is not None:
        return from_above(np.asarray(prediction.above))
    return None


def from_above(
    above: Float[np.ndarray, "item boundary"],
) -> Float[np.ndarray, "item rank"]:
    """Probabilities of ranks from P(rank > h), which heads may give out of order.

    P(rank > h) is made to fall along the order by its running minimum, so that no
    rank's probability is negative.
    """
    falling = np.minimum.accumulate(np.clip(above.astype(np.float64), 0, 1), axis=1)
    ends = np.ones((len(above), 1)), np.zeros((len(above), 1))
    bounded = np.concatenate([ends[0], falling, ends[1]], axis=1)
    return bounded[:, :-1] - bounded[:, 1:]


def expected_rank(
    prediction: Said, probabilities: Float[np.ndarray, "item rank"] | None
) -> Float[np.ndarray, " item"]:
    """The rank that a method expects: its own value, else the mean of the ranks."""
    if prediction.value is not None:
        return np.asarray(prediction.value, np.float64)
    if probabilities is None:
        return np.asarray(prediction.label, np.float64)
    return probabilities @ np.arange(probabilities.shape[1])
