"""What was asked for on the command line, and what runners need of it."""

import argparse
import contextlib
import pathlib
from collections.abc import Callable, Sequence
from typing import NamedTuple

from ml_collections import ConfigDict

from cloc_jax.config import check_settings, saved_config
from cloc_jax.runtime import environment, processes
from cloc_jax.runtime.run_folder import RunFolder


class Request(NamedTuple):
    """What was asked for."""

    arguments: argparse.Namespace  # the job's own flags
    config: ConfigDict
    config_name: str  # of the file, without its suffix
    settings: Sequence[str]  # the words that set fields of the configuration
    schema: Callable[[], ConfigDict]  # every field with its default


def start(arguments: argparse.Namespace) -> None:
    """Gets ready for a job that several processes may share."""
    is_joint = processes.is_joint(arguments.coordinator)
    if is_joint:
        processes.guard()
    environment.set_up_libraries(is_joint=is_joint)
    from cloc_jax.runtime import console

    processes.connect(arguments.coordinator, arguments.processes, arguments.process)
    console.console.quiet = not processes.is_first()


def writing(folder: RunFolder, job: str, *, is_new: bool = False):
    """A context in which only the processes of this job write into the folder."""
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
        from cloc_jax.report import evaluation

        with folder.held(job):
            evaluation.evaluate(saved(folder, request), folder)
    return folder


def saved(folder: RunFolder, request: Request) -> ConfigDict:
    """A run's own configuration, with where things are on this machine."""
    found = saved_config(folder.read_config())
    found.mesh = request.config.mesh
    for place in ("root", "prepared"):
        if any(w.startswith(f"--config.data.{place}=") for w in request.settings):
            found.data[place] = request.config.data[place]
    return found


def check_methods(request: Request, vary: Sequence[str] = ()) -> None:
    """ValueError for settings of a method that no run uses, or that make no sense."""
    used = {request.config.method.name}
    for text in vary:
        name, _, values = text.partition("=")
        if name.removeprefix("config.") == "method.name":
            used = {value.strip() for value in values.split(";")}
    check_settings(request.config, used)


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
