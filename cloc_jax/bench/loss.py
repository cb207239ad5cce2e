"""Benchmark of a loss: value and gradients, by form, batch, width, type and devices.

Beside every time stands the floor: value and gradient of the sum of squared cosines,
which any loss on cosine similarities has to pay, or of the sum of all distances.
"""

import functools
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cloc_jax import losses
from cloc_jax.bench.measurement import FLOOR, Cell, Program, compiled, measure
from cloc_jax.losses import geometry
from cloc_jax.runtime import sharding

FORMS = ("dense", "sorted")  # of mmnp, timed unless others are asked for
DENSE_UP_TO = 512  # beyond, it needs gigabytes
VIEWS = 2  # of an image, in Rank-N-Contrast


def bench_mmnp(
    *,
    batches: Sequence[int],
    dims: Sequence[int],
    dtypes: Sequence[str],
    algorithms: Sequence[str],
    devices: Sequence[int],
    ranks: int,
    rounds: int,
) -> list[Cell]:
    """Value and both gradients of CLOC's loss, for every combination."""
    for algorithm in algorithms:
        if algorithm not in losses.ALGORITHMS:
            raise ValueError(
                f"--algorithms has {algorithm!r}; use some of "
                f"{', '.join(losses.ALGORITHMS)}."
            )
    cells = []
    for count in devices:
        mesh = sharding.make_mesh(count)
        for dtype in dtypes:
            for dim in dims:
                for batch in batches:
                    sharding.check_batch(batch, mesh)
                    data = random_batch(batch, dim, dtype, ranks)
                    programs = mmnp_programs(data, algorithms, mesh)
                    common = {"batch": batch, "dim": dim, "dtype": dtype}
                    common |= {"devices": mesh.size, "ranks": ranks}
                    triplets = _count_triplets(data[1])
                    cells += measure(programs, common, rounds, triplets)
    return cells


def bench_rnc(
    *, batches: Sequence[int], dims: Sequence[int], ranks: int, rounds: int
) -> list[Cell]:
    """Value and gradient of Rank-N-Contrast, on one device in float32.

    `batches` are numbers of images; there are `VIEWS` times as many features.
    """
    cells = []
    for dim in dims:
        for batch in batches:
            programs = rnc_programs(random_batch(batch * VIEWS, dim, "float32", ranks))
            common = {"batch": batch, "views": VIEWS, "dim": dim, "dtype": "float32"}
            common |= {"devices": 1, "ranks": ranks}
            cells += measure(programs, common, rounds)
    return cells


def random_batch(
    batch: int, dim: int, dtype: str, ranks: int
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """Embeddings [batch, dim], labels [batch] and margins [ranks - 1]."""
    rng = np.random.default_rng(0)
    embeddings = jnp.asarray(rng.normal(size=(batch, dim)), dtype)
    labels = jnp.asarray(rng.integers(0, ranks, batch), jnp.int32)
    margins = jnp.asarray(rng.uniform(0.1, 0.3, ranks - 1), jnp.float32)
    return embeddings, labels, margins


def _count_triplets(labels: jax.Array) -> int:
    counts = np.bincount(np.asarray(labels))
    return int(sum(n * (n - 1) * (len(labels) - n) for n in counts))


def mmnp_programs(data, algorithms: Sequence[str], mesh: Mesh) -> dict[str, Program]:
    """CLOC's loss of a random batch in several forms, and its floor."""
    embeddings, labels, margins = data
    split = sharding.split_batch(mesh)
    placed = (
        jax.device_put(embeddings, split),
        jax.device_put(labels, split),
        jax.device_put(margins, sharding.copied(mesh)),
        jax.device_put(jnp.ones(len(labels), bool), split),
    )
    programs = {FLOOR: compiled(jax.value_and_grad(_squared_cosines), placed[0])}
    for algorithm in algorithms:
        if algorithm == "dense" and len(labels) > DENSE_UP_TO:
            continue
        options: dict[str, Any] = {"algorithm": algorithm}
        loss = functools.partial(losses.mmnp, **options)
        gradient = jax.value_and_grad(sharding.over_batch(loss, mesh), argnums=(0, 2))
        programs[algorithm] = compiled(gradient, *placed)
    return programs


def rnc_programs(data) -> dict[str, Program]:
    """Rank-N-Contrast of a random batch, whose neighbours are views, and its floor."""
    embeddings, labels, _ = data
    features = embeddings.reshape(-1, VIEWS, embeddings.shape[1])
    gradient = jax.value_and_grad(functools.partial(losses.rnc, temperature=2.0))
    return {
        FLOOR: compiled(jax.value_and_grad(_sum_of_distances), embeddings),
        "sorted": compiled(gradient, features, labels[::VIEWS]),
    }


def _squared_cosines(embeddings: jax.Array) -> jax.Array:
    z = embeddings.astype(jnp.promote_types(embeddings.dtype, jnp.float32))
    unit = z * jax.lax.rsqrt(jnp.sum(z**2, axis=1, keepdims=True))
    return jnp.sum((unit @ unit.T) ** 2)


def _sum_of_distances(features: jax.Array) -> jax.Array:
    return jnp.sum(geometry.euclidean(features, features))
