"""Ranks as intervals of a score, between thresholds."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import masks


def cumulative_link(
    scores: Float[Array, "batch"],
    thresholds: Float[Array, "boundaries"],
    labels: Int[Array, "batch"],
    *,
    where: Bool[Array, "batch"] | None = None,
) -> Float[Array, ""]:
    """Negative log-likelihood of the proportional odds model, in at least float32.

        mean_i -log P(y = y_i),    P(y <= k) = sigmoid(thresholds_k - scores_i)

    (McCullagh, "Regression Models for Ordinal Data", JRSS B 1980.) With a < b the ends
    of a rank's interval, sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 -
    exp(a - b)), whose logarithm is a sum without cancellation at any score.

    Thresholds must increase: a rank between two equal ones has probability 0, and an
    infinite loss. Padding (where False) takes no part.
    """
    last = thresholds.shape[0]
    if not last:
        raise ValueError("cumulative_link got no thresholds; it takes at least one.")
    where, scores, labels = masks.mask_rows(where, scores, labels)
    thresholds = thresholds.astype(jnp.promote_types(thresholds.dtype, jnp.float32))
    upper = thresholds[jnp.minimum(labels, last - 1)]
    lower = thresholds[jnp.maximum(labels - 1, 0)]
    has_upper, has_lower = labels < last, labels > 0
    below = jnp.where(has_upper, jax.nn.log_sigmoid(upper - scores), 0)
    above = jnp.where(has_lower, jax.nn.log_sigmoid(scores - lower), 0)
    within = has_upper & has_lower
    width = jnp.where(within, upper - lower, 1)
    between = jnp.where(within, _log1mexp(width), 0)
    return -masks.mean(below + above + between, where)


def _log1mexp(x):
    """log(1 - exp(-x)), for x > 0."""
    small = x < 0.7  # about log 2
    near = jnp.log(-jnp.expm1(-jnp.where(small, x, 0.5)))
    return jnp.where(small, near, jnp.log1p(-jnp.exp(-jnp.where(small, 1, x))))
