"""Benchmark of the loss: value and gradients, by form, batch, width, type and devices.

Beside every time stands the floor: value and gradient of the sum of squared cosines,
which any loss on cosine similarities has to pay.
"""

import functools
from collections.abc import Sequence
from importlib import util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh

from cloc_jax import losses
from cloc_jax.bench.cells import FLOOR, RELEASED, Cell, measure
from cloc_jax.bench.stopwatch import Program, compiled, interleaved
from cloc_jax.runtime import crossovers, environment, sharding
from cloc_jax.runtime.console import console

FORMS = ("dense", "sorted", RELEASED)  # timed unless others are asked for
RELEASED_UP_TO = 512  # beyond, one call takes minutes
DENSE_UP_TO = 512  # beyond, it needs gigabytes


def bench_loss(
    *,
    batches: Sequence[int],
    dims: Sequence[int],
    dtypes: Sequence[str],
    algorithms: Sequence[str],
    devices: Sequence[int],
    ranks: int,
    rounds: int,
) -> list[Cell]:
    """Value and both gradients of the loss, for every combination."""
    known = (*losses.ALGORITHMS, RELEASED)
    for algorithm in algorithms:
        if algorithm not in known:
            raise ValueError(
                f"--algorithms has {algorithm!r}; use some of {', '.join(known)}."
            )
    cells = []
    for count in devices:
        mesh = sharding.make_mesh(count)
        for dtype in dtypes:
            for dim in dims:
                for batch in batches:
                    sharding.check_batch(batch, mesh)
                    data = _random_batch(batch, dim, dtype, ranks)
                    programs = _loss_programs(data, algorithms, mesh)
                    common = {"batch": batch, "dim": dim, "dtype": dtype}
                    common |= {"devices": mesh.size, "ranks": ranks}
                    triplets = _count_triplets(data[1])
                    cells += measure(programs, common, rounds, triplets)
    return cells


def _random_batch(batch: int, dim: int, dtype: str, ranks: int):
    rng = np.random.default_rng(0)
    embeddings = jnp.asarray(rng.normal(size=(batch, dim)), dtype)
    labels = jnp.asarray(rng.integers(0, ranks, batch), jnp.int32)
    margins = jnp.asarray(rng.uniform(0.1, 0.3, ranks - 1), jnp.float32)
    return embeddings, labels, margins


def _count_triplets(labels: jax.Array) -> int:
    counts = np.bincount(np.asarray(labels))
    return int(sum(n * (n - 1) * (len(labels) - n) for n in counts))


def _loss_programs(data, algorithms: Sequence[str], mesh: Mesh) -> dict[str, Any]:
    embeddings, labels, margins = data
    batch = len(labels)
    placed = (
        jax.device_put(embeddings, sharding.split_batch(mesh)),
        jax.device_put(labels, sharding.split_batch(mesh)),
        jax.device_put(margins, sharding.copied(mesh)),
        jax.device_put(jnp.ones(len(labels), bool), sharding.split_batch(mesh)),
    )
    programs: dict[str, Any] = {
        FLOOR: compiled(jax.value_and_grad(_squared_cosines), placed[0])
    }
    for algorithm in algorithms:
        if algorithm == RELEASED:
            is_possible = mesh.size == 1 and batch <= RELEASED_UP_TO
            if is_possible and util.find_spec("torch"):
                programs[RELEASED] = _released(*data)
            continue
        if algorithm == "dense" and batch > DENSE_UP_TO:
            continue
        options: dict[str, Any] = {"algorithm": algorithm}
        loss = functools.partial(losses.mmnp, **options)
        gradient = jax.value_and_grad(sharding.over_batch(loss, mesh), argnums=(0, 2))
        programs[algorithm] = compiled(gradient, *placed)
    return programs


def _squared_cosines(embeddings: jax.Array) -> jax.Array:
    z = embeddings.astype(jnp.promote_types(embeddings.dtype, jnp.float32))
    unit = z * jax.lax.rsqrt(jnp.sum(z**2, axis=1, keepdims=True))
    return jnp.sum((unit @ unit.T) ** 2)


def _released(embeddings, labels, margins) -> Program:
    import torch

    from cloc_jax.bench import released_loop

    y = torch.tensor(np.asarray(labels)).long()
    z = torch.tensor(np.asarray(embeddings, np.float32), requires_grad=True)
    m = torch.tensor(np.asarray(margins, np.float32), requires_grad=True)

    def call():
        z.grad = m.grad = None
        released_loop.mmnp_by_columns(z, y, m).backward()

    return Program(call, most_calls=4)


def calibrate(*, ranks: int, dim: int, rounds: int) -> int:
    """Finds the largest batch for which the dense form is faster, and records it."""
    mesh = sharding.make_mesh(1)
    dense_up_to = 0
    for batch in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256, 384, 512):
        data = _random_batch(batch, dim, "float32", ranks)
        programs = _loss_programs(data, ("dense", "sorted"), mesh)
        timings = interleaved(programs, rounds=rounds)
        dense, by_sorting = timings["dense"].median, timings["sorted"].median
        console.print(
            f"batch {batch}: dense {dense * 1e3:.2f}, sorted {by_sorting * 1e3:.2f} ms"
        )
        if by_sorting < dense:
            break
        dense_up_to = batch
    folder, backend = environment.cache_folder(), jax.default_backend()
    crossovers.record(folder, backend, dense_up_to)
    console.print(
        f"{backend}: dense up to batch {dense_up_to}, sorted above; recorded in "
        f"{folder}, where runs with method.cloc.algorithm='auto' find it",
        soft_wrap=True,
    )
    return dense_up_to
