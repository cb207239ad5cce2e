"""Executors: who runs the commands that train runs; here the two of this machine.

The command is the unit of work. `launch.py train --config=FILE --run=DIR --resume
--no-report` starts a run, goes on with it, or does nothing where it is finished, all
under the run's lock. So whoever executes a command need know nothing else, and the
run's folder says what became of it: results, or failed.json with the reason.
"""

import concurrent.futures
import itertools
import math
import os
import pathlib
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any

from cloc_jax.runtime import environment, errors, files, processes
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import InUse, RunFolder
from cloc_jax.sweeps.plan import Options, Plan, has_ended, is_held

COMMANDS = "commands"  # folder beside the runs: a configuration and a log of each
PROGRAM = ("-m", "cloc_jax")  # launch.py is not where the package is installed
PACKAGE = str(pathlib.Path(__file__).resolve().parents[2])
# What would make a command join a run of several processes.
JOINS = re.compile(
    r"SLURM_|PMI_|PMIX_|OMPI_|JAX_(COORDINATOR_ADDRESS|NUM_PROCESSES|PROCESS_ID)$"
)
LOOK_SECONDS = 0.2  # between two looks at a command
HELD_SECONDS = 5.0  # between two looks at a run that another process trains
GRACE_SECONDS = 60.0  # to write a checkpoint when asked to stop
GPUS = pathlib.Path("/proc/driver/nvidia/gpus")  # a folder for each
VISIBLE = "CUDA_VISIBLE_DEVICES"


class Died(Exception):
    """A command ended without results or a reason, such as by a signal."""


