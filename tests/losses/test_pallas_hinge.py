"""The Pallas kernel, interpreted, against plain loops and the dense algorithm."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P
from test_multi_margin import (
    KINDS,
    batch,
    close,
    draw_embeddings,
    draw_labels,
    mesh_of,
    sharded_batch,
)

from cloc_jax.losses import choose_algorithm, hinge_sums, mmnp
from cloc_jax.losses.experimental import pallas_hinge

pytestmark = pytest.mark.slow  # interpreting a kernel is

kernel = jax.jit(pallas_hinge.hinges_and_counts)


def loop(shifted, start, stop, own, valid):
    """Hinge sums and counts by loops, for whole numbers."""
    hinges, counts = np.zeros(len(shifted)), np.zeros(shifted.shape)
    for i, row in enumerate(shifted):
        for j in range(start[i], stop[i]):
            for k in range(valid[i]):
                if j != own[i] and not start[i] <= k < stop[i] and row[j] < row[k]:
                    hinges[i] += row[k] - row[j]
                    counts[i, k] += 1
                    counts[i, j] -= 1
    return hinges, counts


# Less than a tile of columns, several tiles and a rest, whole tiles, one column.
@pytest.mark.parametrize("size", [37, 200, 2 * pallas_hinge.COLUMNS, 1])
def test_counts_are_exact_with_ties_and_padding(size):
    rng = np.random.default_rng(size)
    number = 12  # anchors
    valid = np.where(np.arange(number) % 3, size, size * 3 // 4).astype(np.int32)
    start, stop = np.sort(rng.integers(0, valid + 1, (2, number), np.int32), axis=0)
    own = rng.integers(start, np.maximum(stop, start + 1), dtype=np.int32)
    start[:4], stop[:4] = [[0, 0, 0, 0], [0, valid[1], 1, valid[3] // 2]]
    own[:4], valid[0] = 0, 0  # padding, one rank, a single sample, the lowest rank
    stop[4] = valid[4]  # the highest rank
    shifted = rng.integers(0, 5, (number, size)).astype(np.float32)
    hinges, counts = kernel(shifted, start, stop, own, valid)
    want_hinges, want_counts = loop(shifted, start, stop, own, valid)
    np.testing.assert_array_equal(hinges, want_hinges)
    np.testing.assert_array_equal(counts, want_counts)


@jax.jit
def sums_and_gradients(z, y, m, where, weights):
    """Hinge sums, and the gradients of a weighted sum of them, by both algorithms."""

    def weighted(z, m, algorithm):
        sums = hinge_sums(z, y, m, where, algorithm)
        return jnp.sum(weights * sums.hinges), sums

    return [
        jax.grad(weighted, (0, 1), has_aux=True)(z, m, a) for a in ("dense", "pallas")
    ]


@pytest.mark.parametrize(
    "size, dtype, tolerance",
    [(37, np.float32, 1e-5), (200, np.float32, 1e-5), (200, np.float64, 1e-10)],
)
@pytest.mark.parametrize("vectors", ["normal", "some zero", "one vector", "duplicates"])
def test_equals_dense(size, vectors, dtype, tolerance):
    rng = np.random.default_rng(0)
    ranks = 13
    m = rng.uniform(0.05, 0.2, ranks - 1).astype(dtype)
    masks = [rng.uniform(size=size) < 0.8, np.ones(size, bool)]
    if dtype == np.float64:
        del masks[1]  # it takes seconds
    for kind in KINDS:
        y = draw_labels(rng, kind, size, ranks)
        z = draw_embeddings(rng, vectors, size).astype(dtype)
        weights = rng.normal(size=size).astype(dtype)
        for where in masks:
            with jax.enable_x64(dtype == np.float64):
                results = sums_and_gradients(z, y, m, where, weights)
                (dense_grads, dense_sums), (grads, sums) = jax.tree.map(
                    np.asarray, results
                )
            for got, want in zip(sums, dense_sums, strict=True):
                assert got.dtype == dtype
                np.testing.assert_allclose(
                    got, want, rtol=tolerance, atol=tolerance * want.max()
                )
            # Gradients may cancel: by what they would be without that.
            lengths = np.linalg.norm(z, axis=1)
            scale = (dense_sums.positives * dense_sums.negatives).sum()
            scale /= lengths[lengths > 0].min()
            for got, want in zip(grads, dense_grads, strict=True):
                np.testing.assert_allclose(
                    got, want, rtol=tolerance, atol=tolerance * scale / size
                )
            assert not grads[0][~where].any()


def sharded_loss(**options):
    return jax.shard_map(
        lambda z, m, y, where: mmnp(
            z, y, m, where=where, algorithm="pallas", axis_name="data"
        ),
        mesh=mesh_of((8,), ("data",)),
        in_specs=(P("data"), P(), P("data"), P("data")),
        out_specs=P(),
        **options,
    )


def test_shard_map_gives_the_same():
    z, y, m, where = sharded_batch()
    # Pallas' interpreter does not say over which axes its results vary.
    loss = sharded_loss(check_vma=False)
    got = jax.jit(jax.value_and_grad(loss, (0, 1)))(z, m, y, where)
    whole = jax.value_and_grad(
        lambda z, m: mmnp(z, y, m, where=where, algorithm="dense"), (0, 1)
    )
    close(got, jax.jit(whole)(z, m))


def lowered(function, *arguments):
    """The program for CUDA, with kernels in Triton's language: a GPU compiles them."""
    traced = jax.jit(function).trace(*arguments)
    return traced.lower(lowering_platforms=("cuda",)).as_text()


@pytest.mark.parametrize("dtype", [jnp.float32, jnp.float64])
def test_lowers_for_a_gpu(dtype):
    with jax.enable_x64(dtype == jnp.float64):
        z, y, m = batch(size=37)
        z, m = z.astype(dtype), m.astype(dtype)
        loss = jax.value_and_grad(lambda z: mmnp(z, y, m, algorithm="pallas"))
        assert lowered(loss, z).count("gpu.triton") == 1
        assert lowered(jax.vmap(loss), jnp.stack([z, z])).count("gpu.triton") == 1


def test_shard_map_lowers_for_a_gpu():
    z, y, m, where = sharded_batch()
    loss = jax.value_and_grad(sharded_loss(), (0, 1))
    assert lowered(loss, z, m, y, where).count("gpu.triton") == 1


def test_auto_never_takes_it():
    for backend in ("cpu", "gpu", "tpu"):
        for size in (1, 32, 33, 1024, 10**5):
            assert choose_algorithm(size, backend) != "pallas"
