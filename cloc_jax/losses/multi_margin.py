"""The multi-margin n-pair loss (MMNP) of CLOC.

For an anchor i with positives j (same rank, another sample) and negatives k (another
rank), with s the cosine similarity,

    H_i = sum_j sum_k max(0, margin(y_i, y_k) + s_ik - s_ij)            (paper, Eq. 2)

where margin(a, b) adds the margins of all boundaries between the ranks a and b.

H_i is piecewise linear. With t_ik = margin(y_i, y_k) + s_ik and

    c_ik = #{positives j: s_ij < t_ik},      c_ij = #{negatives k: s_ij < t_ik},

H_i = sum_k c_ik t_ik - sum_j c_ij s_ij, and the counts are also its gradients. The
"sorted" algorithm finds them in O(B^2 log B) for a batch of B, instead of looking at
all O(B^3) triplets as the "dense" one does; both are exact. This file needs nothing but
JAX (and NumPy and jaxtyping, for its signatures) and can be copied out and used alone.
"""

import functools
from collections.abc import Callable
from typing import Literal, NamedTuple, get_args

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Float, Int, Integer

AnyArray = Array | np.ndarray
# Ranks of a batch: whole numbers of any type, or booleans for two ranks.
Labels = Integer[AnyArray, "batch"] | Bool[AnyArray, "batch"]
Reduction = Literal["mean", "paper", "official"]
REDUCTIONS = get_args(Reduction)
Algorithm = Literal["auto", "dense", "sorted", "blockwise"]
ALGORITHMS = get_args(Algorithm)

# Largest batch for which "dense" is the faster one, value and gradient. CPU: measured
# on 2 cores of an AMD EPYC with AVX2, 128 dimensions, 5 ranks. GPU: calculated, not
# measured (docs/speed.md): "dense" writes a byte per triplet and reads it twice,
# "sorted" starts 50 kernels one after another; on an H100 they meet near 512.
DENSE_UP_TO = {"cpu": 32, "gpu": 512}

# Similarities [anchor, column] looked at together: on a CPU arrays of 1 MB in float32,
# to stay in a cache, on a GPU of 16 MB, to keep it busy. And the fewest anchors, for
# large batches.
_CPU_BLOCK = 2**18
_BLOCK = 2**22
_FEWEST = 64
# More of them, 1 GiB in float32, are too many: "sorted" has about five such arrays.
_MOST_HELD = 2**28

# Fewest slots for sorting; a multiple of the splitters.
_SMALLEST = 64
_SPLITTERS = 16

_matmul = functools.partial(
    # The default precision is bfloat16 on some accelerators: 3 digits of a cosine.
    jnp.matmul,
    precision=jax.lax.Precision.HIGHEST,
)


class HingeSums(NamedTuple):
    """H_i, the number of positives and the number of negatives of every anchor."""

    hinges: Float[Array, "anchors"]
    positives: Float[Array, "anchors"]
    negatives: Float[Array, "anchors"]


