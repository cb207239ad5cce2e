"""From what a method says to scores and named values, the same for every method."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from cloc_jax.methods import Prediction
from cloc_jax.scoring import metrics, rank_probabilities


def score(
    prediction: Prediction, labels: np.ndarray, ranks: Sequence[str]
) -> dict[str, Any]:
    """Metrics of a prediction; see `metrics.ordinal_metrics`."""
    return metrics.ordinal_metrics(
        labels,
        prediction.label,
        ranks,
        rank_probabilities.of_prediction(prediction),
        prediction.value,
    )


def named(values: Any, per: str, ranks: Sequence[str]) -> dict[str, float]:
    """A readout's values by the boundaries or ranks they belong to."""
    names = {"boundary": metrics.boundary_names(ranks), "rank": list(ranks)}[per]
    return dict(zip(names, map(float, np.asarray(values)), strict=True))
