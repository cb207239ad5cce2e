"""The SLURM engine: tasks as job arrays, by submitit.

With `cluster=local` submitit starts the same jobs as processes of this machine.
"""

import pathlib
from collections.abc import Sequence
from typing import Any

from cloc_jax.sweeps.engines import driver, remote, worker
from cloc_jax.sweeps.engines.task_files import FOLDER, Task

MISSING = "--engine=slurm needs submitit: pip install 'cloc_jax[slurm]'."


class Job:
    """What submitit runs: a worker, stopped and queued again when time is up."""

    def __init__(self, path: pathlib.Path):
        self.path = path
        self._child: worker.Child | None = None

    def __call__(self) -> int:
        self._child = worker.Child(self.path)
        return self._child.wait()

    def checkpoint(self) -> Any:
        """Called before the time limit or a preemption; what to submit in turn."""
        import submitit

        if self._child:
            self._child.stop()
        return submitit.helpers.DelayedSubmission(Job(self.path))


class Slurm:
    """Workers in job arrays."""

    def __init__(self, folder: pathlib.Path, options: driver.Options):
        try:
            import submitit
        except ImportError:
            raise ValueError(MISSING) from None
        settings = dict(options.settings)
        cluster = settings.pop("cluster", None)
        self._executor = submitit.AutoExecutor(
            folder / FOLDER / "slurm",
            cluster=cluster,
            slurm_max_num_timeout=options.retries,
        )
        if self._executor.cluster == "local" and cluster != "local":
            raise ValueError(
                "--engine=slurm found no sbatch on this machine; start it where jobs "
                "are submitted, or add --option=cluster=local to try it here."
            )
        is_local = self._executor.cluster == "local"
        # SLURM keeps to this itself; processes of this machine have no queue.
        self.limit = options.workers if is_local else 0
        try:
            self._executor.update_parameters(
                name="cloc_jax", timeout_min=max(1, round(options.hours * 60))
            )
            if options.workers and not is_local:
                self._executor.update_parameters(
                    slurm_array_parallelism=options.workers
                )
            self._executor.update_parameters(**settings)
        except (NameError, TypeError) as error:
            raise ValueError(
                f"--option is {settings}, which submitit does not take: {error}"
            ) from None

    def submit(self, paths: Sequence[pathlib.Path]) -> list[Any]:
        """One array of all tasks."""
        with self._executor.batch():
            return [self._executor.submit(Job(path)) for path in paths]

    def code(self, job: Any) -> int | None | str:
        """The exit code of the worker; None while the job waits or runs."""
        if not job.done():
            return None
        try:
            return int(job.result())
        except Exception as error:  # submitit wraps whatever ended the job
            state = job.state.lower() if job.state else "ended"
            return f"its job {job.job_id} {state}: {str(error).splitlines()[0]}"

    def cancel(self, job: Any) -> None:
        """Takes the job from the queue, or stops it."""
        job.cancel()


def train(
    tasks: Sequence[Task], folder: pathlib.Path, options: driver.Options
) -> dict[str, str]:
    """Trains tasks in job arrays; why runs did not finish, by their name."""
    return remote.train(Slurm(folder, options), tasks, folder, options)