def mmnp(
    embeddings: Float[AnyArray, "batch dim"],
    labels: Labels,
    margins: Float[AnyArray, "boundaries"],
    *,
    reduction: Reduction = "mean",
    where: Bool[AnyArray, "batch"] | None = None,
    algorithm: Algorithm = "auto",
    axis_name: str | tuple[str, ...] | None = None,
) -> Float[Array, ""]:
    """Multi-margin n-pair loss of a batch, a scalar in at least float32.

    Args:
      embeddings: any scale; only their directions count. A vector of zeros (or of
        numbers below the smallest normal float) has similarity 0 with everything and
        gradient 0.
      labels: ranks from 0 to the number of boundaries. Others raise ValueError; under
        `jit` and other transformations of the labels the value is NaN.
      margins: one positive value for each boundary between neighbouring ranks.
      reduction: what becomes of the hinge sums H_i of the anchors with P_i positives
        and N_i negatives. "mean": sum_i H_i / sum_i P_i N_i, the mean over triplets,
        whose scale does not depend on the batch size. "paper": mean_i H_i.
        "official": mean_i H_i / (P_i N_i^2), as the authors' released code has it.
      where: False for padding, which takes no part as anchor, positive or negative,
        whatever its embeddings and labels are.
      algorithm: "dense", "sorted", or "auto" for what `choose_algorithm` says.
        "blockwise" is "sorted" for some anchors at a time, once for the value and once
        more for gradients: for batches so large that [anchors, batch] is too much to
        hold.
      axis_name: inside `jax.shard_map`, the mesh axis (or axes) over which the batch is
        spread. The arguments are then a device's share of it (margins: all of them)
        and the value is that of the whole batch, on every device; each device works
        on its own anchors. Gradients are right inside and outside the shard_map, unless
        it has check_vma=False, when only those taken outside are. Inside such a
        shard_map, and inside `jax.pmap`, they are those of the sum over the devices:
        `jax.lax.pmean` of the gradients of parameters (margins included) is right, and
        gradients of the embeddings are to be divided by the number of devices.

    Anchors without positives or without negatives contribute 0, a batch of such
    anchors gives 0 with zero gradients, and a triplet at its margin has subgradient 0.
    """
    check_known("reduction", reduction, REDUCTIONS)
    check_known("algorithm", algorithm, ALGORITHMS)
    with jax.named_scope("mmnp"):  # in profiles and compiled programs
        embeddings, labels, margins, where = _arrays(embeddings, labels, margins, where)
        unit = unit_vectors(embeddings)
        validity = _validity(labels, len(margins), unit.dtype)
        index = jnp.arange(labels.shape[0], dtype=jnp.int32)
        columns = unit, labels, where
        if axis_name is not None:
            index += labels.shape[0] * jax.lax.axis_index(axis_name)
            columns = jax.lax.all_gather(columns, axis_name, tiled=True)
        if not labels.size:
            algorithm = "dense"  # nothing to sort
        hinges, positives, negatives = hinge_sums(
            unit, labels, index, columns[0], columns[1], margins, columns[2], algorithm
        )
        pairs = positives * negatives
        if reduction == "official":
            hinges = hinges / jnp.maximum(pairs * negatives, 1)
        weights = pairs if reduction == "mean" else where.astype(hinges.dtype)
        total, weight = jnp.sum(hinges) * validity, jnp.sum(weights)
        if axis_name is not None:
            # Each alone: together, jax 0.8 transposes both, and the weight is constant.
            total = jax.lax.psum(total, axis_name)
            weight = jax.lax.psum(weight, axis_name)
        return total / jnp.maximum(weight, 1)


def choose_algorithm(batch: int, backend: str, anchors: int | None = None) -> Algorithm:
    """What "auto" means for a batch size on a backend, such as "cpu" or "gpu".

    Backends that are not in `DENSE_UP_TO` take "sorted" for every batch that is not too
    large. `anchors` is how many a device has, by default the whole batch.
    """
    if (batch if anchors is None else anchors) * batch > _MOST_HELD:
        return "blockwise"
    return "dense" if batch <= DENSE_UP_TO.get(backend, 0) else "sorted"


