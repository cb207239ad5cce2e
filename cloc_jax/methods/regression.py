"""Probabilities for methods that predict one number: a logistic around it."""

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cloc_jax.methods.interface import Prediction, Support

NARROWEST, WIDEST = 1e-2, 1e2  # scales that are looked at, in ranks


def fit_scale(values: np.ndarray, labels: np.ndarray, num_ranks: int) -> Support:
    """The scale of the logistic with the greatest likelihood of validation labels."""
    from scipy import optimize, special  # late: they take half a second

    low = np.where(labels == 0, -np.inf, labels - 0.5)
    high = np.where(labels == num_ranks - 1, np.inf, labels + 0.5)

    def cost(log_scale: float) -> float:
        scale = np.exp(log_scale)
        ends = [special.expit((end - values) / scale) for end in (low, high)]
        return float(-np.log(np.maximum(ends[1] - ends[0], 1e-12)).mean())

    bounds = (np.log(NARROWEST), np.log(WIDEST))
    found = optimize.minimize_scalar(cost, bounds=bounds, method="bounded")
    return {"scale": np.asarray(np.exp(found.x), np.float32)}


def predict_value(
    value: Float[Array, " batch"], scale: Float[Array, ""], num_ranks: int
) -> Prediction:
    """The value, the rank nearest to it, and a logistic's chances around it."""
    nearest = jnp.clip(jnp.round(value), 0, num_ranks - 1).astype(jnp.int32)
    boundaries = jnp.arange(num_ranks - 1, dtype=value.dtype) + 0.5
    above = jax.nn.sigmoid((value[:, None] - boundaries[None, :]) / scale)
    return Prediction(nearest, value=value, above=above)