class Work:
    """A command for one run; call it on the machine that trains, until the run ends."""

    def __init__(self, plan: Plan, folder: pathlib.Path):
        """Writes the configuration of a run of that folder, for its command."""
        self.run = folder.absolute() / plan.name
        self.config = folder.absolute() / COMMANDS / f"{plan.name}.json"
        self.is_stopped = False  # set it to have the run saved and the call return
        self._process: subprocess.Popen | None = None
        self._working_folder = os.getcwd()
        self.config.parent.mkdir(exist_ok=True)
        files.write_sealed(self.config, plan.config.to_dict())

    def __call__(self, variables: Mapping[str, str] | None = None) -> None:
        """Raises Died where the run neither finished nor failed.

        A run that another process trains is waited for. `variables` are of the
        command's environment, besides those of this process.
        """
        while not (self.is_stopped or has_ended(self.run)):
            if is_held(self.run):
                time.sleep(HELD_SECONDS)
                continue
            self._process = process = self._start(variables or {})
            self._wait()
            code = process.wait()
            if not (self.is_stopped or has_ended(self.run) or is_held(self.run)):
                raise Died(f"its command ended with {code}")

    def stop(self) -> None:
        """Lets the command write a checkpoint, and ends it.

        A signal handler may call this amid the call itself, so nothing here may need
        the locks of `subprocess`.
        """
        self.is_stopped = True
        self._wait()

    def checkpoint(self) -> Any:
        """What submitit submits in turn, before the end of a job's time."""
        import submitit

        self.stop()
        self.is_stopped, self._process = False, None
        return submitit.helpers.DelayedSubmission(self)

    def _wait(self) -> None:
        """Waits for the command's end, and sees to it once the work is stopped."""
        kill = math.inf
        while self._process and not _has_exited(self._process.pid):
            if self.is_stopped and kill == math.inf:
                kill = time.monotonic() + GRACE_SECONDS
                self._process.send_signal(signal.SIGTERM)
            elif time.monotonic() > kill:
                self._process.kill()
            time.sleep(LOOK_SECONDS)

    def _start(self, variables: Mapping[str, str]) -> subprocess.Popen:
        words = ["train", f"--config={self.config}", f"--run={self.run}"]
        merged = {**os.environ, **variables}
        paths = (PACKAGE, merged.get("PYTHONPATH", ""))
        merged["PYTHONPATH"] = os.pathsep.join(filter(None, paths))
        place = self._working_folder
        with self.config.with_suffix(".log").open("ab") as log:
            return subprocess.Popen(
                [sys.executable, *PROGRAM, *words, "--resume", "--no-report"],
                cwd=place if os.path.isdir(place) else None,
                env={k: v for k, v in merged.items() if not JOINS.match(k)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                # It may still write a checkpoint, so it is asked and not killed.
                preexec_fn=lambda: processes.end_with_parent(signal.SIGTERM),
                # Ctrl-C is for the parent, which stops its commands in its own way.
                process_group=0,
            )


def _has_exited(pid: int) -> bool:
    """Whether a child has, leaving its exit code for `wait`."""
    try:
        return bool(os.waitid(os.P_PID, pid, os.WEXITED | os.WNOHANG | os.WNOWAIT))
    except ChildProcessError:
        return True  # its exit code was read already


def train_in_process(plans: Sequence[Plan], folder: pathlib.Path) -> None:
    """Trains runs one after another in this process, those last that others train.

    A run that fails leaves its reason in its folder, and the others go on; a full disk
    ends all.
    """
    # Late: it loads JAX, which the drivers of other executors never do.
    from cloc_jax.report import evaluation

    waiting = list(plans)
    while waiting:
        plan = waiting.pop(0)
        run = RunFolder(folder / plan.name)
        if has_ended(run.path):
            continue  # another driver was faster
        try:
            console.print(f"run {plan.name}", soft_wrap=True)
            evaluation.complete_run(plan.config, run, resume=True, draws=False)
            processes.wait(f"results of {plan.name}")
        except InUse as error:
            console.print(f"waiting: {error}", soft_wrap=True)
            waiting.append(plan)
            while all(is_held(folder / other.name) for other in waiting):
                time.sleep(HELD_SECONDS)
        except errors.Interrupted:
            raise
        except Exception as error:
            is_full = getattr(error, "errno", None) in errors.NO_ROOM
            # Processes that train together must not go on alone.
            if is_full or not processes.is_alone():
                raise
            if not isinstance(error, ValueError | OSError | ArithmeticError):
                console.print_exception()


def train_with_workers(works: Sequence[Work], options: Options) -> dict[str, str]:
    """Runs commands side by side on this machine; why runs were lost, by name."""
    free, own = shares(options.workers), threading.local()
    lost: dict[str, str] = {}

    def begin() -> None:
        cores, own.variables = free.pop()
        os.sched_setaffinity(0, cores)  # of this thread and what it starts

    def train(work: Work) -> None:
        name = work.run.name
        for number in range(1, options.retries + 2):
            try:
                return work(own.variables)
            except Died as died:
                lost[name] = f"{died} in {number} attempts"
                console.print(f"{name}: {died} (attempt {number})", soft_wrap=True)
        return None

    with concurrent.futures.ThreadPoolExecutor(len(free), initializer=begin) as pool:
        try:
            futures = [pool.submit(train, work) for work in works]
            for count, future in enumerate(concurrent.futures.as_completed(futures), 1):
                future.result()
                console.print(f"{count} of {len(works)} runs have ended")
        except BaseException:
            console.print("stopping workers as soon as all is saved")
            for work in works:
                work.is_stopped = True
            raise
    return lost


def shares(workers: int) -> list[tuple[Sequence[int], dict[str, str]]]:
    """Cores of each worker, and variables that name its GPUs.

    ValueError where this machine has too little for so many.
    """
    cores, gpus = environment.usable_cores(), _gpus()
    if not hasattr(os, "sched_setaffinity"):
        raise ValueError("--workers needs Linux, to give each cores of its own.")
    found, what = (gpus, "GPUs") if gpus else (cores, "cores")
    if workers > min(len(found), len(cores)):
        more = ", or JAX_PLATFORMS=cpu to train on the cores" if gpus else ""
        raise ValueError(
            f"--workers is {workers}, but this process may use {len(found)} {what}; "
            f"use that many at most{more}."
        )
    visible = [{VISIBLE: ",".join(own)} if own else {} for own in _parts(gpus, workers)]
    return list(zip(_parts(cores, workers), visible, strict=True))


def _parts(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    ends = [len(items) * i // count for i in range(count + 1)]
    return [items[a:b] for a, b in itertools.pairwise(ends)]


def _gpus() -> list[str]:
    """NVIDIA's GPUs that JAX would use, without loading it."""
    asked = os.environ.get("JAX_PLATFORMS") or "cuda"
    if not {"cuda", "gpu"} & set(asked.split(",")):
        return []
    if VISIBLE in os.environ:
        # CUDA stops at the first that is none, such as -1.
        listed = [one.strip() for one in os.environ[VISIBLE].split(",")]
        return list(itertools.takewhile(lambda one: one and one[0] != "-", listed))
    return [str(i) for i, _ in enumerate(GPUS.iterdir())] if GPUS.is_dir() else []
