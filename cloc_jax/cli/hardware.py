"""Jobs that time or compile programs: what hardware does with them."""

import pathlib
from typing import Annotated, Literal

from cloc_jax.cli.command_line import (
    Count,
    Counts,
    Folder,
    Names,
    Settings,
    Shapes,
    Written,
    at_least,
)
from cloc_jax.runtime import environment

Ranks = Annotated[int, Written("N", at_least(2))]
DTYPES = ("float32", "bfloat16", "float16")
PROGRAMS = ("step", "evaluation", "loss")


def bench(
    settings: Settings,
    run: Folder = "runs/bench",
    what: Literal["loss", "step", "scaling", "data"] = "loss",
    batches: Counts = (64, 128, 256, 512, 1024),
    devices: Counts = (1,),
    meshes: Shapes = (),
    rounds: Count = 15,
    steps: bool = False,
    loss: Literal["mmnp", "rnc"] = "mmnp",
    dims: Counts = (128,),
    dtypes: Names = ("float32",),
    algorithms: Names = (),
    ranks: Ranks = 5,
) -> int:
    """Time the loss, the training step or the data.

    Args:
      run: folder of the results
      what: what to time
      batches: batch sizes
      devices: device counts
      meshes: of --what=scaling: device counts, or copies x parts of the parameters; 1,
        2, 4, … devices by default
      rounds: timed calls of each program
      steps: with --what=data: time the training step that reads them, too
      loss: of --what=loss: CLOC's, or Rank-N-Contrast with two views per image
      dims: of the loss: embedding widths
      dtypes: of the loss: some of float32,bfloat16,float16
      algorithms: forms of the loss, some of dense,sorted,blockwise; the first two by
        default
      ranks: of the labels
    """
    if not set(dtypes) <= set(DTYPES):
        raise ValueError(
            f"--dtypes is {','.join(dtypes)}; use some of {', '.join(DTYPES)}."
        )
    is_rnc = what == "loss" and loss == "rnc"
    if is_rnc and (tuple(devices), tuple(dtypes), *algorithms) != ((1,), ("float32",)):
        raise ValueError(
            "--loss=rnc is timed on one device in float32 and has one form; leave "
            "--devices, --dtypes and --algorithms out."
        )
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.bench import data_pipeline, measurement, step
    from cloc_jax.bench import loss as loss_bench
    from cloc_jax.runtime.console import console

    config, lines = settings.config, []
    where = measurement.announce()
    if what == "data":
        cells = data_pipeline.bench_data(config, rounds=rounds, steps=steps)
        lines = data_pipeline.conclusions(config, cells)
    elif is_rnc:
        cells = loss_bench.bench_rnc(
            batches=batches, dims=dims, ranks=ranks, rounds=rounds
        )
    elif what == "loss":
        cells = loss_bench.bench_mmnp(
            batches=batches,
            dims=dims,
            dtypes=dtypes,
            algorithms=algorithms or loss_bench.FORMS,
            devices=devices,
            ranks=ranks,
            rounds=rounds,
        )
    else:
        if what == "step":
            meshes = [(count,) for count in devices]
        cells = step.bench_step(
            config,
            batches=batches,
            meshes=meshes or step.doubling_meshes(),
            ranks=ranks,
            rounds=rounds,
        )
    console.print(measurement.table(cells))
    for line in lines:
        console.print(line, soft_wrap=True)
    measurement.record(pathlib.Path(run), what, cells, where)
    return 0


def compile(
    settings: Settings,
    run: Folder = "",
    target: Annotated[str, Written("NAME:N")] = "cpu:8",
    batches: Counts = (),
    scaling: Counts = (),
    programs: Names = PROGRAMS,
    ranks: Ranks = 0,
    memory: Annotated[float | None, Written("BYTES")] = None,
) -> int:
    """Compile a run for hardware that need not be here, and say what it needs.

    Args:
      run: folder of the results; runs/<config>-compile by default
      target: h100:8, h100:4x8 (hosts x devices), a100, b200, v5e:2x4, v5p, v6e or cpu:8
      batches: batch sizes, to find the largest that fits; train.batch_size by default
      scaling: numbers of devices, in place of the target's own
      programs: some of step,evaluation,loss
      ranks: of the dataset, where only its files tell
      memory: per device, in place of what the maker publishes
    """
    settings.check()
    if not set(programs) <= set(PROGRAMS):
        raise ValueError(
            f"--programs is {','.join(programs)}; use some of {', '.join(PROGRAMS)}."
        )
    from cloc_jax.bench import targets  # light: JAX has to wait for `set_up`

    aim = targets.parse(target, memory)
    for count in scaling:
        targets.of_size(aim, count)
    targets.set_up(aim, max(scaling, default=0))
    from cloc_jax.cli import compile

    compile.compile_run(
        settings.config,
        settings.run_folder(run, "compile"),
        aim,
        ranks=ranks,
        batches=batches,
        counts=scaling,
        kinds=programs,
    )
    return 0
