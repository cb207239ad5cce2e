"""The counts of the multi-margin loss by a Pallas kernel, meant for GPUs.

Every (positive, negative) pair of every anchor is compared, in registers: O(B^2 P) for
a batch of B and P positives an anchor, but no array larger than [anchor, column] is
ever written. Nothing is sorted, and threads add up their counts only once, at the end.

This has NOT been run on a GPU. It was tested in Pallas' interpret mode only, and it was
lowered to Triton's language for CUDA, but not compiled or timed there; the sizes of its
tiles are guesses. "auto" never chooses it.
"""

import functools

import jax
import jax.numpy as jnp
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton
from jaxtyping import Array, Float, Int

# Powers of two, as Triton wants it. A program has COLUMNS * OTHERS counts and as many
# hinges in registers: 16 and 16 for each of its 128 threads.
COLUMNS = 64
OTHERS = 32
_WARPS = 4


def hinges_and_counts(
    shifted: Float[Array, "anchors batch"],
    start: Int[Array, "anchors"],
    stop: Int[Array, "anchors"],
    own: Int[Array, "anchors"],
    valid: Int[Array, "anchors"],
    interpret: bool | None = None,
) -> tuple[Float[Array, "anchors"], Float[Array, "anchors batch"]]:
    """H_i, and counts: c_ik at negatives, -c_ij at positives, else 0.

    Args:
      shifted: t_ik = margin + similarity, so s_ij at positives.
      start, stop: the columns of the anchor's rank.
      own: the anchor's own column, which is not its positive.
      valid: columns from here on are padding.
      interpret: to emulate the kernel, slowly, with XLA; None to do so where there is
        no GPU.
    """
    if interpret is None:
        # By the platform that the program is for, which need not be the one that
        # traces.
        emulate = functools.partial(hinges_and_counts, interpret=True)
        launch = functools.partial(hinges_and_counts, interpret=False)
        return jax.lax.platform_dependent(
            shifted, start, stop, own, valid, cuda=launch, rocm=launch, default=emulate
        )
    anchors, batch = shifted.shape
    tiles = pl.cdiv(batch, COLUMNS)
    spans = jnp.stack([start, stop, own, valid], axis=1)
    # Inside a shard_map the results vary over the same axes.
    out_shape = functools.partial(
        jax.ShapeDtypeStruct,
        dtype=shifted.dtype,
        manual_axis_type=jax.typeof(shifted).manual_axis_type,
    )
    hinges, counts = pl.pallas_call(
        _kernel,
        grid=(anchors, tiles),
        in_specs=[
            pl.BlockSpec((None, 4), lambda i, tile: (i, 0)),
            pl.BlockSpec((None, batch), lambda i, tile: (i, 0)),
        ],
        out_specs=[
            pl.BlockSpec((None, 1), lambda i, tile: (i, tile)),
            pl.BlockSpec((None, COLUMNS), lambda i, tile: (i, tile)),
        ],
        out_shape=[out_shape((anchors, tiles)), out_shape((anchors, batch))],
        # Also says that it is for Triton: Pallas' other language is for newer GPUs.
        compiler_params=triton.CompilerParams(num_warps=_WARPS),
        interpret=interpret,
    )(spans, shifted)
    return jnp.sum(hinges, axis=1), counts


def _kernel(spans_ref, row_ref, hinges_ref, counts_ref):
    """A tile of columns of one anchor: each meets all columns of the other side.

    Negatives meet the positives, and positives the negatives, so that every pair is
    compared twice. In return each count is the work of one program, without atomics.
    """
    start, stop, own, valid = (spans_ref[n] for n in range(4))
    batch, dtype = row_ref.shape[0], row_ref.dtype
    rank_size = stop - start
    first = pl.program_id(1) * COLUMNS
    last = jnp.minimum(first + COLUMNS, valid)
    column = first + jnp.arange(COLUMNS, dtype=jnp.int32)
    same = (start <= column) & (column < stop)
    positive = (same & (column != own))[:, None]
    negative = (~same & (column < valid))[:, None]
    mine = triton.load(row_ref.at[column], mask=column < batch, other=0)[:, None]
    slot = jnp.arange(OTHERS, dtype=jnp.int32)

    def load(source, mask):
        return triton.load(row_ref.at[source], mask=mask, other=0)[None, :]

    def meet_positives(n, sums):
        counts, hinges = sums
        source = start + n * OTHERS + slot
        is_positive = (source < stop) & (source != own)
        other = load(source, is_positive)
        pair = negative & is_positive[None, :]  # [column, other]
        # Not `other < mine`, which would hide a NaN.
        hinge = jnp.where(pair & ~(mine <= other), mine - other, 0)
        return counts + (pair & (other < mine)).astype(jnp.int32), hinges + hinge

    def meet_negatives(n, counts):
        source = n * OTHERS + slot
        source = jnp.where(source < start, source, source + rank_size)
        is_negative = source < valid
        other = load(source, is_negative)
        pair = positive & is_negative[None, :]
        return counts - (pair & (mine < other)).astype(jnp.int32)

    # The columns lie in the order of ranks: few tiles have both kinds, or padding.
    has_negatives = (first < jnp.minimum(last, start)) | (
        jnp.maximum(first, stop) < last
    )
    has_positives = jnp.maximum(first, start) < jnp.minimum(last, stop)
    zeros = jnp.zeros((COLUMNS, OTHERS), jnp.int32)
    counts, hinges = jax.lax.fori_loop(
        0,
        jnp.where(has_negatives, _tiles(rank_size), 0),
        meet_positives,
        (zeros, zeros.astype(dtype)),
    )
    counts = jax.lax.fori_loop(
        0,
        jnp.where(has_positives, _tiles(valid - rank_size), 0),
        meet_negatives,
        counts,
    )
    counts = jnp.sum(counts, axis=1).astype(dtype)
    triton.store(counts_ref, counts, mask=column < batch)
    hinges_ref[0] = jnp.sum(jnp.sum(hinges, axis=1), axis=0)


def _tiles(size):
    return jax.lax.div(size + (OTHERS - 1), jnp.int32(OTHERS))
