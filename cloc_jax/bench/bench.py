"""Benchmarks: the loss, the training step, and both over several devices.

Programs that are compared are compiled first and then timed in turn. Beside every time
stands the floor: value and gradient of the sum of squared cosines, which any loss on
cosine similarities has to pay.
"""

import functools
import json
import pathlib
from collections.abc import Callable, Sequence
from importlib import util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict
from rich.table import Table

from cloc_jax import losses
from cloc_jax.bench import growth_plot
from cloc_jax.bench.stopwatch import (
    Program,
    collectives,
    compiled,
    interleaved,
    temporary_bytes,
)
from cloc_jax.build import assembly
from cloc_jax.data import pipeline
from cloc_jax.runtime import environment, model_state, sharding
from cloc_jax.runtime.console import console
from cloc_jax.training import train_step

FLOOR = "floor"
RELEASED = "released"  # a loop in PyTorch, timed where PyTorch is installed
RELEASED_UP_TO = 512  # beyond, one call takes minutes
DENSE_UP_TO = 512  # beyond, it needs gigabytes
Cell = dict[str, Any]


def bench(
    what: str, config: ConfigDict, folder: pathlib.Path, **grid: Any
) -> list[Cell]:
    """Runs one benchmark, prints its table and writes bench.jsonl and a plot."""
    jobs = {"loss": bench_loss, "step": bench_step, "scaling": bench_scaling}
    if what not in jobs:
        raise ValueError(f"--what is {what!r}; use one of {', '.join(jobs)}.")
    where = announce()
    cells = jobs[what](config, **grid)
    console.print(table(cells))
    for line in growths(cells):
        console.print(line)
    record(folder, what, cells, where)
    if len({cell["batch"] for cell in cells}) > 1:
        path = folder / f"bench-{what}.png"
        growth_plot.growth(path, cells)
        console.print(f"plot  {path}", soft_wrap=True)
    return cells


def announce() -> dict[str, str]:
    """Prints and returns where the figures are made."""
    where = environment.environment()
    console.print("  ".join(f"{k} {v}" for k, v in where.items()), soft_wrap=True)
    return where


def record(
    folder: pathlib.Path, what: str, cells: Sequence[Cell], where: dict[str, str]
) -> None:
    """Adds cells to the bench.jsonl of a folder."""
    folder.mkdir(parents=True, exist_ok=True)
    with (folder / "bench.jsonl").open("a") as file:
        for cell in cells:
            file.write(json.dumps(cell | {"what": what, "environment": where}) + "\n")
    console.print(f"rows  {folder / 'bench.jsonl'}", soft_wrap=True)


