"""Jobs that make one run, or work with it."""

import contextlib
import pathlib
from collections.abc import Sequence
from typing import Annotated

from cloc_jax.cli import studies
from cloc_jax.cli.command_line import (
    ALONE,
    NO_DECISION,
    DecisionFlags,
    File,
    Folder,
    PlaceSettings,
    Processes,
    Settings,
    Written,
)
from cloc_jax.runtime import environment, errors
from cloc_jax.runtime import processes as running
from cloc_jax.runtime.run_folder import RunFolder


def train(
    settings: Settings,
    run: Folder = "",
    resume: bool = False,
    no_report: bool = False,
    folds: str = "",
    processes: Processes = ALONE,
) -> int:
    """Train a run and evaluate it; what launch.py does without a job.

    Args:
      run: folder of the results; runs/<config> by default
      resume: go on with the run, or start it; nothing is done where it is finished
      no_report: only scores, without pictures and a page; leaves no checkpoints
      folds: all, or such as 0,3: train these folds of the dataset, as a sweep
    """
    if folds:
        return studies.sweep(settings, run=run, folds=folds, processes=processes)
    settings.check()
    folder = RunFolder(settings.run_folder(run))
    if resume and folder.config.exists():
        folder.read_config()
    else:
        folder.check_new()
    processes.start()
    from cloc_jax.report import evaluation

    evaluation.complete_run(settings.config, folder, resume=resume, draws=not no_report)
    return 0


def evaluate(
    settings: PlaceSettings, run: Folder = "", processes: Processes = ALONE
) -> int:
    """Evaluate a trained run and write its results anew.

    Args:
      run: folder of a trained run
    """
    folder = _trained(run, "evaluate")
    processes.start()
    from cloc_jax.report import evaluation

    is_first = running.is_first()
    with folder.held("evaluate") if is_first else contextlib.nullcontext():
        evaluation.evaluate(settings.of_run(folder.read_config()), folder)
    return 0


def report(run: Folder = "") -> int:
    """Draw a run's page again from its files, without inference.

    Args:
      run: folder of a trained run
    """
    folder = _trained(run, "report")
    from cloc_jax.report import html_page  # light: neither JAX nor images

    with folder.held("report"):
        page = html_page.write_report(folder)
    print(f"report  {errors.printable(str(page))}")
    return 0


def predict(
    images: Annotated[Sequence[str], Written(is_positional=True)],
    settings: PlaceSettings,
    run: Folder = "",
    output: File = "",
    processes: Processes = ALONE,
) -> int:
    """Grade images.

    Args:
      images: image files and folders
      run: folder of a trained run
      output: the CSV to write
    """
    folder = _trained(run, "predict")
    processes.start()
    from cloc_jax.cli import predict

    config = settings.of_run(folder.read_config())
    failed = predict.predict(config, folder, images, output)
    return 1 if failed else 0


def decide(
    run: Folder = "", asked: DecisionFlags = NO_DECISION, remove: bool = False
) -> int:
    """Choose how a run decides at boundaries that matter, and keep it.

    Args:
      run: folder of a trained run
      remove: take the saved decision away
    """
    if remove and asked.is_anything:
        raise ValueError(
            "--remove takes the saved decision away; give it alone, with --run only."
        )
    folder = _trained(run, "decide")
    from cloc_jax.cli import decide  # light: neither JAX nor images

    with folder.held("decide"):
        if remove:
            decide.remove(folder)
        else:
            decide.decide(folder, asked)
    return 0


def export(
    settings: PlaceSettings,
    run: Folder = "",
    to: Annotated[str, Written("OUT")] = "",
) -> int:
    """Write a run's model into a folder that others can use.

    Args:
      run: folder of a trained run
      to: the folder to write
    """
    folder = _trained(run, "export")
    if not to:
        raise ValueError("export needs the folder to write: add --to=OUT.")
    target = pathlib.Path(to)
    if target.exists():
        raise FileExistsError(
            f"--to={target} exists already; give another name or move it away."
        )
    environment.set_up_libraries(is_joint=False)
    from cloc_jax.cli import export

    export.export(settings.of_run(folder.read_config()), folder, target)
    return 0


def _trained(run: str, job: str) -> RunFolder:
    """The folder of --run, which has to be a run before libraries load."""
    if not run:
        raise ValueError(f"{job} needs a trained run: add --run=DIR.")
    folder = RunFolder(run)
    folder.read_config()
    return folder
