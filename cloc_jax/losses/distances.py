"""Distances with finite gradients: the square root's is infinite at 0."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Float


def sqrt(x: Float[Array, "*shape"]) -> Float[Array, "*shape"]:
    """Square root, with gradient 0 at 0."""
    positive = x > 0
    # The inner where keeps 1/sqrt(0), and so NaN, out of the gradient too.
    return jnp.where(positive, jnp.sqrt(jnp.where(positive, x, 1)), 0)


@jax.custom_jvp
def euclidean(
    a: Float[Array, "rows dim"], b: Float[Array, "columns dim"]
) -> Float[Array, "rows columns"]:
    """|a_i - b_j|, with gradient 0 where that is 0.

    Distances come from differences, which XLA sums up without storing them, and not
    from inner products, which cancel for neighbours. Derivatives are matrix products:
    no array is larger than the result or the arguments.
    """
    return _lengths(a, b)


@euclidean.defjvp
def _euclidean_jvp(primals, tangents):
    a, b = primals
    d_a, d_b = tangents
    length = euclidean(a, b)
    middle = jnp.mean(b, axis=0, keepdims=True)  # any will do; this one rounds less
    a, b = a - middle, b - middle
    along = (
        jnp.sum(a * d_a, axis=1)[:, None]
        + jnp.sum(b * d_b, axis=1)[None, :]
        - jnp.matmul(a, d_b.T, precision="highest")
        - jnp.matmul(d_a, b.T, precision="highest")
    )
    apart = length > 0
    return length, along * jnp.where(apart, 1 / jnp.where(apart, length, 1), 0)


@jax.jit  # so that the differences are never stored, whoever calls
def _lengths(a, b):
    return jnp.sqrt(jnp.sum((a[:, None, :] - b[None, :, :]) ** 2, axis=2))
