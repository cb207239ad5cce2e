"""Jobs that train many runs, or read what many runs found."""

import contextlib
import dataclasses
import itertools
import pathlib
import signal
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Annotated, Literal

from cloc_jax.cli.command_line import (
    ALL_TABLES,
    ALONE,
    Boundaries,
    Count,
    File,
    Folder,
    Margins,
    Processes,
    Settings,
    TableFlags,
    Written,
    at_least,
    value_of,
)
from cloc_jax.runtime import environment, errors

if TYPE_CHECKING:
    from cloc_jax.paper.studies import Runs
    from cloc_jax.sweeps.executors import Options
    from cloc_jax.sweeps.sweep import Setting


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
        from cloc_jax.sweeps import executors

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
            given[name] = value_of(value)
        return executors.Options(
            self.engine, self.workers, self.hours, self.retries, given
        )


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
    compared = combinations(vary)
    name = "method.name"
    used = [str(one.overrides[name]) for one in compared if name in one.overrides]
    settings.check(*used)
    place = settings.run_folder(run, "sweep")
    with _many_runs(place, processes, engine) as options:
        from cloc_jax.sweeps import sweep

        summary = sweep.sweep(
            settings.config,
            place,
            compared,
            seeds=engine.seeds,
            folds=folds,
            options=options,
            choose=choose,
        )
    return 1 if any(cell.unfinished for cell in summary.cells) else 0


def combinations(vary: Sequence[str]) -> "list[Setting]":
    """Every combination of the values of `vary`, each as "method.cloc.weight=0.5;1"."""
    from cloc_jax.sweeps.sweep import FOLD, SEED, Setting

    varied: dict[str, list[str]] = {}
    for text in vary:
        name, _, values = text.partition("=")
        name = name.strip().removeprefix("config.")
        if name in (*varied, SEED, FOLD):
            raise ValueError(
                f"--vary names {name}; give each setting once, seeds by --seeds and "
                "folds by --folds."
            )
        varied[name] = [value.strip() for value in values.split(";")]
        if "" in varied[name]:
            raise ValueError(
                f"--vary is {text!r}; write a setting and its values with semicolons "
                "between them, such as --vary='method.cloc.weight=0.5;1;2'."
            )
    settings = []
    for texts in itertools.product(*varied.values()):
        pairs = list(zip(varied, texts, strict=True))
        short = ",".join(f"{name.split('.')[-1]}={text}" for name, text in pairs)
        settings.append(Setting(short, {name: value_of(text) for name, text in pairs}))
    return settings


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
    with _study("control", settings, run, processes, engine) as runs:
        from cloc_jax.paper import control

        at = boundary or settings.config.data.critical
        control.control(runs, boundaries=at, values=values)
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
    with _study("margins", settings, run, processes, engine) as runs:
        from cloc_jax.paper import margins

        margins.study_margins(runs, draws=draws)
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
    with _study("collapse", settings, run, processes, engine) as runs:
        from cloc_jax.paper import margins

        margins.collapse(runs)
    return 0


def tables(
    settings: Settings,
    run: Folder = "runs/tables",
    asked: TableFlags = ALL_TABLES,
    dry_run: bool = False,
    from_: Folder = "",
    processes: Processes = ALONE,
    engine: Engine = LOCAL,
) -> int:
    """The paper's tables beside runs here: train what is missing, write the page.

    Args:
      run: folder of all runs, of summaries/ and of tables.md
      dry_run: only say which runs there are, and which are finished
      from_: train nothing; make the page in --run from the summaries in this folder
    """
    from cloc_jax.cli import tables as paper_tables  # light: its runs load JAX
    from cloc_jax.paper import studies, table_rows, table_summaries

    if from_:
        summaries = table_summaries.read_summaries(pathlib.Path(from_))
        paper_tables.write_page(summaries, pathlib.Path(run))
        return 0
    plans = paper_tables.plan(settings, asked, engine.seeds)
    place = pathlib.Path(run)
    if dry_run:
        table_rows.dry_run(plans, place)
        return 0
    failed = {}
    with _many_runs(place, processes, engine) as options:
        from cloc_jax.sweeps import sweep

        if plans:
            failed = sweep.train_runs(plans, place, options, is_open=True)
    made = table_summaries.summarize(place, studies.command())
    table_summaries.write_summaries(made, place / table_summaries.SUMMARIES)
    paper_tables.write_page(made, place)
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
    print(f"{count} files of studies and tables read, {target} written")
    return 0


@contextlib.contextmanager
def _study(
    name: str, settings: Settings, run: str, processes: Processes, engine: Engine
) -> "Iterator[Runs]":
    """A job of many runs that then looks at them, with JAX."""
    settings.check()
    place = settings.run_folder(run, name)
    with _many_runs(place, processes, engine) as options:
        if not options.is_in_process:
            environment.set_up_libraries(is_joint=False)
        from cloc_jax.paper.studies import Runs

        yield Runs(settings.config, place, engine.seeds, options)


@contextlib.contextmanager
def _many_runs(
    place: pathlib.Path, processes: Processes, engine: Engine
) -> "Iterator[Options]":
    """A job of many runs in one folder: how to train them; who stops it learns how to
    go on."""
    options = engine.options(processes)
    if options.is_in_process:
        processes.start()
    else:
        errors.raise_interrupts()
    again = f"stopped; the work in {place} goes on with the same command."
    try:
        yield options
    except errors.Interrupted as stop:
        raise errors.Interrupted(stop.number, again) from None
    except KeyboardInterrupt:
        if options.is_in_process:
            raise
        raise errors.Interrupted(signal.SIGINT, again) from None
