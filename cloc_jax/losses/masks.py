"""Padding: rows of a batch that take no part in a loss."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped

from .multi_margin import AnyArray, widened


def mask_rows(
    where: Bool[AnyArray, "batch"] | None, *arrays: Shaped[AnyArray, "batch ..."]
) -> tuple[Array, ...]:
    """The mask (all True for None), then the arrays with zeros where it is False.

    Floats come back in at least float32, labels of any type as signed whole numbers in
    at least int32. Zeros are values that every loss takes, so that neither padding nor
    its gradients can be infinite or NaN; losses still leave it out of their sums.
    """
    arrays = tuple(map(widened, arrays))
    if where is None:
        where = jnp.ones(arrays[0].shape[:1], bool)
    where = jnp.asarray(where, bool)
    masked = []
    for array in arrays:
        rows = where.reshape(where.shape + (1,) * (array.ndim - 1))
        masked.append(jnp.where(rows, array, jnp.zeros_like(array)))
    return where, *masked


def shares(
    where: Bool[Array, "batch"], weights: Float[AnyArray, "batch"] | None
) -> Float[Array, "batch"]:
    """By how much each row counts: its weight, 1 if not given; 0 for padding."""
    if weights is None:
        return where.astype(jnp.float32)
    return jnp.where(where, widened(weights), 0)


def mean(
    values: Float[Array, "batch"],
    where: Bool[Array, "batch"],
    weights: Float[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Weighted mean of the values where the mask is True; 0 where nothing counts."""
    share = shares(where, weights)
    total = jnp.sum(share)
    return jnp.sum(values * share, where=where) / jnp.where(total > 0, total, 1)
