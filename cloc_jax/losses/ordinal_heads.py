"""Losses of heads that know the order of the ranks.

Ranks as answers at boundaries, is the rank y above boundary k, y > k: one binary task
per boundary (`ordinal_binary`, `coral`, `corn`), or one score whose place between
thresholds is the rank (`cumulative_link`). All take optional weights of samples, and
are then weighted means; the binary tasks also take weights of boundaries, by which
their terms are multiplied.
"""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from . import masks
from .multi_margin import AnyArray, Labels, widened


def ordinal_binary(
    logits: Float[AnyArray, "batch boundaries 2"],
    labels: Labels,
    *,
    boundary_weights: Float[AnyArray, "boundaries"] | None = None,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of a two-way softmax per boundary, in at least float32 (ORCNN).

        mean_i sum_k boundary_weights_k * -log softmax(logits_ik)[y_i > k]

    (Niu et al., "Ordinal Regression with Multiple Output CNN for Age Estimation", CVPR
    2016.) Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    differences = logits[..., 1] - logits[..., 0]
    losses = _cross_entropies(differences, labels, boundary_weights)
    return masks.mean(jnp.sum(losses, axis=1), where, weights)


def coral(
    logits: Float[AnyArray, "batch boundaries"],
    labels: Labels,
    *,
    boundary_weights: Float[AnyArray, "boundaries"] | None = None,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of a sigmoid per boundary, in at least float32 (CORAL).

    mean_i sum_k -log P_ik with P_ik = sigmoid(logits_ik) if y_i > k, else 1 minus that
    (Cao et al., "Rank Consistent Ordinal Regression for Neural Networks", Pattern
    Recognition Letters 2020). Consistent probabilities need logits that differ between
    boundaries only by a bias; the loss takes any. Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    losses = _cross_entropies(logits, labels, boundary_weights)
    return masks.mean(jnp.sum(losses, axis=1), where, weights)


def corn(
    logits: Float[AnyArray, "batch boundaries"],
    labels: Labels,
    *,
    boundary_weights: Float[AnyArray, "boundaries"] | None = None,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of conditional tasks, in at least float32 (CORN).

    Task k is y > k among the samples with y > k - 1, and the loss is the mean over the
    pairs of a sample and a task that it is in (Shi et al., "Deep Neural Networks for
    Rank-Consistent Ordinal Regression Based on Conditional Probabilities", Pattern
    Analysis and Applications 2023). A task without samples does not count. Padding
    (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    boundary = jnp.arange(logits.shape[1], dtype=labels.dtype)[None, :]
    in_task = where[:, None] & (labels[:, None] >= boundary)
    losses = _cross_entropies(logits, labels, boundary_weights)
    share = masks.shares(where, weights)[:, None] * in_task
    total = jnp.sum(share)
    return jnp.sum(losses * share) / jnp.where(total > 0, total, 1)


def above_from_conditionals(
    logits: Float[AnyArray, "batch boundaries"],
) -> Float[Array, "batch boundaries"]:
    """P(y > k), the product of sigmoid(logits_j) for j <= k; never rises with k (CORN).

    In at least float32, and as a sum of logarithms.
    """
    return jnp.exp(jnp.cumsum(jax.nn.log_sigmoid(widened(logits)), axis=1))


def cumulative_link(
    scores: Float[AnyArray, "batch"],
    thresholds: Float[AnyArray, "boundaries"],
    labels: Labels,
    *,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Negative log-likelihood of the proportional odds model, in at least float32.

        mean_i -log P(y = y_i),    P(y <= k) = sigmoid(thresholds_k - scores_i)

    (McCullagh, "Regression Models for Ordinal Data", JRSS B 1980.) With a < b the ends
    of a rank's interval, sigmoid(b) - sigmoid(a) = sigmoid(b) sigmoid(-a) (1 -
    exp(a - b)), whose logarithm is a sum without cancellation at any score.

    Thresholds must increase: a rank between two equal ones has probability 0, and an
    infinite loss. Padding (where False) takes no part.
    """
    thresholds = widened(thresholds)
    last = thresholds.shape[0]
    if not last:
        raise ValueError("cumulative_link got no thresholds; it takes at least one.")
    where, scores, labels = masks.mask_rows(where, scores, labels)
    upper = thresholds[jnp.minimum(labels, last - 1)]
    lower = thresholds[jnp.maximum(labels - 1, 0)]
    has_upper, has_lower = labels < last, labels > 0
    below = jnp.where(has_upper, jax.nn.log_sigmoid(upper - scores), 0)
    above = jnp.where(has_lower, jax.nn.log_sigmoid(scores - lower), 0)
    within = has_upper & has_lower
    width = jnp.where(within, upper - lower, 1)
    between = jnp.where(within, _log1mexp(width), 0)
    return -masks.mean(below + above + between, where, weights)


def _cross_entropies(logits, labels, boundary_weights):
    boundary = jnp.arange(logits.shape[1], dtype=labels.dtype)[None, :]
    above = (labels[:, None] > boundary).astype(logits.dtype)
    losses = optax.sigmoid_binary_cross_entropy(logits, above)
    if boundary_weights is None:
        return losses
    return losses * widened(boundary_weights)[None, :]


def _log1mexp(x):
    """log(1 - exp(-x)), for x > 0."""
    small = x < 0.7  # about log 2
    near = jnp.log(-jnp.expm1(-jnp.where(small, x, 0.5)))
    return jnp.where(small, near, jnp.log1p(-jnp.exp(-jnp.where(small, 1, x))))