def bench_loss(
    config: ConfigDict,
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
                    cells += _measure(programs, common, rounds, triplets)
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


def bench_step(
    config: ConfigDict,
    *,
    batches: Sequence[int],
    devices: Sequence[int],
    rounds: int,
    **_: Any,
) -> list[Cell]:
    """The very training step of a configuration, for batch sizes and device counts."""
    cells = []
    for count in devices:
        for batch in batches:
            programs, mesh = _step_programs(config, batch, count)
            common = {"batch": batch, "devices": mesh.size}
            cells += _measure(programs, common, rounds, 0)
    return cells


def bench_scaling(
    config: ConfigDict, *, batches: Sequence[int], rounds: int, **_: Any
) -> list[Cell]:
    """Step time and communication on 1, 2, 4, … devices with the same batch."""
    available = len(jax.devices())
    if available == 1:
        console.print(
            "one device only; to try several on a CPU set the variable "
            "XLA_FLAGS=--xla_force_host_platform_device_count=8"
        )
    counts = [2**i for i in range(available.bit_length()) if 2**i <= available]
    return bench_step(config, batches=batches, devices=counts, rounds=rounds)


def _step_programs(config: ConfigDict, batch_size: int, devices: int):
    config = config.copy_and_resolve_references()
    config.train.batch_size = batch_size
    config.mesh.devices = devices
    if config.data.name == "synthetic":
        config.data.num_train = max(config.data.num_train, 2 * batch_size)
    config = assembly.resolve(config)
    parts = assembly.build(config)
    sharding.check_batch(batch_size, parts.mesh)
    stage = parts.method.stages[0]
    optimizer = assembly.build_optimizer(config, stage)
    graph, state = model_state.split(parts.create())
    source, plan = (
        parts.dataset.splits["train"],
        assembly.plan(config, parts.dataset, stage, 0),
    )
    batch = next(
        pipeline.training_batches(
            source,
            plan,
            draw=parts.draw,
            views=stage.views,
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
    step = train_step.make_step(graph, stage, optimizer, key, shardings)
    program = compiled(step, carry, batch)
    held = [carry]

    def call():
        # The step donates its carry, so each call starts from the last one's result.
        held[0] = jax.block_until_ready(program.compiled(held[0], batch))

    programs = {"step": program._replace(call=call)}
    name = config.encoder.name
    has_torch = util.find_spec("torch") and util.find_spec("transformers")
    if has_torch and name.startswith("resnet") and not config.encoder.frozen:
        from cloc_jax.bench import torch_step

        programs["torch"] = Program(
            torch_step.training_step(
                name,
                np.asarray(batch["image"]),
                np.asarray(batch["label"]),
                num_ranks=len(parts.dataset.ranks),
                hidden=config.method.hidden,
            )
        )
    return programs, parts.mesh


def _measure(
    programs: dict[str, Program], common: Cell, rounds: int, triplets: int
) -> list[Cell]:
    """One cell a program, with its time as a multiple of the floor's."""
    timings = interleaved(programs, rounds=rounds)
    cells = []
    for name, timing in timings.items():
        cell = common | {
            "algorithm": name,
            "milliseconds": timing.median * 1e3,
            "quartiles": [timing.low * 1e3, timing.high * 1e3],
            "samples_per_second": common["batch"] / timing.median,
        }
        if FLOOR in timings:
            cell["times_floor"] = timing.median / timings[FLOOR].median
        if triplets and name != FLOOR:
            cell["triplets_per_second"] = triplets / timing.median
        program = programs[name]
        if program.compiled is not None:
            cell["temporary_mib"] = temporary_bytes(program) / 2**20
            cell["collectives"] = collectives(program)
            cell["compile_seconds"] = program.compile_seconds
        cells.append(cell)
    return cells


def growths(cells: Sequence[Cell]) -> list[str]:
    """How time grows with the batch, in words, for series with three sizes or more."""
    said = []
    for name, line in growth_plot.series(cells).items():
        upper = line[-3:]  # where overheads no longer hide the growth
        if len(upper) == 3:
            sizes = [c["batch"] for c in upper]
            power = growth_plot.exponent(sizes, [c["milliseconds"] for c in upper])
            said.append(
                f"{name}: time ~ batch^{power:.2f} from {sizes[0]} to {sizes[-1]}"
            )
    return said


def table(cells: Sequence[Cell]) -> Table:
    """The cells as rows, with the columns that they have."""
    table = Table(box=None, pad_edge=False)
    columns: dict[str, Callable[[Any], str]] = {
        "algorithm": str,
        "stage": str,
        "threads": str,
        "batch": str,
        "dim": str,
        "dtype": str,
        "devices": str,
        "milliseconds": "{:.2f}".format,
        "quartiles": lambda q: f"{q[0]:.2f}-{q[1]:.2f}",
        "times_floor": "{:.1f}".format,
        "samples_per_second": "{:.3g}".format,
        "images_per_second": "{:.0f}".format,
        "times_bare": "{:.2f}".format,
        "triplets_per_second": "{:.3g}".format,
        "temporary_mib": "{:.1f}".format,
        "collectives": lambda c: " ".join(f"{n} {k}" for k, n in c.items()) or "none",
    }
    used = {k: show for k, show in columns.items() if any(k in c for c in cells)}
    for name in used:
        table.add_column(name.replace("_", " "), justify="right")
    for cell in cells:
        table.add_row(*(show(cell[k]) if k in cell else "" for k, show in used.items()))
    return table


def calibrate(*, ranks: int, dim: int, rounds: int) -> int:
    """Finds the largest batch for which the dense form is faster, and records it."""
    mesh = sharding.make_mesh(1)
    dense_up_to = 0
    for batch in (8, 16, 24, 32, 48, 64, 96, 128, 192, 256):
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
    assembly.record_crossover(folder, backend, dense_up_to)
    console.print(
        f"{backend}: dense up to batch {dense_up_to}, sorted above; recorded in "
        f"{folder}, where runs with method.algorithm='auto' find it",
        soft_wrap=True,
    )
    return dense_up_to
