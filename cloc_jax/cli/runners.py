"""From a command line that was read to the job: one function per job.

Each imports late what it needs, so that --help and mistakes answer at once.
"""

import pathlib
import sys
from collections.abc import Callable

from cloc_jax.cli import command_line
from cloc_jax.cli.request import (
    Request,
    check_methods,
    run_folder,
    saved,
    say_ignored,
    start,
    trained,
    with_results,
    writing,
)
from cloc_jax.cli.study_runners import (
    run_claims,
    run_collapse,
    run_control,
    run_gaps,
    run_margins,
    run_probe,
    run_sweep,
    run_tables,
)
from cloc_jax.runtime import environment
from cloc_jax.runtime.run_folder import RunFolder


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
    if resume and folder.config.exists():
        folder.read_config()
    else:
        folder.check_new()
    start(request.arguments)
    say_ignored(request)
    from cloc_jax.report import evaluation
    from cloc_jax.runtime import errors

    try:
        draws = not request.arguments.no_report
        evaluation.complete_run(request.config, folder, resume=resume, draws=draws)
    except errors.Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.number
    return 0


def run_check(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.cli import check

    return check.check(request.config, run_folder(request, "check"))


def run_prepare(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.cli import prepare

    prepare.prepare(request.config)
    return 0


def run_show(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.cli import show

    folder = run_folder(request, "show")
    show.show(request.config, folder, stage=request.arguments.stage)
    return 0


def run_evaluate(request: Request) -> int:
    folder = trained(request, "evaluate")
    start(request.arguments)
    from cloc_jax.report import evaluation

    with writing(folder, "evaluate"):
        evaluation.evaluate(saved(folder, request), folder)
    return 0


def run_report(request: Request) -> int:
    from cloc_jax.cli import report  # light: neither JAX nor images

    folder = with_results(request, "report")
    with folder.held("report"):
        report.report(folder)
    return 0


def run_predict(request: Request) -> int:
    folder = trained(request, "predict")
    start(request.arguments)
    from cloc_jax.cli import predict

    failed = predict.predict(
        saved(folder, request),
        folder,
        request.arguments.images,
        request.arguments.output,
    )
    return 1 if failed else 0


def run_decide(request: Request) -> int:
    from cloc_jax.cli import decide  # light: neither JAX nor images

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
    from cloc_jax.cli import export

    export.export(saved(folder, request), folder, target)
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
    from cloc_jax.cli import bench

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
    target = targets.parse(asked.target, asked.memory)
    for count in asked.scaling:
        targets.of_size(target, count)
    targets.set_up(target, max(asked.scaling, default=0))
    from cloc_jax.cli import compile

    compile.compile_run(
        request.config,
        run_folder(request, "compile"),
        target,
        ranks=asked.ranks,
        batches=asked.batches,
        counts=asked.scaling,
        kinds=kinds,
    )
    return 0


def run_weights(request: Request) -> int:
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.encoders.weights import filling

    filling.convert(
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
