"""Workers of the local engine: processes of this machine, each with its own share.

Runs side by side, each on some of the cores, finish sooner than one after the other on
all of them: much of a short run, such as loading, compiling and its report, keeps one
core busy only. With GPUs each worker has some of these as well.
"""

import os
import pathlib
import time
from collections.abc import Sequence
from typing import NamedTuple, TypeVar

from cloc_jax.runtime import environment
from cloc_jax.studies.engines import driver, remote, worker
from cloc_jax.studies.engines.task_files import Task

GPUS = pathlib.Path("/proc/driver/nvidia/gpus")  # a folder for each
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
        self._seconds = options.hours * 3600
        self._free = shares(options.workers)

    def submit(self, paths: Sequence[pathlib.Path]) -> list[Job]:
        """One process for each."""
        end = time.monotonic() + self._seconds
        jobs = []
        for path in paths:
            share = self._free.pop(0)
            child = worker.Child(path, cores=share.cores, variables=share.variables)
            jobs.append(Job(child, share, end))
        return jobs

    def code(self, job: Job) -> int | None | str:
        """The exit code of the worker; one that takes too long is stopped."""
        code: int | None | str = job.child.code()
        if code is None and time.monotonic() > job.end:
            job.child.stop()
            code = f"its worker took more than {self._seconds / 3600:g} hours"
        if code is not None:
            self._free.append(job.share)
        return code

    def cancel(self, job: Job) -> None:
        """Asks the worker to save what it has, and waits for its end."""
        job.child.stop()


def shares(workers: int) -> list[Share]:
    """This machine in equal parts; ValueError where it has too little for that."""
    cores = environment.usable_cores()
    gpus = _gpus()
    for kind, count in (("GPUs", len(gpus)), ("cores", len(cores))):
        if 0 < count < workers:
            raise ValueError(
                f"--workers is {workers}, but this process may use {count} {kind}; "
                f"use {count} at most."
            )
    return [
        Share(own, {VISIBLE: ",".join(some)} if some else {})
        for own, some in zip(_parts(cores, workers), _parts(gpus, workers), strict=True)
    ]


def train(
    tasks: Sequence[Task], folder: pathlib.Path, options: driver.Options
) -> dict[str, str]:
    """Trains tasks side by side; why runs did not finish, by their name."""
    return remote.train(LocalWorkers(options), tasks, folder, options)


def _parts(items: Sequence[T], count: int) -> list[Sequence[T]]:
    """Neighbours stay together: cores that share a cache, GPUs that share a link."""
    ends = [len(items) * i // count for i in range(count + 1)]
    return [items[a:b] for a, b in zip(ends, ends[1:], strict=False)]


def _gpus() -> list[str]:
    """NVIDIA's GPUs that JAX would use, without loading it."""
    if "cpu" in os.environ.get("JAX_PLATFORMS", "").split(","):
        return []
    if VISIBLE in os.environ:
        return [one for one in os.environ[VISIBLE].split(",") if one]
    return [str(i) for i, _ in enumerate(GPUS.iterdir())] if GPUS.is_dir() else []
