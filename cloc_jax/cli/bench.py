"""Benchmarks: the loss, the training step, both over several devices, the data."""

import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict

from cloc_jax.bench import data_pipeline, loss, measurement, step
from cloc_jax.runtime.console import console


def bench(
    what: str,
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    batches: Sequence[int],
    rounds: int,
    devices: Sequence[int],
    dims: Sequence[int],
    ranks: int,
    steps: bool = False,
    of: str = "mmnp",
    dtypes: Sequence[str] = ("float32",),
    algorithms: Sequence[str] = (),
    meshes: Sequence[tuple[int, ...]] = (),
) -> list[measurement.Cell]:
    """Runs one benchmark, prints its table and adds to bench.jsonl.

    `steps` times the training step beside the data; `of` is the loss to time, mmnp or
    rnc, `algorithms` its forms, () for the default.
    """
    if what == "loss" and of == "rnc":
        if list(devices) != [1] or list(dtypes) != ["float32"] or algorithms:
            raise ValueError(
                "--loss=rnc is timed on one device in float32 and has one form; leave "
                "--devices, --dtypes and --algorithms out."
            )
    where = measurement.announce()
    lines: list[str] = []
    if what == "data":
        cells = data_pipeline.bench_data(config, rounds=rounds, steps=steps)
        lines = data_pipeline.conclusions(config, cells)
    elif what == "loss" and of == "rnc":
        cells = loss.bench_rnc(batches=batches, dims=dims, ranks=ranks, rounds=rounds)
    elif what == "loss":
        cells = loss.bench_mmnp(
            batches=batches,
            dims=dims,
            dtypes=dtypes,
            algorithms=algorithms or loss.FORMS,
            devices=devices,
            ranks=ranks,
            rounds=rounds,
        )
    else:
        if what == "scaling":
            meshes = meshes or step.doubling_meshes()
        else:
            meshes = [(count,) for count in devices]
        cells = step.bench_step(
            config, batches=batches, meshes=meshes, ranks=ranks, rounds=rounds
        )
    console.print(measurement.table(cells))
    for line in lines:
        console.print(line, soft_wrap=True)
    measurement.record(folder, what, cells, where)
    return cells
