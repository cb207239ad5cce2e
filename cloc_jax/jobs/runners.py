"""From a command line that was read to the job: one function per job.

Each imports late what it needs, so that --help and mistakes answer at once.
"""

import argparse
import contextlib
import pathlib
import signal
import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, NamedTuple

from ml_collections import ConfigDict

from cloc_jax.build import finite_settings, method_settings, saved_config
from cloc_jax.jobs import command_line
from cloc_jax.runtime import environment, process_guard
from cloc_jax.runtime.run_folder import RunFolder

if TYPE_CHECKING:
    from cloc_jax.studies import engines


class Request(NamedTuple):
    """What was asked for."""

    arguments: argparse.Namespace  # the job's own flags
    config: ConfigDict
    config_name: str  # of the file, without its suffix
    settings: Sequence[str]  # the words that set fields of the configuration
    schema: Callable[[], ConfigDict]  # every field with its default


def run_train(request: Request) -> int:
    if request.arguments.folds:
        folds = request.arguments.folds
        as_sweep = command_line.parser("sweep").parse_args([f"--folds={folds}"])
        for name, value in vars(request.arguments).items():
            if hasattr(as_sweep, name):
                setattr(as_sweep, name, value)
        return run_sweep(request._replace(arguments=as_sweep))
    check_methods(request)
    folder, resume = RunFolder(run_folder(request)), request.arguments.resume
    if resume:
        folder.read_config()
    else:
        folder.check_new()
    start(request.arguments)
    say_ignored(request)
    from cloc_jax.runtime import interrupts
    from cloc_jax.training import loop

    with writing(folder, "train", is_new=not resume):
        try:
            is_trained = loop.train(request.config, folder, resume=resume)
        except interrupts.Interrupted as stop:
            print(stop, file=sys.stderr)
            return 128 + stop.number
        if is_trained:
            from cloc_jax.jobs import evaluate  # and with it all that draws

            evaluate.evaluate(saved(folder, request), folder)
    return 0


