"""Workers of the local engine: processes of this machine, each with its own share.

Runs side by side, each on some of the cores, finish sooner than one after the other on
all of them: much of a short run, such as loading, compiling and its report, keeps one
core busy only. With GPUs each worker has some of these as well.
"""

import importlib.util
import os
import pathlib
import sys
import time
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from cloc_jax.runtime import environment
from cloc_jax.runtime.console import console
from cloc_jax.sweeps.engines import driver, remote, task_files, worker
from cloc_jax.sweeps.engines.task_files import Task

GPUS = pathlib.Path("/proc/driver/nvidia/gpus")  # a folder for each
TOPOLOGY = "/sys/devices/system/cpu/cpu{}/topology/{}"
VISIBLE = "CUDA_VISIBLE_DEVICES"
T = TypeVar("T")


class Share(NamedTuple):
    """What a worker may use of this machine."""

    cores: Sequence[int]
    variables: dict[str, str]


class Job(NamedTuple):
    """A worker at work."""

    child: worker.Child
    share: Share
    end: float  # when it has taken too long


class LocalWorkers:
    """Workers that are children of this process."""

    def __init__(self, options: driver.Options):
        self.limit = options.workers
        self._hours = options.hours
        self._free = shares(options.workers)
        self._started: list[worker.Child] = []

    def submit(self, paths: Sequence[pathlib.Path]) -> list[Job]:
        """One process for each."""
        end = time.monotonic() + self._hours * 3600
        jobs = []
        for path in paths:
            share = self._free.pop(0)
            child = worker.Child(path, cores=share.cores, variables=share.variables)
            self._started.append(child)
            jobs.append(Job(child, share, end))
        return jobs

    def code(self, job: Job) -> int | None | str:
        """The exit code of the worker; one that takes too long is stopped."""
        code: int | None | str = job.child.code()
        if code is None and time.monotonic() > job.end:
            job.child.stop()
            code = f"its worker took more than {self._hours:g} hours"
        if code is not None:
            self._started.remove(job.child)
            self._free.append(job.share)
        return code

    def cancel(self, job: Job) -> None:
        """Asks the worker to save what it has; `close` waits for its end."""
        job.child.ask_to_stop()

    def close(self) -> None:
        """Stops the workers that are still at work."""
        busy = [child for child in self._started if child.code() is None]
        if busy:
            console.print(f"stopping {len(busy)} workers as soon as all is saved")
        for child in busy:
            child.ask_to_stop()
        for child in busy:
            child.stop()


def shares(workers: int) -> list[Share]:
    """This machine in equal parts; ValueError where it has too little for that."""
    if sys.platform != "linux":
        raise ValueError(
            f"--workers is {workers}, but only Linux can give processes cores of their "
            "own; leave it out."
        )
    cores, gpus = _neighbours(environment.usable_cores()), _gpus()
    if 0 < len(gpus) < workers:
        raise ValueError(
            f"--workers is {workers}, but this process may use {len(gpus)} GPUs; use "
            "that many at most, or JAX_PLATFORMS=cpu to train on the cores."
        )
    if len(cores) < workers:
        raise ValueError(
            f"--workers is {workers}, but this process may use {len(cores)} cores; use "
            "that many at most."
        )
    return [
        Share(own, {VISIBLE: ",".join(some)} if some else {})
        for own, some in zip(_parts(cores, workers), _parts(gpus, workers), strict=True)
    ]


def train(
    tasks: Sequence[Task], folder: pathlib.Path, options: driver.Options
) -> dict[str, str]:
    """Trains tasks side by side; why runs did not finish, by their name."""
    workers = LocalWorkers(options)
    console.print(
        f"{options.workers} workers; what they say is in {folder / task_files.FOLDER}",
        soft_wrap=True,
    )
    try:
        return remote.train(workers, tasks, folder, options)
    finally:
        workers.close()


def _parts(items: Sequence[T], count: int) -> list[Sequence[T]]:
    ends = [len(items) * i // count for i in range(count + 1)]
    return [items[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def _neighbours(cores: Sequence[int]) -> list[int]:
    """Threads of one core, and cores of one processor, after each other."""

    def place(core: int) -> tuple[int, int, int]:
        try:
            processor, own = (
                int(pathlib.Path(TOPOLOGY.format(core, name)).read_text())
                for name in ("physical_package_id", "core_id")
            )
        except (OSError, ValueError):
            return 0, core, core
        return processor, own, core

    return sorted(cores, key=place)


def _gpus() -> list[str]:
    """NVIDIA's GPUs that JAX would use, without loading it."""
    asked = os.environ.get("JAX_PLATFORMS", "")
    is_asked = not asked or {"cuda", "gpu"} & set(asked.split(","))
    if not is_asked or not _has_plugin():
        return []
    if VISIBLE in os.environ:
        listed = [one.strip() for one in os.environ[VISIBLE].split(",")]
        # CUDA stops at the first that is none, such as -1.
        ends = [i for i, one in enumerate(listed) if not one or one.startswith("-")]
        return listed[: ends[0]] if ends else listed
    return [str(i) for i, _ in enumerate(GPUS.iterdir())] if GPUS.is_dir() else []


def _has_plugin() -> bool:
    names = ("jax_cuda12_plugin", "jax_cuda13_plugin")
    return any(importlib.util.find_spec(name) for name in names)
