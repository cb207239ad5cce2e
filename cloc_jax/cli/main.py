"""The command line: finds the job, reads its flags and settings, and runs it."""

import pathlib
import signal
import sys
import traceback
from collections.abc import Sequence

import cloc_jax
from cloc_jax.cli import command_line, hardware, images, runs, studies
from cloc_jax.runtime import environment, errors, processes

JOBS: dict[str, command_line.Job] = {
    job.__name__: job
    for job in (
        runs.train,
        images.check,
        images.show,
        images.prepare,
        runs.evaluate,
        runs.report,
        runs.predict,
        runs.decide,
        runs.export,
        studies.sweep,
        studies.control,
        studies.margins,
        studies.collapse,
        studies.tables,
        studies.claims,
        hardware.bench,
        hardware.compile,
        images.weights,
    )
}
OVERVIEW = """\
cloc_jax: ordinal image classification with learned margins.

    python launch.py                                    quick start on drawn knees
    python launch.py --config=configs/koa.py --config.data.root=DIR
    python launch.py --config=configs/folder.py --config.data.root=DIR
    python launch.py … --run=DIR                        where the results go
    python launch.py … --resume                         go on after an interruption
    python launch.py predict --run=DIR image.png …      grade images
    python launch.py JOB --help                         what a job takes
    python launch.py --version                          versions and devices

Any setting of cloc_jax/config.py can be overridden: --config.train.batch_size=32

Jobs:
"""


def start() -> None:
    """What `launch.py`, `python -m cloc_jax` and the script `cloc-jax` do."""
    with errors.reader_may_leave():
        sys.exit(main(sys.argv[1:]))


def main(words: Sequence[str]) -> int:
    """Runs the job that the words ask for and returns the exit code."""
    is_named = bool(words) and not words[0].startswith("-")
    if not is_named and {"--help", "-h"} & set(words):
        print(overview())
        return 0
    if not is_named and "--version" in words:
        print(version())
        return 0
    name, words = (words[0], words[1:]) if is_named else ("train", words)
    try:
        return run_job(name, words)
    except errors.Interrupted as stop:  # with everything saved
        print(stop, file=sys.stderr)
        return 128 + stop.number
    except KeyboardInterrupt:
        print("interrupted", file=sys.stderr)
        code = 128 + signal.SIGINT
    except SystemExit:  # nobody reads the output
        if not _has_peers():
            raise
        code = errors.UNREAD
    except Exception as error:
        problem = _sentence(error)
        if isinstance(error, BrokenPipeError):
            code = errors.UNREAD
        elif problem:
            shown = errors.printable(environment.commands_here(problem))
            print(f"error: {shown}", file=sys.stderr)
            code = 2
        else:
            traceback.print_exc()
            code = 1
    if _has_peers():
        # The usual way out would wait for processes that wait for this one.
        processes.give_up(code)
    return code


def run_job(name: str, words: Sequence[str]) -> int:
    """The exit code of a job; ValueError where the words make no sense."""
    if name not in JOBS:
        raise ValueError(
            f"unknown job {name!r}; use one of {', '.join(JOBS)}, or none to train."
        )
    if any("\0" in word for word in words):
        raise ValueError("a word of the command holds a NUL; leave it out.")
    if name == "train" and (late := [word for word in words if word in JOBS]):
        raise ValueError(f"the job comes first: python launch.py {late[0]} …")
    return JOBS[name](**command_line.read_words(JOBS[name], words))


def overview() -> str:
    """What `launch.py --help` prints."""
    lines = [f"    {name:10}{command_line.summary(job)}" for name, job in JOBS.items()]
    return environment.commands_here("\n".join([OVERVIEW, *lines]))


def version() -> str:
    """What `launch.py --version` prints."""
    environment.set_up_libraries(is_joint=False)
    found = environment.environment()
    device = found.pop("device")
    parts = (f"{name} {number}" for name, number in found.items())
    return f"cloc_jax {cloc_jax.__version__}\n{', '.join(parts)}\non {device}"


def _has_peers() -> bool:
    return "jax" in sys.modules and sys.modules["jax"].process_count() > 1


def _sentence(error: BaseException) -> str:
    """What to tell the user of an error; "" where only a traceback can."""
    is_of_system = isinstance(error, OSError) and error.errno is not None
    if _is_ours(error) and not is_of_system:
        return str(error)
    return errors.sentence(error)


def _is_ours(error: BaseException) -> bool:
    """Whether this project raised it, so that its message is meant for the user."""
    if not isinstance(error, ValueError | OSError | ArithmeticError):
        return False
    frames = traceback.extract_tb(error.__traceback__)
    return environment.PACKAGE in pathlib.Path(frames[-1].filename).resolve().parents