def run_check(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.jobs import check

    return check.check(request.config, run_folder(request, "check"))


def run_prepare(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.jobs import prepare

    prepare.prepare(request.config)
    return 0


def run_show(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.jobs import show

    folder = run_folder(request, "show")
    show.show(request.config, folder, stage=request.arguments.stage)
    return 0


def run_evaluate(request: Request) -> int:
    folder = trained(request, "evaluate")
    start(request.arguments)
    from cloc_jax.jobs import evaluate

    with writing(folder, "evaluate"):
        evaluate.evaluate(saved(folder, request), folder)
    return 0


def run_report(request: Request) -> int:
    from cloc_jax.jobs import report  # light: neither JAX nor images

    folder = with_results(request, "report")
    with folder.held("report"):
        report.report(folder)
    return 0


def run_predict(request: Request) -> int:
    folder = trained(request, "predict")
    start(request.arguments)
    from cloc_jax.jobs import predict

    failed = predict.predict(
        saved(folder, request),
        folder,
        request.arguments.images,
        request.arguments.output,
    )
    return 1 if failed else 0


def run_decide(request: Request) -> int:
    from cloc_jax.jobs import decide  # light: neither JAX nor images

    find = trained if request.arguments.remove else with_results
    folder = find(request, "decide")
    asked = {
        "boundaries": request.arguments.boundary,
        "max_missed": request.arguments.max_missed,
        "costs": request.arguments.cost,
        "guarantee": request.arguments.guarantee,
        "coverage": request.arguments.coverage,
    }
    if not request.arguments.remove:
        with folder.held("decide"):
            decide.decide(folder, **asked)
        return 0
    if any(given not in (None, False, []) for given in asked.values()):
        raise ValueError(
            "--remove takes the saved decision away; give it alone, with --run only."
        )
    with folder.held("decide"):
        decide.remove(folder)
    return 0


def run_export(request: Request) -> int:
    folder = trained(request, "export")
    if not request.arguments.to:
        raise ValueError("export needs the folder to write: add --to=OUT.")
    target = pathlib.Path(request.arguments.to)
    if target.exists():
        raise FileExistsError(
            f"--to={target} exists already; give another name or move it away."
        )
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.jobs import export

    export.export(saved(folder, request), folder, target)
    return 0


def run_sweep(request: Request) -> int:
    check_methods(request, request.arguments.vary)
    found = engine_options(request.arguments)

    def run(place: pathlib.Path) -> bool:
        from cloc_jax.studies import sweep

        summary = sweep.sweep(
            request.config,
            place,
            vary=request.arguments.vary,
            seeds=request.arguments.seeds,
            folds=request.arguments.folds,
            options=found,
            choose=request.arguments.choose,
            per=request.arguments.per,
            schema=request.schema,
        )
        return not any(cell["unfinished"] for cell in summary["cells"])

    return run_many("sweep", run, request, is_local=found.is_local)


def engine_options(arguments: argparse.Namespace) -> "engines.Options":
    """Where and how the runs of a job are trained."""
    from cloc_jax.studies import engines, run_plan

    if arguments.engine == "local" and arguments.option:
        raise ValueError(
            f"--option={arguments.option[0]} is for another engine; add --engine=slurm "
            "or --engine=ray, or leave it out."
        )
    if arguments.hours <= 0:
        raise ValueError(f"--hours is {arguments.hours:g}; use more than 0.")
    settings = {}
    for text in arguments.option:
        name, separator, value = text.partition("=")
        if not separator:
            raise ValueError(f"--option is {text!r}; write KEY=VALUE.")
        settings[name] = run_plan.value_of(value)
    return engines.Options(
        arguments.engine,
        arguments.workers,
        arguments.hours,
        arguments.retries,
        settings,
    )


def run_control(request: Request) -> int:
    check_methods(request)

    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import control

        control.control(
            request.config,
            place,
            boundaries=request.arguments.boundary or request.config.data.critical,
            values=request.arguments.values,
            seeds=request.arguments.seeds,
            kind=request.arguments.kind,
        )

    return run_many("control", run, request)


def run_margins(request: Request) -> int:
    check_methods(request)

    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import learned_margins

        learned_margins.study_margins(
            request.config,
            place,
            seeds=request.arguments.seeds,
            draws=request.arguments.draws,
        )

    return run_many("margins", run, request)


def run_gaps(request: Request) -> int:
    check_methods(request, ["method.name=clm;cloc"])

    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import true_gaps

        true_gaps.study_gaps(
            request.config,
            place,
            seeds=request.arguments.seeds,
            draws=request.arguments.draws,
        )

    return run_many("gaps", run, request)


def run_collapse(request: Request) -> int:
    check_methods(request)

    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import collapse

        collapse.collapse(request.config, place, seeds=request.arguments.seeds)

    return run_many("collapse", run, request)


def run_many(
    name: str,
    run: Callable[[pathlib.Path], bool | None],
    request: Request,
    *,
    is_local: bool = True,
    place: pathlib.Path | None = None,
) -> int:
    """A job of many runs, in a folder of its own; 1 where `run` gives False."""
    if is_local:
        start(request.arguments)
    from cloc_jax.runtime import interrupts

    place = place or run_folder(request, name)
    again = f"stopped; the {name} in {place} goes on with the same command."
    try:
        return 1 if run(place) is False else 0
    except interrupts.Interrupted as stop:
        print(again, file=sys.stderr)
        return 128 + stop.number
    except KeyboardInterrupt:
        if is_local:
            raise
        print(again, file=sys.stderr)
        return 128 + signal.SIGINT


def run_tables(request: Request) -> int:
    from cloc_jax.jobs import tables  # light: its runs load JAX

    if request.arguments.source:
        return tables.rebuild(request.arguments)
    options = engine_options(request.arguments)
    asked = tables.asked(request.arguments, request.settings)

    def run(place: pathlib.Path) -> bool:
        return tables.make(asked, request, options, place)

    is_local = options.is_local and not request.arguments.dry_run
    place = pathlib.Path(request.arguments.run)
    return run_many("tables", run, request, is_local=is_local, place=place)


def run_claims(request: Request) -> int:
    from cloc_jax.studies import claims

    target = pathlib.Path(request.arguments.to)
    count = claims.write_claims(
        pathlib.Path(request.arguments.run), target, add=request.arguments.add
    )
    print(f"{count} studies, written to {target}")
    return 0


def run_probe(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.studies import probe

    probe.probe(request.config, run_folder(request, "probe"))
    return 0


def run_bench(request: Request) -> int:
    arguments = request.arguments
    types, forms = (
        arguments.dtypes.split(","),
        [form for form in arguments.algorithms.split(",") if form],
    )
    if not set(types) <= {"float32", "bfloat16", "float16"}:
        raise ValueError(
            f"--dtypes is {arguments.dtypes}; use some of float32, bfloat16, float16."
        )
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.bench import loss
    from cloc_jax.jobs import bench

    if arguments.calibrate:
        loss.calibrate(
            ranks=arguments.ranks,
            dim=arguments.dims[0],
            rounds=arguments.rounds,
        )
        return 0
    bench.bench(
        arguments.what,
        request.config,
        pathlib.Path(arguments.run or "runs/bench"),
        batches=arguments.batches,
        devices=arguments.devices,
        meshes=arguments.meshes,
        rounds=arguments.rounds,
        steps=arguments.steps,
        of=arguments.loss,
        dims=arguments.dims,
        dtypes=types,
        algorithms=forms,
        ranks=arguments.ranks,
    )
    return 0


def run_compile(request: Request) -> int:
    check_methods(request)
    from cloc_jax.bench import targets  # light: JAX has to wait for `set_up`

    asked = request.arguments
    kinds = asked.programs.split(",")
    if not set(kinds) <= {"step", "evaluation", "loss"}:
        raise ValueError(
            f"--programs is {asked.programs}; use some of step, evaluation, loss."
        )
    overrides = {name: getattr(asked, name) for name in targets.OVERRIDES}
    target = targets.parse(asked.target, overrides)
    for count in asked.scaling:
        targets.of_size(target, count)
    if asked.measure and target.platform != targets.CPU:
        raise ValueError(
            f"--measure runs the programs, and {target} is not here; use it with "
            "--target=cpu:2."
        )
    targets.set_up(target, max(asked.scaling, default=0))
    from cloc_jax.jobs import compile

    compile.compile_run(
        request.config,
        run_folder(request, "compile"),
        target,
        ranks=asked.ranks,
        batches=asked.batches,
        counts=asked.scaling,
        kinds=kinds,
        measured_rounds=asked.measure,
    )
    return 0


def run_weights(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.encoders.weights import loading

    loading.convert(
        request.arguments.source,
        request.arguments.target,
        architecture=request.arguments.architecture,
        preprocessing=request.arguments.preprocessing,
    )
    return 0


RUNNERS: dict[str, Callable[[Request], int]] = {
    "train": run_train,
    "check": run_check,
    "prepare": run_prepare,
    "show": run_show,
    "evaluate": run_evaluate,
    "report": run_report,
    "predict": run_predict,
    "decide": run_decide,
    "export": run_export,
    "sweep": run_sweep,
    "control": run_control,
    "margins": run_margins,
    "gaps": run_gaps,
    "collapse": run_collapse,
    "tables": run_tables,
    "claims": run_claims,
    "probe": run_probe,
    "bench": run_bench,
    "compile": run_compile,
    "weights": run_weights,
}


def start(arguments: argparse.Namespace) -> None:
    """Gets ready for a job that several processes may share."""
    is_joint = process_guard.is_joint(arguments.coordinator)
    if is_joint:
        process_guard.guard()
    environment.set_up_libraries(is_joint=is_joint)
    from cloc_jax.runtime import console, processes

    processes.connect(arguments.coordinator, arguments.processes, arguments.process)
    console.console.quiet = not processes.is_first()


def writing(folder: RunFolder, job: str, *, is_new: bool = False):
    """A context in which only the processes of this job write into the folder."""
    from cloc_jax.runtime import processes

    if processes.is_first():
        return folder.held(job, is_new=is_new)
    return contextlib.nullcontext()


def run_folder(request: Request, job: str = "") -> pathlib.Path:
    """--run, or runs/<name of the config file>, with the job's name."""
    name = f"{request.config_name}-{job}" if job else request.config_name
    return pathlib.Path(request.arguments.run or pathlib.Path("runs") / name)


def trained(request: Request, job: str) -> RunFolder:
    """The folder of --run, which has to be a run before libraries load."""
    if not request.arguments.run:
        raise ValueError(f"{job} needs a trained run: add --run=DIR.")
    folder = RunFolder(request.arguments.run)
    folder.read_config()
    return folder


def with_results(request: Request, job: str) -> RunFolder:
    """The folder of --run with its results, made now where they are missing."""
    from cloc_jax.scoring import predictions  # late

    folder = trained(request, job)
    results = (folder.metrics, folder.path / predictions.NAME)
    is_trained = any((folder.path / "stages").glob("*.json"))
    if is_trained and not all(path.is_file() for path in results):
        environment.set_up_libraries(is_joint=False)
        from cloc_jax.jobs import evaluate

        with folder.held(job):
            evaluate.evaluate(saved(folder, request), folder)
    return folder


def saved(folder: RunFolder, request: Request) -> ConfigDict:
    """A run's own configuration, with where things are on this machine."""
    found = saved_config.read(folder.read_config(), request.schema())
    found.mesh = request.config.mesh
    for place in ("root", "prepared"):
        if any(w.startswith(f"--config.data.{place}=") for w in request.settings):
            found.data[place] = request.config.data[place]
    return found


def check_methods(request: Request, vary: Sequence[str] = ()) -> None:
    """ValueError for settings of a method that no run uses, or that are no numbers."""
    used = {request.config.method.name}
    for text in vary:
        name, _, values = text.partition("=")
        if name.removeprefix("config.") == "method.name":
            used = {value.strip() for value in values.split(";")}
    method_settings.check(request.config, request.schema(), used)
    finite_settings.check(request.config)


def say_ignored(request: Request) -> None:
    """Says which settings of the head were given to a method that has its own.

    No error, as commands that compare methods share their settings.
    """
    from cloc_jax import methods
    from cloc_jax.runtime.console import console

    name = request.config.method.name
    words = [w for w in request.settings if w.startswith("--config.head.")]
    given = [word.removeprefix("--config.").split("=")[0] for word in words]
    if given and name in methods.METHODS and not methods.takes(name, "head"):
        console.print(
            f"  {', '.join(given)}: not used, as {name} has a head of its own",
            soft_wrap=True,
        )
