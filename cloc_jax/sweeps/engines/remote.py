"""What engines with workers share: tasks are submitted, watched, retried, listed."""

import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

from cloc_jax.runtime.console import console
from cloc_jax.sweeps.engines import claim_files, driver, task_files, worker
from cloc_jax.sweeps.engines.task_files import Task, is_finished

LOOK_SECONDS = 1.0  # between two looks at all tasks
BUSY_SECONDS = 15.0  # before a task is tried again that somebody else works on


@runtime_checkable
class Backend(Protocol):
    """Where workers run."""

    limit: int  # tasks that may be submitted at a time; 0 for any number

    def submit(self, paths: Sequence[pathlib.Path]) -> list[Any]:
        """Starts a worker for each task file; what tells one from the others."""
        ...

    def code(self, job: Any) -> int | None | str:
        """The exit code of a worker that ended, None before, or why it has none."""
        ...

    def cancel(self, job: Any) -> None:
        """Stops a worker, or takes it from the queue."""
        ...


class Attempt(NamedTuple):
    """A task under way."""

    task: Task
    number: int
    job: Any
    said: int = 0  # bytes in its log from earlier attempts


def train(
    backend: Backend,
    tasks: Sequence[Task],
    folder: pathlib.Path,
    options: driver.Options,
    *,
    sleep: Callable[[float], None] = time.sleep,
) -> dict[str, str]:
    """Trains tasks on a backend; why runs did not finish, by their name."""
    failed: dict[str, str] = {}
    waiting = [(task, 1, 0.0) for task in tasks]  # with attempt, and not before when
    under_way: list[Attempt] = []
    done = 0
    try:
        while waiting or under_way:
            room = backend.limit - len(under_way) if backend.limit else len(waiting)
            now = time.monotonic()
            ready = [w for w in waiting if w[2] <= now][: max(room, 0)]
            waiting = [w for w in waiting if w not in ready]
            under_way += _submit(backend, ready, folder)
            for attempt in list(under_way):
                code = backend.code(attempt.job)
                if code is None:
                    continue
                under_way.remove(attempt)
                again, why = _judge(attempt, code, folder, options)
                if again is not None:
                    waiting.append((attempt.task, *again))
                    continue
                done += 1
                failed |= why
                console.print(f"{done} of {len(tasks)} tasks are done")
            if waiting or under_way:
                sleep(LOOK_SECONDS)
    except BaseException:
        for attempt in under_way:
            backend.cancel(attempt.job)
        raise
    return failed


def _submit(backend: Backend, ready, folder: pathlib.Path) -> list[Attempt]:
    if not ready:
        return []
    paths = []
    for task, _, _ in ready:
        driver.prepare(task, folder)
        paths.append(task_files.write(task, folder))
    logs = [path.with_suffix(".log") for path in paths]
    said = [log.stat().st_size if log.exists() else 0 for log in logs]
    jobs = backend.submit(paths)
    return [
        Attempt(task, number, job, before)
        for (task, number, _), job, before in zip(ready, jobs, said, strict=True)
    ]


def _judge(
    attempt: Attempt, code: int | str, folder: pathlib.Path, options: driver.Options
) -> tuple[tuple[int, float] | None, dict[str, str]]:
    """The next attempt and when, or None and why runs of the task did not finish."""
    task = attempt.task
    left = [p.name for p in task.plans if not is_finished(folder, p)]
    if not left:
        return None, {}
    log = folder / task_files.FOLDER / f"{task.name}.log"
    said = {run: worker.reason(log, run, start=attempt.said) for run in left}
    if code == worker.FAILED:
        return None, said
    if code in (worker.BUSY, worker.UNREADY):
        who = claim_files.owner(folder, left[0]) or "another process"
        console.print(f"{task.name}: {who} works on it; waiting", soft_wrap=True)
        return (attempt.number, time.monotonic() + BUSY_SECONDS), {}
    why = code if isinstance(code, str) else f"its worker ended with {code}"
    if attempt.number <= options.retries:
        console.print(f"{task.name}: {why}; it goes on from where it was")
        return (attempt.number + 1, 0.0), {}
    why += f" in {attempt.number} attempts"
    return None, {run: f"{why}; {text}" for run, text in said.items()}
