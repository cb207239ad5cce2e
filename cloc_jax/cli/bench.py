"""Benchmarks: the loss, the training step, both over several devices, the data."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.bench import cells, data_pipeline, growth_plot, loss, rnc_loss, step
from cloc_jax.runtime.console import console


def bench(
    what: str,
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    batches: Sequence[int],
    rounds: int,
    devices: Sequence[int],
    steps: bool = False,
    of: str = "mmnp",
    dtypes: Sequence[str] = ("float32",),
    algorithms: Sequence[str] = (),
    meshes: Sequence[tuple[int, ...]] = (),
    **of_loss: Any,
) -> list[cells.Cell]:
    """Runs one benchmark, prints its table and writes bench.jsonl and a plot.

    `steps` times training steps beside the data; `of` is the loss to time, mmnp or rnc,
    `algorithms` its forms, () for all; `of_loss` are the arguments of `bench_loss`
    besides these.
    """
    if what == "data":
        return data_pipeline.bench_data(config, folder, rounds=rounds, steps=steps)
    where = cells.announce()
    common: dict[str, Any] = {"batches": batches, "rounds": rounds}
    if what == "loss" and of == "rnc":
        if list(devices) != [1] or list(dtypes) != ["float32"]:
            raise ValueError(
                "--loss=rnc is timed on one device in float32; leave --devices and "
                "--dtypes out."
            )
        forms = algorithms or rnc_loss.FORMS
        found = rnc_loss.bench_rnc(algorithms=forms, **common, **of_loss)
    elif what == "loss":
        forms = algorithms or loss.FORMS
        found = loss.bench_loss(
            devices=devices, dtypes=dtypes, algorithms=forms, **common, **of_loss
        )
    elif what == "step":
        found = step.bench_step(config, devices=devices, **common)
    else:
        found = step.bench_scaling(config, meshes=meshes, **common)
    console.print(cells.table(found))
    for line in [*cells.growths(found), *cells.ratios(found)]:
        console.print(line)
    cells.record(folder, what, found, where)
    if len({cell["batch"] for cell in found}) > 1:
        path = folder / f"bench-{what}.png"
        growth_plot.growth(path, found)
        console.print(f"plot  {path}", soft_wrap=True)
    return found
