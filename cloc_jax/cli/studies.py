"""Jobs that train many runs, or read what many runs found."""

import contextlib
import dataclasses
import pathlib
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cloc_jax.cli.command_line import (
    ALONE,
    Boundaries,
    Count,
    File,
    Folder,
    Names,
    Processes,
    Settings,
    Written,
    at_least,
    numbers,
)
from cloc_jax.runtime import environment, errors

if TYPE_CHECKING:
    from cloc_jax.sweeps.plan import Options

Margins = Annotated[
    Sequence[float],
    Written("0.1,0.3", numbers(float, 0, "numbers with commas between them")),
]


@dataclasses.dataclass(frozen=True)
class Engine:
    """Many runs, several at a time, here or on other machines.

    Args:
      seeds: runs per setting, seed after seed
      engine: who trains the runs: this machine, SLURM's job arrays, or a Ray cluster
      workers: tasks at a time; local: processes that share the cores or GPUs (default:
        this process alone); slurm, ray: any number by default
      hours: with slurm: time limit of a job, which is then queued again to go on
      retries: with workers: how often to retry a task that died
      option: of slurm: a parameter of submitit's, such as slurm_partition=gpu,
        gpus_per_node=1, cpus_per_task=8, mem_gb=32; of ray: address=HOST:PORT,
        num_cpus=4, num_gpus=1; repeat the flag for several
    """

    seeds: Count = 1
    engine: Literal["local", "slurm", "ray"] = "local"
    workers: Annotated[int, Written("N", at_least(0))] = 0
    hours: Annotated[float, Written("H")] = 24.0
    retries: Annotated[int, Written("N", at_least(0))] = 2
    option: Annotated[Sequence[str], Written("KEY=VALUE")] = ()

    def options(self, processes: Processes) -> "Options":
        """Where and how the runs of a job are trained."""
        from cloc_jax.sweeps import plan

        if self.engine == "local" and self.option:
            raise ValueError(
                f"--option={self.option[0]} is for another engine; add --engine=slurm "
                "or --engine=ray, or leave it out."
            )
        if self.engine == "local" and self.workers > 1 and processes.coordinator:
            raise ValueError(
                "--workers are processes that each train runs of their own, "
                "--coordinator is for processes that train each run together; leave "
                "out one of them."
            )
        if self.hours <= 0:
            raise ValueError(f"--hours is {self.hours:g}; use more than 0.")
        given = {}
        for text in self.option:
            name, separator, value = text.partition("=")
            if not separator:
                raise ValueError(f"--option is {text!r}; write KEY=VALUE.")
            given[name] = plan.value_of(value)
        return plan.Options(self.engine, self.workers, self.hours, self.retries, given)


LOCAL = Engine()


def sweep(
    settings: Settings,
    run: Folder = "",
    vary: Annotated[Sequence[str], Written("'SETTING=A;B'")] = (),
    choose: Annotated[str, Written("SCORE")] = "",
    folds: str = "",
    processes: Processes = ALONE,
    engine: Engine = LOCAL,
) -> int:
    """Train many settings and seeds, with one summary.

    Args:
      run: folder of the runs; runs/<config>-sweep by default
      vary: a setting and its values, such as 'method.cloc.margins=learn;0.3'; repeat
        the flag for several, every combination is trained
      choose: rank the settings by this score of the validation data, such as accuracy
        or mae, say nothing of the test data, and write the best as chosen.json
      folds: all, or such as 0,3: train these folds of the dataset
    """
    methods: list[str] = []
    for text in vary:
        name, _, values = text.partition("=")
        if name.removeprefix("config.") == "method.name":
            methods = [value.strip() for value in values.split(";")]
    settings.check(*methods)
    options = engine.options(processes)
    place = settings.run_folder(run, "sweep")
    with _many_runs(place, processes, options):
        from cloc_jax.sweeps import sweep

        summary = sweep.sweep(
            settings.config,
            place,
            vary=vary,
            seeds=engine.seeds,
            folds=folds,
            options=options,
            choose=choose,
        )
    return 1 if any(cell.unfinished for cell in summary.cells) else 0


def control(
    settings: Settings,
    run: Folder = "",
    boundary: Boundaries = (),
    values: Margins = (),
    processes: Processes = ALONE,
    engine: Engine = LOCAL,
) -> int:
    """What raising a margin buys and costs.

    Args:
      run: folder of the runs; runs/<config>-control by default
      boundary: a boundary that matters; repeat the flag for several; the dataset's
        critical ones by default
      values: the margins to set there
    """
    with _study("control", settings, run, processes, engine) as (place, options):
        from cloc_jax.paper import control

        control.control(
            settings.config,
            place,
            boundaries=boundary or settings.config.data.critical,
            values=values,
            seeds=engine.seeds,
            options=options,
        )
    return 0


def margins(
    settings: Settings,
    run: Folder = "",
    draws: Count = 20,
    processes: Processes = ALONE,
    engine: Engine = LOCAL,
) -> int:
    """What learned margins mean, against a null.

    Args:
      run: folder of the runs; runs/<config>-margins by default
      draws: permutations of the labels, as a null
    """
    with _study("margins", settings, run, processes, engine) as (place, options):
        from cloc_jax.paper import margins

        margins.study_margins(
            settings.config, place, seeds=engine.seeds, draws=draws, options=options
        )
    return 0


