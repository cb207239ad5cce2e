"""Ranks as binary tasks, one per boundary: is the rank y above boundary k, y > k?"""

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from . import masks


def ordinal_binary(
    logits: Float[Array, "batch boundaries 2"],
    labels: Int[Array, "batch"],
    *,
    weights: Float[Array, "boundaries"] | None = None,
    where: Bool[Array, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of a two-way softmax per boundary, in at least float32 (ORCNN).

        mean_i sum_k weights_k * -log softmax(logits_ik)[y_i > k]

    (Niu et al., "Ordinal Regression with Multiple Output CNN for Age Estimation", CVPR
    2016.) Weights are 1 if not given. Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    losses = _cross_entropies(logits[..., 1] - logits[..., 0], labels)
    if weights is not None:
        losses = losses * weights[None, :]
    return masks.mean(jnp.sum(losses, axis=1), where)


def coral(
    logits: Float[Array, "batch boundaries"],
    labels: Int[Array, "batch"],
    *,
    where: Bool[Array, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of a sigmoid per boundary, in at least float32 (CORAL).

    mean_i sum_k -log P_ik with P_ik = sigmoid(logits_ik) if y_i > k, else 1 minus that
    (Cao et al., "Rank Consistent Ordinal Regression for Neural Networks", Pattern
    Recognition Letters 2020). Consistent probabilities need logits that differ between
    boundaries only by a bias; the loss takes any. Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    return masks.mean(jnp.sum(_cross_entropies(logits, labels), axis=1), where)


def corn(
    logits: Float[Array, "batch boundaries"],
    labels: Int[Array, "batch"],
    *,
    where: Bool[Array, "batch"] | None = None,
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
    losses = jnp.sum(_cross_entropies(logits, labels), where=in_task)
    return losses / jnp.maximum(jnp.sum(in_task), 1)


def above_from_conditionals(
    logits: Float[Array, "batch boundaries"],
) -> Float[Array, "batch boundaries"]:
    """P(y > k), the product of sigmoid(logits_j) for j <= k; never rises with k (CORN).

    In at least float32, and as a sum of logarithms.
    """
    logits = logits.astype(jnp.promote_types(logits.dtype, jnp.float32))
    return jnp.exp(jnp.cumsum(jax.nn.log_sigmoid(logits), axis=1))


def _cross_entropies(logits, labels):
    boundary = jnp.arange(logits.shape[1], dtype=labels.dtype)[None, :]
    above = (labels[:, None] > boundary).astype(logits.dtype)
    return optax.sigmoid_binary_cross_entropy(logits, above)
