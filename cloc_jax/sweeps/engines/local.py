"""The local engine without workers: this process trains one task after the other."""

import pathlib
import time
import traceback
from collections.abc import Sequence

from cloc_jax.runtime import errors
from cloc_jax.runtime.console import console
from cloc_jax.sweeps.engines import claim_files, driver
from cloc_jax.sweeps.engines.task_files import Task, is_finished
from cloc_jax.sweeps.run_plan import Plan, resolved

WAIT_SECONDS = 5.0  # between two looks at runs that others train


def train(
    tasks: Sequence[Task], folder: pathlib.Path, options: driver.Options
) -> dict[str, str]:
    """Trains tasks in turn; why runs did not finish, by their name."""
    import jax  # late: the drivers of other engines never load it

    if jax.process_count() > 1:
        # All processes must do the same, so none of them may go on alone.
        return _train_in_step(tasks, folder)
    failed: dict[str, str] = {}
    waiting, has_said = list(tasks), False
    while waiting:
        busy = []
        for task in waiting:
            found, rest = _train_one(task, folder)
            failed |= found
            if rest.plans:
                busy.append(rest)
        waiting = busy
        if waiting and not has_said:
            who = claim_files.owner(folder, waiting[0].plans[0].name)
            console.print(
                f"waiting for {len(waiting)} tasks that {who or 'another process'} "
                "works on",
                soft_wrap=True,
            )
            has_said = True
        if waiting:
            time.sleep(WAIT_SECONDS)
    return failed


def _train_one(task: Task, folder: pathlib.Path) -> tuple[dict[str, str], Task]:
    """Why runs did not finish, and the task of those that somebody else works on."""
    driver.prepare(task, folder)
    names = [p.name for p in task.plans if not is_finished(folder, p)]
    with claim_files.claimed(folder, names) as mine:
        others = [p for p in task.plans if p.name in names and p.name not in mine]
        # While waiting for the claim another driver may have finished a run.
        own = [p for p in task.plans if p.name in mine and not is_finished(folder, p)]
        if own and not driver.is_ready(task._replace(plans=tuple(own)), folder):
            return {}, task  # another driver had it in between
        failed = _try(own, folder) if own else {}
        return failed, task._replace(plans=tuple(others))


def _try(plans: Sequence[Plan], folder: pathlib.Path) -> dict[str, str]:
    from cloc_jax.sweeps.engines import training_tasks

    try:
        return training_tasks.train([resolved(p) for p in plans], folder)
    except errors.Interrupted:
        raise
    except (ValueError, OSError, ArithmeticError) as error:
        if isinstance(error, OSError) and error.errno in errors.NO_ROOM:
            raise  # the other runs would not get further
        why = errors.sentence(error) or str(error)
    except Exception as error:
        traceback.print_exc()
        why = (str(error).strip() or type(error).__name__).splitlines()[0]
    return {p.name: why for p in plans}


def _train_in_step(tasks: Sequence[Task], folder: pathlib.Path) -> dict[str, str]:
    from cloc_jax.runtime import processes
    from cloc_jax.sweeps.engines import training_tasks

    failed: dict[str, str] = {}
    for task in tasks:
        if processes.is_first():
            driver.prepare(task, folder)
        processes.wait(f"folders of {task.name}")
        plans = [resolved(p) for p in task.plans]
        failed |= training_tasks.train(plans, folder)
    return failed
