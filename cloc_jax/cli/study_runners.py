"""Runners of jobs that train many runs, or read what many runs found."""

import argparse
import math
import pathlib
import signal
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING

from cloc_jax.cli.request import (
    Request,
    check_methods,
    run_folder,
    start,
)
from cloc_jax.runtime import environment

if TYPE_CHECKING:
    from cloc_jax.sweeps.plan import Options


def run_sweep(request: Request) -> int:
    check_methods(request, request.arguments.vary)
    found = engine_options(request.arguments)

    def run(place: pathlib.Path) -> bool:
        from cloc_jax.sweeps import sweep

        summary = sweep.sweep(
            request.config,
            place,
            vary=request.arguments.vary,
            seeds=request.arguments.seeds,
            folds=request.arguments.folds,
            options=found,
            choose=request.arguments.choose,
            per=request.arguments.per,
        )
        return not any(cell.unfinished for cell in summary.cells)

    return run_many("sweep", run, request, is_in_process=found.is_in_process)


def engine_options(arguments: argparse.Namespace) -> "Options":
    """Where and how the runs of a job are trained."""
    from cloc_jax.sweeps import plan

    if arguments.engine == "local" and arguments.option:
        raise ValueError(
            f"--option={arguments.option[0]} is for another engine; add --engine=slurm "
            "or --engine=ray, or leave it out."
        )
    if arguments.engine == "local" and arguments.workers > 1 and arguments.coordinator:
        raise ValueError(
            "--workers are processes that each train runs of their own, --coordinator "
            "is for processes that train each run together; leave out one of them."
        )
    # A queue has limits, which a run must stay below; on this machine there is none.
    hours = arguments.hours
    if hours is None:
        hours = math.inf if arguments.engine == "local" else 24.0
    if hours <= 0:
        raise ValueError(f"--hours is {hours:g}; use more than 0.")
    settings = {}
    for text in arguments.option:
        name, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"--option is {text!r}; write KEY=VALUE.")
        settings[name] = plan.value_of(value)
    return plan.Options(
        arguments.engine,
        arguments.workers,
        hours,
        arguments.retries,
        settings,
    )


def run_control(request: Request) -> int:
    check_methods(request)

    def run(place: pathlib.Path, options: "Options") -> None:
        from cloc_jax.paper import control

        control.control(
            request.config,
            place,
            boundaries=request.arguments.boundary or request.config.data.critical,
            values=request.arguments.values,
            seeds=request.arguments.seeds,
            kind=request.arguments.kind,
            options=options,
        )

    return run_study("control", run, request)


def run_margins(request: Request) -> int:
    check_methods(request)

    def run(place: pathlib.Path, options: "Options") -> None:
        from cloc_jax.paper import margins

        margins.study_margins(
            request.config,
            place,
            seeds=request.arguments.seeds,
            draws=request.arguments.draws,
            options=options,
        )

    return run_study("margins", run, request)


def run_gaps(request: Request) -> int:
    check_methods(request, ["method.name=clm;cloc"])

    def run(place: pathlib.Path, options: "Options") -> None:
        from cloc_jax.paper import gaps

        gaps.study_gaps(
            request.config,
            place,
            seeds=request.arguments.seeds,
            draws=request.arguments.draws,
            options=options,
        )

    return run_study("gaps", run, request)


def run_collapse(request: Request) -> int:
    check_methods(request)

    def run(place: pathlib.Path, options: "Options") -> None:
        from cloc_jax.paper import margins

        margins.collapse(
            request.config, place, seeds=request.arguments.seeds, options=options
        )

    return run_study("collapse", run, request)


def run_tables(request: Request) -> int:
    from cloc_jax.cli import tables  # light: its runs load JAX

    if request.arguments.source:
        return tables.rebuild(request.arguments)
    options = engine_options(request.arguments)
    asked = tables.asked(request.arguments, request.settings)

    def run(place: pathlib.Path) -> bool:
        return tables.make(asked, request, options, place)

    is_in_process = options.is_in_process and not request.arguments.dry_run
    place = pathlib.Path(request.arguments.run)
    return run_many("tables", run, request, is_in_process=is_in_process, place=place)


def run_study(
    name: str,
    run: Callable[[pathlib.Path, "Options"], None],
    request: Request,
) -> int:
    """A job that trains runs, here or elsewhere, and then looks at them with JAX."""
    options = engine_options(request.arguments)
    if not options.is_in_process:
        environment.set_up_libraries(is_joint=False)
    return run_many(
        name,
        lambda place: run(place, options),
        request,
        is_in_process=options.is_in_process,
    )


def run_many(
    name: str,
    run: Callable[[pathlib.Path], bool | None],
    request: Request,
    *,
    is_in_process: bool = True,
    place: pathlib.Path | None = None,
) -> int:
    """A job of many runs, in a folder of its own; 1 where `run` gives False."""
    from cloc_jax.runtime import errors

    if is_in_process:
        start(request.arguments)
    else:
        errors.raise_interrupts()
    place = place or run_folder(request, name)
    again = f"stopped; the {name} in {place} goes on with the same command."
    try:
        return 1 if run(place) is False else 0
    except errors.Interrupted as stop:
        print(again, file=sys.stderr)
        return 128 + stop.number
    except KeyboardInterrupt:
        if is_in_process:
            raise
        print(again, file=sys.stderr)
        return 128 + signal.SIGINT


def run_claims(request: Request) -> int:
    from cloc_jax.paper import claims

    target = pathlib.Path(request.arguments.to)
    count = claims.write_claims(pathlib.Path(request.arguments.run), target)
    print(f"{count} {'study' if count == 1 else 'studies'}, written to {target}")
    return 0


def run_probe(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.paper import linear_probe

    linear_probe.probe(request.config, run_folder(request, "probe"))
    return 0
