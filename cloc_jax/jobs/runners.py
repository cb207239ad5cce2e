"""From a command line that was read to the job: one function per job.

Each imports late what it needs, so that --help and mistakes answer at once.
"""

import argparse
import pathlib
import sys
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from cloc_jax.build import method_settings, saved_config
from cloc_jax.runtime import environment, process_guard
from cloc_jax.runtime.run_folder import RunFolder


class Request(NamedTuple):
    """What was asked for."""

    arguments: argparse.Namespace  # the job's own flags
    config: ConfigDict
    config_name: str  # of the file, without its suffix
    settings: Sequence[str]  # the words that set fields of the configuration
    schema: Callable[[], ConfigDict]  # every field with its default


def run_train(request: Request) -> int:
    if request.arguments.folds:
        as_sweep = argparse.Namespace(**vars(request.arguments), vary=[], seeds=1)
        return run_sweep(request._replace(arguments=as_sweep))
    check_methods(request)
    folder = RunFolder(run_folder(request))
    if request.arguments.resume:
        folder.read_config()
    start(request.arguments)
    from cloc_jax.runtime import interrupts
    from cloc_jax.training import loop

    try:
        loop.train(request.config, folder, resume=request.arguments.resume)
    except interrupts.Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.number
    from cloc_jax.jobs import evaluate  # and with it all that draws

    evaluate.evaluate(saved(folder, request), folder)
    return 0


def run_prepare(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.jobs import prepare

    prepare.prepare(request.config)
    return 0


def run_show(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.jobs import show

    show.show(request.config, run_folder(request, "show"))
    return 0


def run_evaluate(request: Request) -> int:
    folder = trained(request, "evaluate")
    start(request.arguments)
    from cloc_jax.jobs import evaluate

    evaluate.evaluate(saved(folder, request), folder)
    return 0


def run_report(request: Request) -> int:
    from cloc_jax.jobs import report  # light: neither JAX nor images

    report.report(trained(request, "report"))
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

    folder = trained(request, "decide")
    asked = {
        "boundaries": request.arguments.boundary,
        "max_missed": request.arguments.max_missed,
        "costs": request.arguments.cost,
        "guarantee": request.arguments.guarantee,
    }
    if not request.arguments.remove:
        decide.decide(folder, **asked)
        return 0
    if any(given not in (None, False, []) for given in asked.values()):
        raise ValueError(
            "--remove takes the saved decision away; give it alone, with --run only."
        )
    decide.remove(folder)
    return 0


def run_sweep(request: Request) -> int:
    check_methods(request, request.arguments.vary)

    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import sweep

        sweep.sweep(
            request.config,
            place,
            vary=request.arguments.vary,
            seeds=request.arguments.seeds,
            folds=request.arguments.folds,
        )

    return run_many("sweep", run, request)


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


def run_collapse(request: Request) -> int:
    check_methods(request)

    def run(place: pathlib.Path) -> None:
        from cloc_jax.studies import collapse

        collapse.collapse(request.config, place, seeds=request.arguments.seeds)

    return run_many("collapse", run, request)


def run_many(name: str, run: Callable[[pathlib.Path], None], request: Request) -> int:
    """A job of many runs, in a folder of its own."""
    start(request.arguments)
    from cloc_jax.runtime import interrupts

    place = run_folder(request, name)
    try:
        run(place)
    except interrupts.Interrupted as stop:
        print(
            f"stopped; the {name} in {place} goes on with the same command.",
            file=sys.stderr,
        )
        return 128 + stop.number
    return 0


def run_claims(request: Request) -> int:
    from cloc_jax.studies import claims

    target = pathlib.Path(request.arguments.to)
    count = claims.write_claims(pathlib.Path(request.arguments.run), target)
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
        arguments.algorithms.split(","),
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
    "prepare": run_prepare,
    "show": run_show,
    "evaluate": run_evaluate,
    "report": run_report,
    "predict": run_predict,
    "decide": run_decide,
    "sweep": run_sweep,
    "control": run_control,
    "margins": run_margins,
    "collapse": run_collapse,
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


def saved(folder: RunFolder, request: Request) -> ConfigDict:
    """A run's own configuration, with where things are on this machine."""
    found = saved_config.read(folder.read_config(), request.schema())
    found.mesh = request.config.mesh
    for place in ("root", "prepared"):
        if any(w.startswith(f"--config.data.{place}=") for w in request.settings):
            found.data[place] = request.config.data[place]
    return found


def check_methods(request: Request, vary: Sequence[str] = ()) -> None:
    """ValueError for settings of a method that no run uses."""
    used = {request.config.method.name}
    for text in vary:
        name, _, values = text.partition("=")
        if name.removeprefix("config.") == "method.name":
            used = {value.strip() for value in values.split(";")}
    method_settings.check(request.config, request.schema(), used)
