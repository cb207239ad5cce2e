"""The multi-margin n-pair loss (MMNP) of CLOC.

For an anchor i with positives j (same rank, another sample) and negatives k (another
rank), with s the cosine similarity,

    H_i = sum_j sum_k max(0, margin(y_i, y_k) + s_ik - s_ij)            (paper, Eq. 2)

where margin(a, b) adds the margins of all boundaries between the ranks a and b. This
file needs nothing but JAX and can be copied out and used alone.
"""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

Reduction = Literal["mean", "paper", "official"]
REDUCTIONS = get_args(Reduction)


def mmnp(
    embeddings: Float[Array, "batch dim"],
    labels: Int[Array, "batch"],
    margins: Float[Array, "boundaries"],
    *,
    reduction: Reduction = "mean",
    where: Bool[Array, "batch"] | None = None,
) -> Float[Array, ""]:
    """Multi-margin n-pair loss of a batch, a scalar in at least float32.

    Args:
      embeddings: any scale; only their directions count. A zero vector has
        similarity 0 with everything and gradient 0.
      labels: ranks from 0 to the number of boundaries.
      margins: one positive value for each boundary between neighbouring ranks.
      reduction: what becomes of the hinge sums H_i of the anchors with P_i positives
        and N_i negatives. "mean": sum_i H_i / sum_i P_i N_i, the mean over triplets,
        whose scale does not depend on the batch size. "paper": mean_i H_i.
        "official": mean_i H_i / (P_i N_i^2), as the authors' released code has it.
      where: False for padding, which takes no part as anchor, positive or negative.

    Anchors without positives or without negatives contribute 0, a batch of such
    anchors gives 0 with zero gradients, and a triplet exactly at its margin has the
    subgradient 0.
    """
    _check(embeddings, labels, margins, reduction)
    if where is None:
        where = jnp.ones(labels.shape, bool)
    hinges, positives, negatives = hinge_sums(embeddings, labels, margins, where)
    pairs = positives * negatives
    if reduction == "mean":
        return jnp.sum(hinges) / jnp.maximum(jnp.sum(pairs), 1)
    if reduction == "official":
        hinges = hinges / jnp.maximum(pairs * negatives, 1)
    return jnp.sum(hinges) / jnp.maximum(jnp.sum(where), 1)


def hinge_sums(
    embeddings: Float[Array, "batch dim"],
    labels: Int[Array, "batch"],
    margins: Float[Array, "boundaries"],
    where: Bool[Array, "batch"],
) -> tuple[Float[Array, "batch"], Float[Array, "batch"], Float[Array, "batch"]]:
    """H_i, the number of positives and the number of negatives of every anchor."""
    dtype = jnp.promote_types(embeddings.dtype, jnp.float32)
    similarity = cosine_similarity(embeddings.astype(dtype))
    gaps = jnp.concatenate([jnp.zeros(1, dtype), margins.astype(dtype)])
    position = jnp.cumsum(gaps)[labels]
    shifted = similarity + jnp.abs(position[:, None] - position[None, :])
    both = where[:, None] & where[None, :]
    same = labels[:, None] == labels[None, :]
    positive = same & both & ~jnp.eye(labels.shape[0], dtype=bool)
    negative = ~same & both
    hinges = jax.vmap(_hinge_sum)(similarity, shifted, positive, negative)
    return hinges, positive.sum(1).astype(dtype), negative.sum(1).astype(dtype)


def cosine_similarity(
    embeddings: Float[Array, "batch dim"],
) -> Float[Array, "batch batch"]:
    """Cosine of every pair; 0 (and gradient 0) where a vector is zero."""
    square = jnp.sum(embeddings**2, axis=1, keepdims=True)
    nonzero = square > 0
    # The inner where keeps 1/sqrt(0), and so NaN, out of the gradient too.
    scale = jnp.where(nonzero, jax.lax.rsqrt(jnp.where(nonzero, square, 1)), 0)
    unit = embeddings * scale
    # The default precision is bfloat16 on some accelerators: 3 digits of a cosine.
    return jnp.matmul(unit, unit.T, precision=jax.lax.Precision.HIGHEST)


def _hinge_sum(similarity, shifted, positive, negative):
    """One anchor's H_i, by looking at every (positive, negative) pair."""
    hinge = jax.nn.relu(shifted[None, :] - similarity[:, None])  # [positive, negative]
    return jnp.sum(hinge, where=positive[:, None] & negative[None, :])


def _check(embeddings, labels, margins, reduction):
    if reduction not in REDUCTIONS:
        raise ValueError(
            f"reduction {reduction!r} is unknown; use one of {REDUCTIONS}."
        )
    if embeddings.ndim != 2 or labels.shape != embeddings.shape[:1]:
        raise ValueError(
            f"mmnp got embeddings of shape {embeddings.shape} and labels of shape "
            f"{labels.shape}; it takes [batch, dim] and [batch]. Use jax.vmap for "
            "further axes."
        )
    if margins.ndim != 1 or not margins.size:
        raise ValueError(
            f"mmnp got margins of shape {margins.shape}; it takes one value for each "
            "boundary between neighbouring ranks, so [number of ranks - 1]."
        )
