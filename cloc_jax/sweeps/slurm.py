"""The SLURM executor: commands as job arrays, by submitit.

Before its time limit or a preemption a job saves its run and queues itself again. With
`cluster=local` submitit starts the same jobs as processes of this machine.
"""

import pathlib
import time
from collections.abc import Sequence
from typing import Any

from cloc_jax.runtime.console import console
from cloc_jax.sweeps.executors import Work
from cloc_jax.sweeps.plan import Options, has_ended

LOOK_SECONDS = 1.0  # between two looks at all jobs


def make_executor(folder: pathlib.Path, options: Options) -> Any:
    """Submitit's executor; ValueError where it cannot work as it is asked to."""
    import submitit  # late: it is optional

    settings = dict(options.settings)
    cluster = settings.pop("cluster", None)
    executor = submitit.AutoExecutor(
        folder, cluster=cluster, slurm_max_num_timeout=options.retries
    )
    if executor.cluster == "local" and cluster != "local":
        raise ValueError(
            "--engine=slurm found no sbatch on this machine; start it where jobs are "
            "submitted, or add --option=cluster=local to try it here."
        )
    minutes = max(1, round(options.hours * 60))
    try:
        executor.update_parameters(name="cloc_jax", timeout_min=minutes)
        if options.workers and executor.cluster == "slurm":
            executor.update_parameters(slurm_array_parallelism=options.workers)
        executor.update_parameters(**settings)
    except (NameError, TypeError) as error:
        raise ValueError(
            f"--option is {settings}, which submitit does not take: {error}"
        ) from None
    return executor


def train_on_slurm(works: Sequence[Work], options: Options) -> dict[str, str]:
    """Runs commands in job arrays; why runs were lost, by name."""
    executor = make_executor(works[0].config.parent / "slurm", options)
    waiting = [(work, 1) for work in works]
    busy: list[tuple[Any, Work, int]] = []
    lost: dict[str, str] = {}
    try:
        while waiting or busy:
            if waiting:
                with executor.batch():
                    busy += [(executor.submit(work), work, n) for work, n in waiting]
            waiting = []
            time.sleep(LOOK_SECONDS)
            ended = [one for one in busy if one[0].done()]
            busy = [one for one in busy if one not in ended]
            for job, work, number in ended:
                if has_ended(work.run):
                    continue
                why = f"its job {job.job_id} {job.state.lower()}"
                lost[work.run.name] = f"{why} in {number} attempts"
                console.print(f"{work.run.name}: {why} (attempt {number})")
                if number <= options.retries:
                    waiting.append((work, number + 1))
            if ended:
                left = len(waiting) + len(busy)
                console.print(f"{len(works) - left} of {len(works)} runs have ended")
    finally:
        for job, _, _ in busy:
            job.cancel()
    return lost
