"""Padding: rows of a batch that take no part in a loss."""

import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Shaped


def mask_rows(
    where: Bool[Array, "batch"] | None, *arrays: Shaped[Array, "batch ..."]
) -> tuple[Array, ...]:
    """The mask (all True for None), then the arrays with zeros where it is False.

    Floats come back in at least float32. Zeros are values that every loss takes, so
    that neither padding nor its gradients can be infinite or NaN; the losses still have
    to leave padding out of their sums.
    """
    if where is None:
        where = jnp.ones(arrays[0].shape[:1], bool)
    masked = []
    for array in arrays:
        if jnp.issubdtype(array.dtype, jnp.floating):
            array = array.astype(jnp.promote_types(array.dtype, jnp.float32))
        rows = where.reshape(where.shape + (1,) * (array.ndim - 1))
        masked.append(jnp.where(rows, array, jnp.zeros_like(array)))
    return where, *masked


def mean(
    values: Float[Array, "batch"], where: Bool[Array, "batch"]
) -> Float[Array, ""]:
    """Mean of the values where the mask is True; 0 where there are none."""
    return jnp.sum(values, where=where) / jnp.maximum(jnp.sum(where), 1)
