"""Predictions from what is fitted to embeddings after training: nearest neighbours in
those of the training data, and the width of a logistic around a predicted number."""

from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float

from cloc_jax.methods.interface import Labelled, Prediction, Support

NARROWEST, WIDEST = 1e-2, 1e2  # scales of a logistic that are looked at, in ranks


def fit_neighbours(
    train: Labelled, val: Labelled, candidates: Sequence[int]
) -> Support:
    """The bank of training embeddings, and the k with the least validation MAE."""
    most = min(max(candidates), len(train.labels))
    bank = np.asarray(train.embeddings, np.float32)
    labels = np.asarray(train.labels, np.int32)
    nearest = neighbour_labels(jnp.asarray(val.embeddings), bank, labels, most)
    running = np.cumsum(np.asarray(nearest), axis=1)  # [item, k]
    tried = sorted({min(k, most) for k in candidates})
    errors = [
        np.abs(np.round(running[:, k - 1] / k) - val.labels).mean() for k in tried
    ]
    return {
        "bank": bank,
        "labels": labels,
        "k": np.asarray(tried[int(np.argmin(errors))], np.int32),
    }


def predict_by_neighbours(
    embeddings: Float[Array, "batch dim"],
    support: Any,
    *,
    most: int,
    num_ranks: int,
) -> Prediction:
    """The mean label of the k nearest, half to even, and their share above boundaries.

    `most` is the largest k that `fit_neighbours` may have chosen.
    """
    most = min(most, support["bank"].shape[0])
    labels = neighbour_labels(embeddings, support["bank"], support["labels"], most)
    counts = (jnp.arange(most) < support["k"])[None, :]
    k = support["k"].astype(embeddings.dtype)
    boundaries = jnp.arange(num_ranks - 1)[None, None, :]
    is_above = (labels[:, :, None] > boundaries) & counts[:, :, None]
    # NaN has no neighbours, and is to be seen.
    is_known = jnp.all(jnp.isfinite(embeddings), axis=1, keepdims=True)
    above = jnp.where(is_known, is_above.sum(1) / k, jnp.nan)
    mean = jnp.sum(labels, axis=1, where=counts) / k
    return Prediction(jnp.round(mean).astype(jnp.int32), above=above)


def neighbour_labels(
    embeddings: Float[Array, "batch dim"], bank: Any, labels: Any, count: int
) -> Array:
    """Labels [batch, count] of the nearest in the bank, the nearest first."""
    bank = jnp.asarray(bank)
    # |a - b|^2 without |a|^2, which does not change the order.
    cross = jnp.matmul(embeddings.astype(bank.dtype), bank.T, precision="highest")
    closeness = 2 * cross - jnp.sum(bank**2, axis=1)[None, :]
    return jnp.asarray(labels)[jax.lax.top_k(closeness, count)[1]]


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
    fitted = optimize.minimize_scalar(cost, bounds=bounds, method="bounded")
    return {"scale": np.asarray(np.exp(fitted.x), np.float32)}


def predict_value(
    value: Float[Array, " batch"], scale: Float[Array, ""], num_ranks: int
) -> Prediction:
    """The value, the rank nearest to it, and a logistic's chances around it."""
    nearest = jnp.clip(jnp.round(value), 0, num_ranks - 1).astype(jnp.int32)
    boundaries = jnp.arange(num_ranks - 1, dtype=value.dtype) + 0.5
    above = jax.nn.sigmoid((value[:, None] - boundaries[None, :]) / scale)
    return Prediction(nearest, value=value, above=above)