def hinge_sums(
    anchors: Float[Array, "anchors dim"],
    anchor_labels: Int[Array, "anchors"],
    anchor_index: Int[Array, "anchors"],
    unit: Float[Array, "batch dim"],
    labels: Int[Array, "batch"],
    margins: Float[Array, "boundaries"],
    where: Bool[Array, "batch"],
    algorithm: Algorithm = "auto",
) -> HingeSums:
    """H_i, P_i and N_i of some anchors of a batch, such as one device's.

    Args:
      anchors, unit: of length 1 (or 0), as `unit_vectors` gives them.
      anchor_index: where the anchors are in the batch; none is its own positive.
    """
    forms: dict[str, Callable[..., HingeSums]] = {
        "dense": _dense,
        "sorted": _counted,
        "blockwise": functools.partial(_counted, is_blockwise=True),
    }
    position = positions(margins.astype(unit.dtype))
    given = anchors, anchor_labels, anchor_index, unit, labels, position, where
    if algorithm != "auto":
        return forms[algorithm](*given)
    # By the platform that the program is for, which need not be the one that traces.
    backends = {"cpu": "cpu", "cuda": "gpu", "rocm": "gpu", "default": ""}
    chosen = {
        platform: choose_algorithm(len(labels), backend, anchors=len(anchors))
        for platform, backend in backends.items()
    }
    if len(set(chosen.values())) == 1:
        return forms[chosen["default"]](*given)
    return jax.lax.platform_dependent(
        *given, **{platform: forms[name] for platform, name in chosen.items()}
    )


class KeptTriplets(NamedTuple):
    """How many triplets across each boundary keep their margin, and of how many."""

    kept: Float[Array, "boundaries"]
    triplets: Float[Array, "boundaries"]


def kept_triplets(
    embeddings: Float[AnyArray, "batch dim"],
    labels: Labels,
    margins: Float[AnyArray, "boundaries"],
    *,
    where: Bool[AnyArray, "batch"] | None = None,
    anchors: int | None = None,
) -> KeptTriplets:
    """Counts the triplets of a batch whose hinge is 0, by the boundaries they span.

    While none is kept, the loss has the same gradient for any margins; the share of
    kept triplets says whether margins act. For reports: it compiles fast rather than
    being fast, has no gradient, and rounds large counts, which are floats.

    Args:
      embeddings, labels, margins, where: as `mmnp` has them.
      anchors: how many samples, the first ones, are taken as anchors; None for all.
    """
    embeddings, labels, margins, where = _arrays(embeddings, labels, margins, where)
    unit = unit_vectors(jax.lax.stop_gradient(embeddings))
    position = positions(jax.lax.stop_gradient(margins).astype(unit.dtype))
    similarity = _matmul(unit[:anchors], unit.T)
    shifted = similarity + _margins(position[labels[:anchors]], position[labels])
    rank = jnp.arange(len(position))[None, :]
    is_rank = (labels[:, None] == rank) & where[:, None]  # [batch, rank]
    same = is_rank[:anchors].astype(unit.dtype) @ is_rank.T.astype(unit.dtype) > 0
    index = jnp.arange(labels.shape[0])
    positive = same & (index[:anchors, None] != index[None, :])

    ordered = jnp.sort(jnp.where(positive, similarity, jnp.inf), axis=1)
    missed = jax.vmap(jnp.searchsorted)(ordered, shifted).astype(unit.dtype)
    missed = _matmul(missed, is_rank.astype(unit.dtype))  # [anchor, rank]
    positives = jnp.sum(positive, axis=1, keepdims=True)
    possible = (positives * jnp.sum(is_rank, axis=0, keepdims=True)).astype(unit.dtype)
    low = jnp.minimum(labels[:anchors, None], rank)[None]
    high = jnp.maximum(labels[:anchors, None], rank)[None]
    boundary = rank[0, :-1, None, None]
    is_across = (low <= boundary) & (boundary < high)  # [boundary, anchor, rank]
    kept = jnp.sum((possible - missed)[None], axis=(1, 2), where=is_across)
    return KeptTriplets(kept, jnp.sum(possible[None], axis=(1, 2), where=is_across))


def check_known(name: str, value: str, choices: tuple[str, ...]) -> None:
    """ValueError where a value is none of the choices."""
    if value not in choices:
        raise ValueError(f"{name} {value!r} is unknown; use one of {choices}.")