def collapse(
    settings: Settings,
    run: Folder = "",
    processes: Processes = ALONE,
    engine: Engine = LOCAL,
) -> int:
    """Margins with and without the paper's precautions.

    Args:
      run: folder of the runs; runs/<config>-collapse by default
    """
    with _study("collapse", settings, run, processes, engine) as (place, options):
        from cloc_jax.paper import margins

        margins.collapse(settings.config, place, seeds=engine.seeds, options=options)
    return 0


def tables(
    settings: Settings,
    run: Folder = "runs/tables",
    only: Names = (),
    data: Names = (),
    methods: Names = (),
    protocol: Literal["frozen", "partial", "whole"] = "whole",
    root: Annotated[Sequence[str], Written("DATASET=DIR")] = (),
    set: Annotated[Sequence[str], Written("DATASET:SETTING=VALUE")] = (),
    margin: Margins = (1.0,),
    weights: Annotated[Sequence[str], Written("ENCODER=FILE")] = (),
    folds: str = "all",
    dry_run: bool = False,
    from_: Annotated[Sequence[str], Written("DIR")] = (),
    to: Folder = "",
    summaries: Folder = "",
    processes: Processes = ALONE,
    engine: Engine = LOCAL,
) -> int:
    """The paper's tables beside runs here: train what is missing, write the page.

    Args:
      run: folder of all runs
      only: some of comparison, controllability, bias, ablations, backbones, classes,
        time; all by default
      data: datasets, by the names of configs/, such as koa,idrid; the paper's six by
        default
      methods: such as cloc,ce; the paper's nine and ce by default
      protocol: a frozen encoder; one trained from layer4 on, on kept views; or the
        whole network, as in the paper
      root: where a dataset lies; repeat the flag for several
      set: a setting of one dataset, such as 'koa:data.size=(72,120)', of one method on
        it (koa/dino:…) or of a method (/dino:…); repeat the flag for several
      margin: at which critical margins are fixed when controlled; of several,
        validation data choose one
      weights: of other backbones, such as vgg16=vgg16.safetensors; downloaded by
        default
      folds: of adience and hid: all, or such as 0,3
      dry_run: only say which runs there are, how many are finished, and hours to go
      from_: train nothing; make the page from the summaries in this folder; repeat the
        flag for those of several machines, which are merged
      to: folder of tables.md; that of --run by default
      summaries: folder for the summaries; summaries in that of --run by default, and
        none with --from
    """
    from cloc_jax.cli import tables as paper_tables  # light: its runs load JAX

    paper_tables.check_names(only, data, methods)
    if from_:
        paper_tables.rebuild(from_, only, data, to=to, summaries=summaries)
        return 0
    options = engine.options(processes)
    request = paper_tables.request(
        settings,
        only=only,
        data=data,
        methods=methods,
        roots=root,
        weights=weights,
        seeds=engine.seeds,
        protocol=protocol,
        folds=folds,
        margins=margin,
        changes=set,
    )
    place = pathlib.Path(run)
    if dry_run:
        paper_tables.dry_run(request, settings, place)
        return 0
    with _many_runs(place, processes, options):
        failed = paper_tables.train(
            request, settings, place, options, to=to, summaries=summaries
        )
    return 1 if failed else 0


def claims(run: Folder = "runs", to: File = "claims.md") -> int:
    """One page of all studies, with verdicts.

    Args:
      run: folder above the studies
      to: the page; studies and summaries in its folder count, too
    """
    from cloc_jax.paper import claims

    target = pathlib.Path(to)
    count = claims.write_claims(pathlib.Path(run), target)
    print(f"{count} {'study' if count == 1 else 'studies'}, written to {target}")
    return 0


def probe(settings: Settings, run: Folder = "") -> int:
    """A linear baseline on a frozen encoder's features.

    Args:
      run: folder of the results; runs/<config>-probe by default
    """
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.paper import linear_probe

    linear_probe.probe(settings.config, settings.run_folder(run, "probe"))
    return 0


@contextlib.contextmanager
def _study(
    name: str, settings: Settings, run: str, processes: Processes, engine: Engine
) -> Iterator[tuple[pathlib.Path, "Options"]]:
    """A job that trains runs, here or elsewhere, and then looks at them with JAX."""
    settings.check()
    options = engine.options(processes)
    if not options.is_in_process:
        environment.set_up_libraries(is_joint=False)
    place = settings.run_folder(run, name)
    with _many_runs(place, processes, options):
        yield place, options


@contextlib.contextmanager
def _many_runs(
    place: pathlib.Path, processes: Processes, options: "Options"
) -> Iterator[None]:
    """A job of many runs, in a folder of its own; who stops it learns how to go on."""
    if options.is_in_process:
        processes.start()
    else:
        errors.raise_interrupts()
    again = f"stopped; the work in {place} goes on with the same command."
    try:
        yield
    except errors.Interrupted as stop:
        raise errors.Interrupted(stop.number, again) from None
    except KeyboardInterrupt:
        if options.is_in_process:
            raise
        raise errors.Interrupted(signal.SIGINT, again) from None
