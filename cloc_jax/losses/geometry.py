"""Distances with finite gradients, and geometric order learning (GOL) on them.

Lee et al., "Geometric Order Learning for Rank Estimation", NeurIPS 2022. Learned
reference points in the space of embeddings stand for ranks.
"""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Integer

from . import masks, multi_margin
from .multi_margin import AnyArray, Labels, widened

# Of the cosines in the order term, as in the released code.
_SCALE = 20


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


class GolTerms(NamedTuple):
    """Terms of the loss, which is their sum."""

    order: Float[Array, ""]
    metric: Float[Array, ""]
    center: Float[Array, ""]


def gol_terms(
    embeddings: Float[AnyArray, "batch dim"],
    references: Float[AnyArray, "points dim"],
    labels: Labels,
    base: Integer[AnyArray, "pairs"],
    reference: Integer[AnyArray, "pairs"],
    *,
    num_ranks: int,
    margin: float,
    tau: float | int,
    where: Bool[AnyArray, "pairs"] | None = None,
) -> GolTerms:
    """Order, metric and center term of pairs of a batch, in at least float32.

    With h the embeddings and r the reference points, each over its length, point m at
    the rank m (num_ranks - 1) / (points - 1), d the Euclidean distance, and for a pair
    lo the last point at or below its lower rank, hi the first at or above the other:

    - order: for a pair of different ranks, v is the direction from base to reference.
      If the ranks rise, its cosine with the direction from r_lo to r_hi should be
      larger than that with the direction from r_lo to r_{lo-1} (from r_{lo+1} to r_lo
      if lo is the first point). If they fall, its cosine with the direction from r_hi
      to r_lo should be larger than that with the direction from r_hi to r_{hi+1} (from
      r_{hi-1} to r_hi if hi is the last point). The mean cross-entropy of a softmax of
      20 times the two cosines.
    - metric: a pair whose ranks differ by more than tau costs relu(d(r_m, lower) -
      d(r_m, higher) + margin) for every m <= lo and the reverse for every m >= hi,
      another pair relu(|d(r_m, base) - d(r_m, reference)| - margin) for every m,
      without the margin if tau is 0; their sum over the number of pairs.
    - center: d(h_i, r_m) for every sample i that is in a pair and the point m nearest
      to its rank (each of two that are equally near), the sum over the number of those
      above 0.

    Args:
      base, reference: the samples of each pair, indices into the batch.
      where: False for padding among the *pairs*, which takes no part. A sample that is
        in no other pair takes no part either.

    A term without pairs to look at is 0. Distances of 0 have gradient 0.
    """
    references, labels = widened(references), widened(labels)
    points = references.shape[0]
    if num_ranks < 2 or points < 2:
        raise ValueError(
            f"gol_terms got {num_ranks} ranks and {points} reference points; it takes "
            "at least two of each."
        )
    where, base, reference = masks.mask_rows(where, base, reference)
    used = jnp.zeros(labels.shape, bool)
    used = used.at[base].max(where).at[reference].max(where)
    used, embeddings, labels = masks.mask_rows(used, embeddings, labels)
    unit = multi_margin.unit_vectors(embeddings)
    directions = multi_margin.unit_vectors(references)
    length = euclidean(directions, unit)  # [point, sample]
    # Ranks and points in whole numbers, in which ties are exact. The released code
    # compares floats, and so rounding picks one of two points that are equally near.
    scaled = labels * (points - 1)
    first, second = scaled[base], scaled[reference]
    lo = jnp.minimum(first, second) // (num_ranks - 1)
    hi = -(-jnp.maximum(first, second) // (num_ranks - 1))
    rises = labels[base] < labels[reference]

    step = multi_margin.unit_vectors(unit[reference] - unit[base])
    order = masks.mean(
        _order(step, directions, lo, hi, rises), where & (first != second)
    )

    point = jnp.arange(points, dtype=labels.dtype)[:, None]
    change = length[:, reference] - length[:, base]  # [point, pair]
    slack = 0 if tau == 0 else margin
    alike = jax.nn.relu(jnp.abs(change) - slack)
    side = jnp.where(point <= lo[None, :], 1, jnp.where(point >= hi[None, :], -1, 0))
    towards = jnp.where(rises, 1, -1)[None, :] * side
    apart = jnp.where(side == 0, 0, jax.nn.relu(margin - towards * change))
    is_apart = jnp.abs(labels[base] - labels[reference]) > tau
    metric = masks.mean(
        jnp.sum(jnp.where(is_apart[None, :], apart, alike), axis=0), where
    )

    gaps = jnp.abs(point * (num_ranks - 1) - scaled[None, :])
    nearest = (gaps == jnp.min(gaps, axis=0, keepdims=True)) & used[None, :]
    total = jnp.sum(length, where=nearest)
    center = total / jnp.maximum(jnp.sum(nearest & (length > 0)), 1)
    return GolTerms(order, metric, center)


def _order(step, references, lo, hi, rises):
    """Cross-entropy of every pair; meaningless where the two ranks are equal."""
    across = multi_margin.unit_vectors(references[hi] - references[lo])
    right = jnp.where(rises[:, None], across, -across)
    start = jnp.maximum(lo - 1, 0)
    end = jnp.minimum(hi + 1, references.shape[0] - 1)
    inner, outer = jnp.where(rises, start + 1, end - 1), jnp.where(rises, start, end)
    wrong = multi_margin.unit_vectors(references[outer] - references[inner])
    return jax.nn.softplus(_SCALE * jnp.sum(step * (wrong - right), axis=1))
