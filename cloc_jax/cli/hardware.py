"""Jobs that time or compile programs: what hardware does with them."""

import argparse
import pathlib
import re
from collections.abc import Sequence
from typing import Annotated, Literal

from cloc_jax.cli.command_line import (
    Count,
    Counts,
    Folder,
    Names,
    Settings,
    Written,
    at_least,
    names,
)
from cloc_jax.runtime import environment

Shape = tuple[int, ...]


def shapes(text: str) -> list[Shape]:
    """Reads shapes of meshes with commas between them, such as 8,2x4."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", word) for word in words):
        raise argparse.ArgumentTypeError(f"got {text}; give sizes such as 8,2x4,1x8")
    return [tuple(map(int, word.split("x"))) for word in words]


def some(*allowed: str) -> Written:
    """How a flag is written that takes some of these names."""
    return Written("NAME,…", names(*allowed))


def bench(
    settings: Settings,
    run: Folder = "runs/bench",
    what: Literal["loss", "step", "data"] = "loss",
    batches: Counts = (64, 128, 256, 512, 1024),
    meshes: Annotated[Sequence[Shape], Written("8,2x4", shapes)] = (),
    rounds: Count = 15,
    dims: Counts = (128,),
    dtypes: Annotated[Sequence[str], some("float32", "bfloat16", "float16")] = (
        "float32",
    ),
    algorithms: Annotated[Sequence[str], some("dense", "sorted", "blockwise")] = (
        "dense",
        "sorted",
    ),
    ranks: Annotated[int, Written("N", at_least(2))] = 5,
) -> int:
    """Time the loss, the training step or the data.

    Args:
      run: folder of the results
      what: what to time
      batches: batch sizes
      meshes: device counts, or copies x parts of the parameters; one device by default
      rounds: timed calls of each program
      dims: of the loss: embedding widths
      dtypes: of the loss: some of float32,bfloat16,float16
      algorithms: of the loss: its forms, some of dense,sorted,blockwise
      ranks: of the labels, unless data.order names them
    """
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.bench import data_pipeline, measurement, throughput
    from cloc_jax.runtime.console import console

    config = settings.config
    where = measurement.announce()
    if what == "data":
        cells = data_pipeline.bench_data(config, rounds=rounds)
    elif what == "loss":
        cells = throughput.bench_mmnp(
            batches=batches,
            dims=dims,
            dtypes=dtypes,
            algorithms=algorithms,
            meshes=meshes or [(1,)],
            ranks=ranks,
            rounds=rounds,
        )
    else:
        cells = throughput.bench_step(
            config,
            batches=batches,
            meshes=meshes or [(1,)],
            ranks=len(config.data.order) or ranks,
            rounds=rounds,
        )
    console.print(measurement.table(cells))
    measurement.record(pathlib.Path(run), what, cells, where)
    return 0


def compile(
    settings: Settings,
    run: Folder = "",
    target: Names = ("cpu:8",),
    batches: Counts = (),
    programs: Annotated[Sequence[str], some("step", "loss")] = ("step", "loss"),
    ranks: Annotated[int, Written("N", at_least(2))] = 5,
    memory: Annotated[float | None, Written("BYTES")] = None,
) -> int:
    """Compile a run for hardware that need not be here, and say what it needs.

    Args:
      run: folder of the results; runs/<config>-compile by default
      target: h100:8, h100:4x8 (hosts x devices), a100, b200, v5e:2x4, v5p, v6e or
        cpu:8; several with commas between them
      batches: batch sizes, to find the largest that fits; train.batch_size by default
      programs: some of step,loss
      ranks: of the dataset, unless data.order names them
      memory: per device, in place of what the maker publishes
    """
    settings.check()
    from cloc_jax.bench import targets  # light: JAX has to wait for `set_up`

    aims = [targets.parse(text, memory) for text in target]
    targets.set_up(aims)
    from cloc_jax.cli import compile

    compile.compile_run(
        settings.config,
        settings.run_folder(run, "compile"),
        aims,
        ranks=len(settings.config.data.order) or ranks,
        batches=batches,
        kinds=programs,
    )
    return 0