def widened(values: AnyArray) -> Array:
    """An array of floats in at least float32, or of signed whole numbers in int32.

    Differences of labels would wrap around in unsigned types, and sums in small ones.
    With 64 bits enabled, whole numbers of 64 bits keep them.
    """
    values = jnp.asarray(values)
    if jnp.issubdtype(values.dtype, jnp.floating):
        return values.astype(jnp.promote_types(values.dtype, jnp.float32))
    return values.astype(jnp.int64 if values.dtype.itemsize == 8 else jnp.int32)


def unit_vectors(
    embeddings: Float[AnyArray, "batch dim"],
) -> Float[Array, "batch dim"]:
    """Embeddings over their lengths in at least float32; 0 (and gradient 0) for 0."""
    embeddings = widened(embeddings)
    # Over a power of two first, which is exact, so that squares neither overflow nor
    # vanish. It has no gradient: directions do not depend on it.
    info = jnp.finfo(embeddings.dtype)
    largest = jnp.max(jnp.abs(embeddings), axis=1, keepdims=True, initial=0)
    largest = jax.lax.stop_gradient(largest)
    exponent = jnp.clip(jnp.frexp(largest)[1], info.minexp + 1, info.maxexp - 3)
    embeddings *= jnp.ldexp(jnp.ones_like(largest), -exponent)
    nonzero = ~(largest < info.tiny)  # NaN is not hidden
    # The inner where keeps 1/sqrt(0), and so NaN, out of the gradient too.
    square = jnp.sum(embeddings**2, axis=1, keepdims=True)
    scale = jnp.where(nonzero, jax.lax.rsqrt(jnp.where(nonzero, square, 1)), 0)
    return embeddings * scale


def positions(margins: Float[Array, "boundaries"]) -> Float[Array, "ranks"]:
    """Running sums of the margins: the margin of two ranks is their distance."""
    return jnp.cumsum(jnp.concatenate([jnp.zeros(1, margins.dtype), margins]))


def _dense(anchors, anchor_labels, anchor_index, unit, labels, position, where):
    """Hinge sums by looking at every (positive, negative) pair of each anchor."""
    similarity = _matmul(anchors, unit.T)
    shifted = similarity + _margins(position[anchor_labels], position[labels])
    both = where[anchor_index][:, None] & where[None, :]
    same = anchor_labels[:, None] == labels[None, :]
    itself = anchor_index[:, None] == jnp.arange(labels.shape[0])[None, :]
    positive = same & both & ~itself
    negative = ~same & both
    hinges = jax.vmap(_hinge_sum)(similarity, shifted, positive, negative)
    dtype = unit.dtype
    return HingeSums(
        hinges, positive.sum(1).astype(dtype), negative.sum(1).astype(dtype)
    )


def _margins(anchor_position, position):
    return jnp.abs(anchor_position[:, None] - position[None, :])


def _hinge_sum(similarity, shifted, positive, negative):
    hinge = jax.nn.relu(shifted[None, :] - similarity[:, None])  # [positive, negative]
    return jnp.sum(hinge, where=positive[:, None] & negative[None, :])


