"""A worker: one process that trains one task, started by whichever engine.

    python -m cloc_jax.sweeps.engines.worker TASK.json

Its environment is without what would make it join a run of several processes: a job
step of SLURM hands its variables to all that is started within it.
"""

import contextlib
import ctypes
import os
import pathlib
import signal
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Mapping, Sequence

from cloc_jax.runtime import environment
from cloc_jax.sweeps.engines import claim_files, driver, task_files

DONE, FAILED, BUSY, UNREADY = 0, 2, 75, 76  # exit codes; others: it died
PR_SET_PDEATHSIG = 1  # of prctl(2)
GRACE_SECONDS = 60.0  # to write a checkpoint when asked to stop


def main(path: pathlib.Path) -> int:
    """Trains the runs of a task that nobody else works on."""
    environment.keep_memory()  # before the thread of the claims
    task, folder = task_files.read(path)
    names = [p.name for p in task.plans if not task_files.is_finished(folder, p)]
    with claim_files.claimed(folder, names) as mine:
        plans = [p for p in task.plans if p.name in mine]
        plans = [p for p in plans if not task_files.is_finished(folder, p)]
        if not plans:
            return DONE if len(mine) == len(names) else BUSY
        if not driver.is_ready(task_files.Task(task.name, tuple(plans)), folder):
            return UNREADY
        return _train(plans, folder)


def _train(plans, folder: pathlib.Path) -> int:
    from cloc_jax.runtime import environment, errors

    environment.set_up_libraries(is_joint=False)
    from cloc_jax.sweeps.engines import training_tasks
    from cloc_jax.sweeps.run_plan import resolved

    try:
        failed = training_tasks.train([resolved(p) for p in plans], folder)
    except errors.Interrupted as stop:
        print(stop, file=sys.stderr)
        return 128 + stop.number
    except (ValueError, OSError, ArithmeticError) as error:
        if not _is_ours(error):
            raise
        print(f"error: {error}", file=sys.stderr)
        return FAILED
    for name, reason in failed.items():
        print(f"error: {name}: {reason}", file=sys.stderr)
    return FAILED if failed else DONE


def _is_ours(error: BaseException) -> bool:
    """Whether this project raised it: the same would happen again."""
    last = traceback.extract_tb(error.__traceback__)[-1].filename
    return pathlib.Path(__file__).resolve().parents[2] in pathlib.Path(last).parents


class Child:
    """A worker process that its parent starts and stops."""

    def __init__(
        self,
        path: pathlib.Path,
        *,
        cores: Sequence[int] = (),
        variables: Mapping[str, str] | None = None,
    ):
        """Starts it.

        Args:
          path: of the task.
          cores: that it may use; all where there are none.
          variables: of its environment, besides those of the task.
        """
        self._is_asked = False
        variables_of_task, place = task_files.environment_of(path)
        self.log = path.with_suffix(".log")
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", __spec__.name, str(path)],
                cwd=place,
                env=variables_of_task | dict(variables or {}),
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                preexec_fn=_preparation(os.getpid(), cores),
                # Ctrl-C is for the parent, which stops its children in its own way.
                process_group=0,
            )

    def code(self) -> int | None:
        """Its exit code; None while it works."""
        return self._process.poll()

    def wait(self, seconds: float | None = None) -> int:
        """Its exit code; one that takes longer is stopped, and counts as dead."""
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired:
            self.stop()
            return -signal.SIGTERM

    def ask_to_stop(self) -> None:
        """Asks it, once, to write a checkpoint and end: the second time it ends."""
        if not self._is_asked:
            self._is_asked = True
            self._send(signal.SIGTERM)

    def stop(self) -> None:
        """Asks it to write a checkpoint and end, then ends it.

        A signal handler may call this while `wait` waits in the same thread, so it
        must not use the locks of `subprocess`.
        """
        end = time.monotonic() + GRACE_SECONDS
        self.ask_to_stop()
        while not self._has_ended():
            if time.monotonic() > end:
                self._send(signal.SIGKILL)
            time.sleep(0.1)

    def _send(self, number: int) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.kill(self._process.pid, number)

    def _has_ended(self) -> bool:
        """Whether it has, leaving its exit code for whoever waits."""
        how = os.WEXITED | os.WNOHANG | os.WNOWAIT
        try:
            return os.waitid(os.P_PID, self._process.pid, how) is not None
        except ChildProcessError:
            return True  # its exit code was read already


def reason(log: pathlib.Path, run: str = "", *, start: int = 0) -> str:
    """What a worker said last before it failed.

    Args:
      log: what workers of its task said.
      run: what was said of this one counts before all else.
      start: bytes of the log that are from earlier workers.
    """
    said = log.read_bytes()[start:] if log.exists() else b""
    lines = said.decode(errors="replace").splitlines()
    failures = [line for line in lines if line.startswith("error: ")]
    of_run = [line for line in failures if run and line.startswith(f"error: {run}: ")]
    found = of_run or failures or lines or ["it said nothing"]
    last = found[-1].removeprefix("error: ").removeprefix(f"{run}: ").strip()
    return f"{last} (see {log})"


def _preparation(parent: int, cores: Sequence[int]) -> Callable[[], None]:
    """What a child does first: it keeps to its cores, and ends with its parent."""
    library = ctypes.CDLL(None) if sys.platform == "linux" else None

    def prepare() -> None:
        if library:
            # It may still write a checkpoint, so it is asked and not killed.
            library.prctl(PR_SET_PDEATHSIG, signal.SIGTERM)
            if os.getppid() != parent:  # the parent was gone before that
                os._exit(128 + signal.SIGTERM)
        if cores:
            os.sched_setaffinity(0, cores)

    return prepare


if __name__ == "__main__":
    sys.exit(main(pathlib.Path(sys.argv[1])))
