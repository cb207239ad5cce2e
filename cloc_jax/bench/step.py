"""Benchmark of the very training step of a configuration.

No dataset is read: batches are random, and so are the weights.
"""

import math
from collections.abc import Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax.bench import compiled_programs, measurement
from cloc_jax.bench.measurement import Cell
from cloc_jax.runtime import sharding
from cloc_jax.runtime.console import console
from cloc_jax.training import train_step


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
    `ranks` is the number of ranks where only the dataset's files tell.
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
            cells += measurement.measure({"step": program}, common, rounds)
    return cells


def doubling_meshes() -> list[tuple[int, ...]]:
    """1, 2, 4, … devices, as many as there are."""
    available = len(jax.devices())
    if available == 1:
        console.print(
            "one device only; to try several on a CPU set the variable "
            "XLA_FLAGS=--xla_force_host_platform_device_count=8"
        )
    return [(2**i,) for i in range(available.bit_length())]


def first_step(config: ConfigDict, ranks: int, mesh: Mesh) -> measurement.Program:
    """The step of a run's first stage, compiled, on a random batch."""
    ranks = compiled_programs.known_ranks(config) or ranks
    step = next(compiled_programs.programs(config, ranks, mesh))
    assert step.make_carry is not None
    carry, batch = step.make_carry(), _random_batch(step.arguments[1], ranks)
    key = train_step.stage_key(config.seed, 0)
    program = measurement.compiled(step.function, carry, batch, key)
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