def _counted(
    anchors,
    anchor_labels,
    anchor_index,
    unit,
    labels,
    position,
    where,
    is_blockwise=False,
):
    """Hinge sums by counts, found for columns in the order of ranks.

    With `is_blockwise` no array [anchor, column] of all anchors is ever there.
    """
    order, spans = _spans(anchor_labels, anchor_index, labels, where, len(position))
    unit, column_position = unit[order], position[labels[order]]

    def of_some(of_anchors):
        anchors, anchor_position, spans = of_anchors
        return _counted_hinges(anchors, unit, anchor_position, column_position, spans)

    of_anchors = anchors, position[anchor_labels], spans
    if is_blockwise:
        # Counts are not kept for the gradient, but found again.
        again = jax.checkpoint(of_some, prevent_cse=False)
        hinges = _map_blocks(again, of_anchors, _BLOCK // len(unit))
    else:
        hinges = of_some(of_anchors)
    dtype = unit.dtype
    positives = jnp.maximum(spans.stop - spans.start - 1, 0)
    negatives = spans.valid - (spans.stop - spans.start)
    return HingeSums(hinges, positives.astype(dtype), negatives.astype(dtype))


class _Spans(NamedTuple):
    """Where each anchor's rank lies once the batch is in the order of ranks.

    Columns `start` to `stop` have its rank, `own` is the anchor itself, and columns
    from `valid` on are padding. All 0 for an anchor that is padding.
    """

    start: Int[Array, "anchors"]
    stop: Int[Array, "anchors"]
    own: Int[Array, "anchors"]
    valid: Int[Array, "anchors"]


def _spans(anchor_labels, anchor_index, labels, where, num_ranks):
    key = jnp.where(where, labels.astype(jnp.int32), num_ranks)  # padding comes last
    order = jnp.argsort(key)
    ranks = jnp.arange(num_ranks, dtype=jnp.int32)
    sizes = jnp.sum(key[:, None] == ranks[None, :], axis=0, dtype=jnp.int32)
    stop = jnp.cumsum(sizes, dtype=jnp.int32)
    own = jnp.zeros_like(key).at[order].set(jnp.arange(len(key), dtype=jnp.int32))
    spans = _Spans(
        start=(stop - sizes)[anchor_labels],
        stop=stop[anchor_labels],
        own=own[anchor_index],
        # jax 0.8 has no full_like of a sum that differs between devices.
        valid=jnp.zeros_like(anchor_labels) + jnp.sum(where, dtype=jnp.int32),
    )
    return order, jax.tree.map(lambda x: jnp.where(where[anchor_index], x, 0), spans)


@jax.custom_jvp
def _counted_hinges(anchors, unit, anchor_position, position, spans):
    """H_i, from columns in the order of `spans`; the counts are its derivatives."""
    return _sorted_counts(anchors, unit, anchor_position, position, spans)[0]


@_counted_hinges.defjvp
def _counted_hinges_jvp(primals, tangents):
    anchors, unit, anchor_position, position, _ = primals
    d_anchors, d_unit, d_anchor_position, d_position, _ = tangents
    hinges, counts = _sorted_counts(*primals)
    sign = jnp.sign(anchor_position[:, None] - position[None, :])  # 0 for positives
    signed = counts * sign
    # Products in this order: their transposes scale no [anchor, column] array.
    d_hinges = (
        jnp.sum(d_anchors * _matmul(counts, unit), axis=1)
        + jnp.sum(anchors * _matmul(counts, d_unit), axis=1)
        + d_anchor_position * jnp.sum(signed, axis=1)
        - _matmul(signed, d_position)
    )
    return hinges, d_hinges


def _sorted_counts(anchors, unit, anchor_position, position, spans):
    """H_i and counts [anchor, column]: c_ik at negatives, -c_ij at positives, else 0.

    By the platform that the program is for, which need not be the one that traces.
    """
    library_sort = functools.partial(jnp.sort, axis=1)
    return jax.lax.platform_dependent(
        anchors,
        unit,
        anchor_position,
        position,
        spans,
        cpu=functools.partial(_sized_counts, _bitonic_sort, _CPU_BLOCK, 2),
        # XLA's own sort, or larger blocks, take libtpu longer to compile.
        tpu=functools.partial(_sized_counts, _bitonic_sort, _CPU_BLOCK, 2),
        # One size: a GPU waits for the host where a branch is chosen.
        default=functools.partial(_sized_counts, library_sort, _BLOCK, 1),
    )


def _sized_counts(sort, block, sizes, anchors, unit, anchor_position, position, spans):
    """`_sorted_counts` with a way to sort rows, and similarities to look at together.

    The work depends on the ranks' sizes, which are only known when it runs: one of so
    many numbers of slots, powers of two, is chosen then. The largest is always enough,
    half of it where no rank has more than a quarter of the batch. Each is compiled.
    """
    batch = unit.shape[0]
    rank_sizes = spans.stop - spans.start
    # One slot stays empty: the anchor's own, or one more for negatives.
    needed = jnp.max(jnp.minimum(rank_sizes, spans.valid - rank_sizes + 1))
    most = 1 << ((batch + 1) // 2 - 1).bit_length()  # at least half the batch
    choices = sorted({max(_SMALLEST, most >> k) for k in range(sizes)})
    choice = sum((needed > slots).astype(jnp.int32) for slots in choices[:-1])

    def in_blocks(slots, of_anchors):
        count = functools.partial(_count_block, sort, slots, unit, position)
        return _map_blocks(count, of_anchors, block // batch)

    branches = [functools.partial(in_blocks, slots) for slots in choices]
    of_anchors = anchors, anchor_position, spans
    if len(branches) == 1:
        return branches[0](of_anchors)
    return jax.lax.switch(choice, branches, of_anchors)


def _map_blocks(function, of_anchors, rows):
    """A function of anchors, applied to so many of them at a time or a few more."""
    rows = max(_FEWEST, rows)
    number = len(of_anchors[0])
    if number <= rows:
        return function(of_anchors)
    blocks = -(-number // rows)

    def split(x):
        padding = [(0, blocks * rows - number)] + [(0, 0)] * (x.ndim - 1)
        return jnp.pad(x, padding).reshape(blocks, rows, *x.shape[1:])

    def join(x):
        return x.reshape(-1, *x.shape[2:])[:number]

    return jax.tree.map(join, jax.lax.map(function, jax.tree.map(split, of_anchors)))


def _count_block(sort, slots, unit, position, of_anchors):
    """`_sorted_counts` of some anchors, with enough slots for the keys each one sorts.

    An anchor takes its positives s_ij or its negatives t_ik for keys, whichever are
    fewer, sorts them, and looks up the others. In the second case all signs are turned,
    and what follows from "below" is the same.
    """
    anchors, anchor_position, spans = of_anchors
    start, stop, own, valid = (x[:, None] for x in spans)
    rank_size = stop - start
    negatives = valid - rank_size
    turned = negatives + 1 < rank_size
    column = jnp.arange(unit.shape[0], dtype=jnp.int32)[None, :]
    same = (start <= column) & (column < stop)
    positive = same & (column != own)
    negative = ~same & (column < valid)

    # s_ij at positives too, since the margin within a rank is 0.
    shifted = _matmul(anchors, unit.T) + _margins(anchor_position, position)
    query = jnp.where(turned, -shifted, shifted)
    slot = jnp.arange(slots, dtype=jnp.int32)[None, :]
    outside = jnp.where(slot < start, slot, slot + rank_size)
    source = jnp.where(turned, outside, start + slot)
    is_key = (slot < jnp.where(turned, negatives, rank_size)) & (source != own)
    keys = _take(query, jnp.minimum(source, unit.shape[0] - 1))
    keys = sort(jnp.where(is_key, keys, jnp.inf))  # [anchor, slot]

    # Keys below each query. For a key itself: its slot, or that of its equal. Never
    # `slots`, since at least one slot is empty, that is infinite.
    below = jax.vmap(_search)(keys, query)
    # Queries above slot r are those with more than r keys below them.
    looks_up = jnp.where(turned, positive, negative)
    histogram = jax.vmap(functools.partial(_histogram, slots))(
        jnp.where(looks_up, below, 0)  # bin 0 is never asked for
    )
    above = jax.lax.cumsum(histogram, axis=1, reverse=True) - histogram
    counts = jnp.where(looks_up, below, _take(above, below))
    counts = jnp.where(negative, counts, jnp.where(positive, -counts, 0))
    counts = counts.astype(unit.dtype)

    # The counts of an anchor add up to 0, so any centre may be subtracted; one amid
    # the active keys keeps small hinges out of the rounding of large sums.
    weight = above.astype(unit.dtype)
    keys = jnp.where(slot < jnp.where(turned, negatives, rank_size - 1), keys, 0)
    centre = jnp.sum(weight * keys, axis=1, keepdims=True)
    centre /= jnp.maximum(jnp.sum(weight, axis=1, keepdims=True), 1)
    centre = jnp.where(turned, -centre, centre)
    hinges = counts * (shifted - centre)
    return jnp.sum(hinges, axis=1, where=positive | negative), counts


def _take(rows, index):
    return jnp.take_along_axis(rows, index, axis=1, mode="promise_in_bounds")


def _histogram(bins, values):
    return jnp.zeros(bins, jnp.int32).at[values].add(1, mode="promise_in_bounds")


def _bitonic_sort(rows):
    """Each row sorted; their length is a power of two.

    A bitonic network: nothing but minima and maxima of whole arrays, which CPUs
    vectorise. XLA's own sort took 10 times as long there. As a loop, since the
    network unrolled compiles for seconds.
    """
    x = rows.T
    bits = x.shape[0].bit_length() - 1
    stages = [(p, q) for p in range(1, bits + 1) for q in reversed(range(p))]
    run, distance = 2 ** jnp.asarray(stages, jnp.int32).reshape(-1, 2).T
    row = jnp.arange(x.shape[0], dtype=jnp.int32)

    def exchange(i, x):
        other = x.at[row ^ distance[i]].get(mode="promise_in_bounds")
        is_first = (row & distance[i]) == 0
        ascends = (row & run[i]) == 0
        smaller = jnp.minimum(x, other)
        return jnp.where((is_first == ascends)[:, None], smaller, jnp.maximum(x, other))

    return jax.lax.fori_loop(0, len(stages), exchange, x).T


def _search(ordered, queries):
    """Number of elements of `ordered` below each query, at most its length - 1.

    The length is `_SPLITTERS` times a power of two. Compares with the splitters, which
    vectorises, then a binary search; as a loop, since XLA would recompute its steps.
    """
    width = ordered.shape[0] // _SPLITTERS
    splitters = ordered[width - 1 : -1 : width]
    low = sum((s < queries).astype(jnp.int32) for s in splitters) * width

    def step(i, low):
        half = (width // 2) >> i
        middle = ordered.at[low + half - 1].get(mode="promise_in_bounds")
        return jnp.where(middle < queries, low + half, low)

    return jax.lax.fori_loop(0, width.bit_length() - 1, step, low)


def _arrays(
    embeddings: AnyArray, labels: AnyArray, margins: AnyArray, where: AnyArray | None
) -> tuple[Array, Array, Array, Array]:
    """The arguments as arrays, checked; zeros take the place of padding, which may be
    infinite or NaN."""
    embeddings, labels, margins = map(widened, (embeddings, labels, margins))
    if not jnp.issubdtype(embeddings.dtype, jnp.floating) or jnp.issubdtype(
        labels.dtype, jnp.floating
    ):
        raise ValueError(
            f"mmnp got embeddings of type {embeddings.dtype} and labels of type "
            f"{labels.dtype}; embeddings are floats, and labels are ranks, whole "
            "numbers."
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
    if where is None:
        return embeddings, labels, margins, jnp.ones(labels.shape, bool)
    where = jnp.asarray(where, bool)
    embeddings = jnp.where(where[:, None], embeddings, 0)
    return embeddings, jnp.where(where, labels, 0), margins, where


def _validity(labels, boundaries, dtype):
    """1 where all labels are ranks, else NaN; ValueError where that is known now."""
    is_outside = jnp.any((labels < 0) | (labels > boundaries))
    if not isinstance(is_outside, jax.core.Tracer) and is_outside:
        raise ValueError(
            f"mmnp got {boundaries} margins and labels from {labels.min()} to "
            f"{labels.max()}; labels are ranks from 0 to the number of margins."
        )
    return jnp.where(is_outside, jnp.nan, 1).astype(dtype)
