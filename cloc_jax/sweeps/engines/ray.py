"""The Ray engine: tasks on the machines of a Ray cluster."""

import logging
import pathlib
from collections.abc import Sequence
from typing import Any

from cloc_jax.sweeps.engines import driver, remote, worker
from cloc_jax.sweeps.engines.task_files import Task

MISSING = "--engine=ray needs Ray: pip install 'cloc_jax[ray]'."


def work(path: str, hours: float) -> int:
    """What Ray runs: a worker process, whose exit code it returns."""
    return worker.Child(pathlib.Path(path)).wait(hours * 3600)


class Cluster:
    """Workers on a Ray cluster that is there already, or one of this machine."""

    def __init__(self, options: driver.Options):
        try:
            import ray
        except ImportError:
            raise ValueError(MISSING) from None
        settings = dict(options.settings)
        address = settings.pop("address", None)
        self._ray, self.limit = ray, options.workers
        try:
            # With None it joins the cluster that RAY_ADDRESS names, or starts one.
            ray.init(address=address, log_to_driver=False, logging_level=logging.ERROR)
        except ConnectionError as error:
            raise ValueError(f"no Ray cluster answers at {address}: {error}") from None
        package = str(pathlib.Path(__file__).resolve().parents[3])
        given: dict[str, Any] = {
            "num_cpus": 1,
            # The driver retries: it clears what must start anew.
            "max_retries": 0,
            "runtime_env": {"env_vars": {"PYTHONPATH": package}},
        }
        try:
            self._work = ray.remote(work).options(**(given | settings))
        except (ValueError, TypeError) as error:
            raise ValueError(
                f"--option is {settings}, which Ray does not take: {error}"
            ) from None
        self._hours = options.hours

    def submit(self, paths: Sequence[pathlib.Path]) -> list[Any]:
        """One task of Ray's for each."""
        return [self._work.remote(str(path), self._hours) for path in paths]

    def code(self, job: Any) -> int | None | str:
        """The exit code of the worker; None while the task waits or runs."""
        ready, _ = self._ray.wait([job], timeout=0)
        if not ready:
            return None
        try:
            return int(self._ray.get(job))
        except self._ray.exceptions.RayError as error:
            return f"its machine or worker was lost ({type(error).__name__})"

    def cancel(self, job: Any) -> None:
        """Ends the process that waits for the worker, which ends the worker."""
        self._ray.cancel(job, force=True)

    def close(self) -> None:
        """Leaves the cluster."""
        self._ray.shutdown()


def train(
    tasks: Sequence[Task], folder: pathlib.Path, options: driver.Options
) -> dict[str, str]:
    """Trains tasks on a Ray cluster; why runs did not finish, by their name."""
    cluster = Cluster(options)
    try:
        return remote.train(cluster, tasks, folder, options)
    finally:
        cluster.close()
