"""Where a batch misses its margins: counts for reports, without gradients."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import multi_margin


class Violations(NamedTuple):
    """Active triplets (those with a hinge above 0) of a batch.

    Counts are floats, since those of a large batch do not fit 32 bit integers.
    """

    hinges: Float[Array, "batch"]  # H_i
    active: Float[Array, "batch"]  # active triplets of every anchor
    by_ranks: Float[Array, "ranks ranks"]  # and [rank of anchor, rank of negative]
    by_boundary: Float[Array, "boundaries"]  # those whose margin includes a boundary
    share: Float[Array, "boundaries"]  # of all triplets whose margin includes it


def violations(
    embeddings: Float[Array, "batch dim"],
    labels: Int[Array, "batch"],
    margins: Float[Array, "boundaries"],
    where: Bool[Array, "batch"] | None = None,
) -> Violations:
    """How many triplets miss their margins, by anchor, by ranks and by boundary.

    Padding (where False) takes no part; a boundary without triplets has the share 0.
    """
    if where is None:
        where = jnp.ones(labels.shape, bool)
    hinges = multi_margin.hinge_sums(embeddings, labels, margins, where).hinges
    active = multi_margin.active_triplets(embeddings, labels, margins, where)
    ranks = margins.shape[0] + 1
    is_rank = jax.nn.one_hot(labels, ranks, dtype=active.dtype)  # [batch, ranks]
    by_ranks = jnp.einsum("ir,ik,kq->rq", is_rank, active, is_rank, precision="highest")
    sizes = jnp.sum(is_rank, axis=0, where=where[:, None])
    triplets = (sizes * (sizes - 1))[:, None] * sizes[None, :]

    rank = jnp.arange(ranks)
    low = jnp.minimum(rank[:, None], rank[None, :])[None]
    high = jnp.maximum(rank[:, None], rank[None, :])[None]
    boundary = rank[:-1, None, None]
    includes = (low <= boundary) & (boundary < high)  # [boundary, rank, rank]
    by_boundary = jnp.sum(by_ranks[None], axis=(1, 2), where=includes)
    possible = jnp.sum(triplets[None], axis=(1, 2), where=includes)
    share = by_boundary / jnp.maximum(possible, 1)
    return Violations(
        jax.lax.stop_gradient(hinges), active.sum(1), by_ranks, by_boundary, share
    )
