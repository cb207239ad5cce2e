"""Benchmark of the very training step of a configuration."""

import math
from collections.abc import Sequence
from importlib import util
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax.bench.cells import Cell, measure
from cloc_jax.bench.stopwatch import Program, compiled
from cloc_jax.data import pipeline
from cloc_jax.runtime import model_state, sharding
from cloc_jax.runtime.console import console
from cloc_jax.training import assembly, encoder, train_step


def bench_step(
    config: ConfigDict,
    *,
    batches: Sequence[int],
    devices: Sequence[int],
    rounds: int,
) -> list[Cell]:
    """The very training step of a configuration, for batch sizes and device counts."""
    cells = []
    for count in devices:
        for batch in batches:
            programs, mesh = step_programs(config, batch, count)
            common: dict[str, Any] = {"batch": batch, "devices": mesh.size}
            if len(mesh.axis_names) > 1:
                common["mesh"] = "x".join(map(str, mesh.devices.shape))
            cells += measure(programs, common, rounds, 0)
    return cells


def bench_scaling(
    config: ConfigDict,
    *,
    batches: Sequence[int],
    rounds: int,
    meshes: Sequence[tuple[int, ...]] = (),
) -> list[Cell]:
    """Step time and communication on meshes, or 1, 2, 4, … devices, with equal batches.

    A mesh is a number of devices, or how many copies and parts of the parameters.
    """
    available = len(jax.devices())
    if available == 1:
        console.print(
            "one device only; to try several on a CPU set the variable "
            "XLA_FLAGS=--xla_force_host_platform_device_count=8"
        )
    cells = []
    for shape in meshes:
        changed = config.copy_and_resolve_references()
        changed.mesh.shape = shape if len(shape) > 1 else ()
        devices = [math.prod(shape)]
        cells += bench_step(changed, batches=batches, devices=devices, rounds=rounds)
    if meshes:
        return cells
    counts = [2**i for i in range(available.bit_length()) if 2**i <= available]
    return bench_step(config, batches=batches, devices=counts, rounds=rounds)


def step_programs(
    config: ConfigDict, batch_size: int, devices: int
) -> tuple[dict[str, Program], Mesh]:
    """The first stage's step, and PyTorch's for a ResNet, with the mesh they run on."""
    config = config.copy_and_resolve_references()
    config.train.batch_size = batch_size
    config.mesh.devices = devices
    if config.data.name == "synthetic":
        config.data.num_train = max(config.data.num_train, 2 * batch_size)
    config = encoder.resolve(config)
    parts = assembly.build(config)
    sharding.check_batch(batch_size, parts.mesh)
    stage = parts.method.stages[0]
    graph, state = model_state.split(parts.create())
    batches = assembly.sampler(config, parts.dataset, stage, 0)
    optimizer = assembly.build_optimizer(config, stage, batches)
    batch = next(
        pipeline.training_batches(
            parts.dataset.splits["train"],
            batches,
            draws=assembly.draws(config, parts.dataset, stage),
            seed=(config.seed, 0),
            first_step=0,
            threads=config.data.threads,
            place=lambda rows: sharding.place_batch(rows, parts.mesh),
        )
    )
    names = train_step.scalar_names(graph, stage, state, batch)
    carry = train_step.place_carry(
        train_step.first_carry(state, optimizer, names),
        parts.mesh,
        shard_params=config.mesh.shard_params,
    )
    shardings = jax.tree.map(lambda x: x.sharding, carry)
    key = jax.random.key(config.seed)
    step = train_step.make_step(
        graph, stage, optimizer, key, shardings, batches.steps_per_epoch
    )
    program = compiled(step, carry, batch)
    held = [carry]

    def call():
        # The step donates its carry, so each call starts from the last one's result.
        held[0] = jax.block_until_ready(program.compiled(held[0], batch))

    programs = {"step": program._replace(call=call)}
    name = config.encoder.name
    has_torch = util.find_spec("torch") and util.find_spec("transformers")
    if has_torch and name.startswith("resnet") and not encoder.entrance(config):
        from cloc_jax.bench import torch_step

        programs["torch"] = Program(
            torch_step.training_step(
                name,
                np.asarray(batch["image"]),
                np.asarray(batch["label"]),
                num_ranks=len(parts.dataset.ranks),
                hidden=config.head.hidden,
            )
        )
    return programs, parts.mesh
