"""Throughput of CLOC's loss and of a configuration's training step.

Both are on random numbers; no dataset is read. Beside every time of the loss stands the
floor of any on cosines: value and gradient of the sum of their squares.
"""

import functools
import itertools
import math
from collections.abc import Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax import losses
from cloc_jax.bench import compiled_programs
from cloc_jax.bench.measurement import FLOOR, Cell, Program, compiled, measure
from cloc_jax.runtime import sharding
from cloc_jax.training import train_step

DENSE_UP_TO = 512  # beyond, it needs gigabytes


def bench_mmnp(
    *,
    batches: Sequence[int],
    dims: Sequence[int],
    dtypes: Sequence[str],
    algorithms: Sequence[str],
    meshes: Sequence[tuple[int, ...]],
    ranks: int,
    rounds: int,
) -> list[Cell]:
    """Value and both gradients of CLOC's loss, for every combination."""
    cells = []
    for shape in meshes:
        mesh = sharding.make_mesh(math.prod(shape), shape)
        for dtype, dim, batch in itertools.product(dtypes, dims, batches):
            sharding.check_batch(batch, mesh)
            programs = mmnp_programs(
                random_batch(batch, dim, dtype, ranks), algorithms, mesh
            )
            common = {"batch": batch, "dim": dim, "dtype": dtype}
            common |= {"devices": mesh.size, "ranks": ranks}
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


def mmnp_programs(data, algorithms: Sequence[str], mesh: Mesh) -> dict[str, Program]:
    """CLOC's loss of a random batch in several forms, and its floor."""
    split = sharding.split_batch(mesh)
    where = split, split, sharding.copied(mesh), split
    placed = jax.device_put((*data, jnp.ones(len(data[1]), bool)), where)
    programs = {FLOOR: compiled(jax.value_and_grad(_squared_cosines), placed[0])}
    for algorithm in algorithms:
        if algorithm == "dense" and len(data[1]) > DENSE_UP_TO:
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


# --- the training step ---


def bench_step(
    config: ConfigDict,
    *,
    batches: Sequence[int],
    meshes: Sequence[tuple[int, ...]],
    ranks: int,
    rounds: int,
) -> list[Cell]:
    """Time and communication of the first stage's step, for batch sizes and meshes.

    A mesh is a number of devices, or how many copies and parts of the parameters.
    """
    config = config.copy_and_resolve_references()
    cells = []
    for shape in meshes:
        own = shape if len(shape) > 1 else config.mesh.shape
        mesh = sharding.make_mesh(math.prod(shape), own)
        for batch in batches:
            config.train.batch_size = batch
            common: dict[str, Any] = {"batch": batch, "devices": mesh.size}
            if len(mesh.axis_names) > 1:
                common["mesh"] = "x".join(map(str, mesh.devices.shape))
            program = first_step(config, ranks, mesh)
            cells += measure({"step": program}, common, rounds)
    return cells


def first_step(config: ConfigDict, ranks: int, mesh: Mesh) -> Program:
    """The step of a run's first stage, compiled, on a random batch."""
    step = next(compiled_programs.programs(config, ranks, mesh))
    assert step.make_carry is not None
    carry, batch = step.make_carry(), _random_batch(step.arguments[1], ranks)
    key = train_step.stage_key(config.seed, 0)
    program = compiled(step.function, carry, batch, key)
    held = [carry]

    def call() -> None:
        # The step donates its carry, so each call starts from the last one's result.
        held[0] = jax.block_until_ready(program.compiled(held[0], batch, key))

    return program._replace(call=call)


def _random_batch(shapes: dict[str, Any], ranks: int) -> dict[str, Any]:
    """A batch of these shapes, with as many samples of each rank."""
    rng = np.random.default_rng(0)

    def image(leaf: jax.ShapeDtypeStruct) -> jax.Array:
        values = rng.integers(0, 256, leaf.shape).astype(leaf.dtype)
        return jax.device_put(values, leaf.sharding)

    ids, mask = shapes["id"], shapes["mask"]
    numbers = np.arange(math.prod(ids.shape), dtype=np.int32).reshape(ids.shape)
    return {
        "id": jax.device_put(numbers, ids.sharding),
        "image": jax.tree.map(image, shapes["image"]),
        "label": jax.device_put(numbers % ranks, ids.sharding),
        "mask": jax.device_put(np.ones(mask.shape, bool), mask.sharding),
    }
