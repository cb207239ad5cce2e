"""The driver: which runs are waiting, their folders, and an engine that trains them.

Only the driver makes and clears folders. A worker fills those that it is given, so a
worker that was believed dead can never remove what its successor writes.
"""

import pathlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from cloc_jax.config import saved_config
from cloc_jax.runtime import files, run_lock
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder, changed_settings
from cloc_jax.sweeps.engines import claim_files
from cloc_jax.sweeps.engines.task_files import FOLDER as TASKS
from cloc_jax.sweeps.engines.task_files import Task, is_finished, make_tasks
from cloc_jax.sweeps.run_plan import Plan, resolved

ENGINES = ("local", "slurm", "ray")
LISTED, FAILED = "sweep.json", "failed.json"
# What lies beside runs; the last are of `tables`, which are there without any run.
BESIDE = (
    *(FAILED, "trunk", claim_files.FOLDER, TASKS),
    *("listed", "summaries", "tables.md", "tables.html"),
)
# What the weights decide: filled in by whoever loads them.
RESOLVED = ("stride", "epsilon", "preprocessing")


class Options(NamedTuple):
    """Where and how runs are trained."""

    engine: str = "local"
    # Tasks at a time; 0 for as many as there is room for, or one of the local engine.
    workers: int = 0
    hours: float = 24.0  # that a task may take before it is stopped and retried
    retries: int = 2  # of a task that died or took too long
    settings: Mapping[str, Any] = {}  # the engine's own

    @property
    def is_in_process(self) -> bool:
        """Whether this process trains the runs itself."""
        return self.engine == "local" and self.workers <= 1


LOCAL = Options()
# Trains tasks; gives why runs did not finish, by their name.
Engine = Callable[[Sequence[Task], pathlib.Path, Options], dict[str, str]]


def carry_out(
    plans: Sequence[Plan],
    folder: pathlib.Path,
    options: Options = LOCAL,
    *,
    is_open: bool = False,
    entries: Mapping[str, Mapping[str, Any]] | None = None,
) -> dict[str, str]:
    """Trains and scores the runs that are not finished; why some could not be.

    Args:
      plans: the runs.
      folder: each run has its own below it.
      options: where and how.
      is_open: whether the folder may hold further runs than these, and a run that
        cannot be trained as it is set is listed like any other that fails.
      entries: what the list of runs says of each besides its settings, by name.
    """
    engine = _engine(options)
    listed = list_runs(folder, plans, is_open=is_open, entries=entries)
    _remove_damaged_results(folder, plans)
    waiting = [p for p in plans if not is_finished(folder, p)]
    if options.is_in_process and not is_open:
        # Before anything is made; elsewhere workers say it of their own runs.
        from cloc_jax.sweeps.engines import training_tasks

        training_tasks.check([resolved(p) for p in waiting])
    begin(folder, listed, is_open=is_open)
    if len(waiting) < len(plans):
        console.print(f"{len(plans) - len(waiting)} of {len(plans)} runs are finished")
    failed = engine(make_tasks(waiting), folder, options) if waiting else {}
    _note_failures(folder, plans, failed)
    for name, reason in failed.items():
        console.print(f"not finished: {name}: {reason}", soft_wrap=True)
    if failed and not is_open and not any(is_finished(folder, p) for p in plans):
        raise ValueError(
            f"none of the {len(plans)} runs finished; the first one said: "
            f"{next(iter(failed.values()))}"
        )
    return failed


def begin(
    folder: pathlib.Path,
    listed: Sequence[Mapping[str, Any]],
    *,
    is_open: bool = False,
) -> None:
    """Makes the folder and notes what its runs are.

    If it is open, besides those that another driver has noted since.
    """
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / LISTED
    with claim_files.alone(folder, LISTED):
        runs = {run["name"]: run for run in listed}
        if is_open and path.exists():
            runs = {run["name"]: run for run in read_listed(path)} | runs
        files.write_sealed(path, {"runs": list(runs.values())})


def read_listed(path: pathlib.Path) -> list[dict[str, Any]]:
    """What `begin` noted in the file."""
    remedy = "Put back a copy, or move it away: this command then writes it anew."
    return files.read_sealed(path, remedy=remedy, fields=("runs",))["runs"]


def list_runs(
    folder: pathlib.Path,
    plans: Sequence[Plan],
    *,
    is_open: bool,
    entries: Mapping[str, Mapping[str, Any]] | None = None,
) -> list[Mapping[str, Any]]:
    """What the runs of a folder are; refuses a folder that is something else."""
    path = folder / LISTED
    listed = {
        p.name: {"name": p.name, "setting": p.setting, **p.overrides}
        | dict((entries or {}).get(p.name, {}))
        for p in plans
    }
    if path.exists():
        before = {run["name"]: run for run in read_listed(path)}
        if is_open:
            _check_entries(folder, before.values(), entries or {})
            listed = before | listed
        elif not set(before) <= set(listed):
            raise FileExistsError(
                f"{folder} holds another sweep, with runs such as "
                f"{sorted(before)[0]}; give this one another --run folder."
            )
    elif folder.exists() and not _is_only_runs(folder, plans):
        raise FileExistsError(
            f"{folder} holds files that are not a sweep; give another --run folder."
        )
    for plan in plans:
        check_same(folder, plan)
    return list(listed.values())


def _check_entries(
    folder: pathlib.Path,
    before: Iterable[Mapping[str, Any]],
    entries: Mapping[str, Mapping[str, Any]],
) -> None:
    """Refuses a list whose runs do not say of themselves what these say."""
    needed = {field for entry in entries.values() for field in entry}
    for run in before:
        if not needed <= set(run):
            raise FileExistsError(
                f"{folder} holds a sweep, with runs such as {run['name']}; give "
                "another --run folder."
            )


def _is_only_runs(folder: pathlib.Path, plans: Sequence[Plan]) -> bool:
    """Whether a folder without a list of runs is one of these plans all the same.

    It has runs of theirs, if the list was moved away, or nothing but what is written
    beside runs.
    """
    runs = {p.name for p in plans}
    found = [path.name for path in run_lock.leftovers(folder)]
    return not runs.isdisjoint(found) or all(
        name in BESIDE or name.startswith(LISTED)  # another driver writes it just now
        for name in found
    )


def _remove_damaged_results(folder: pathlib.Path, plans: Sequence[Plan]) -> None:
    """Lets runs whose results are damaged be scored again, and says so."""
    for plan in plans:
        run = RunFolder(folder / plan.name)
        try:
            run.is_finished()
        except files.Damaged as error:
            console.print(f"{error.path} is damaged and made again", soft_wrap=True)
            run.metrics.unlink(missing_ok=True)


def check_same(folder: pathlib.Path, plan: Plan) -> None:
    """ValueError where the run that lies there was made with other settings."""
    run = RunFolder(folder / plan.name)
    if not run.config.exists():
        return
    saved = saved_config(run.read_config())
    before, now = saved.to_dict(), plan.config.to_dict()
    for field in RESOLVED:
        now["encoder"][field] = now["encoder"][field] or before["encoder"][field]
    changed = changed_settings(before, now)
    if changed:
        raise ValueError(
            f"{run.path} was made with other settings than this command's: "
            f"{'; '.join(changed)}. Give another --run folder."
        )


def prepare(task: Task, folder: pathlib.Path) -> None:
    """Makes the folders of a task's runs ready, except of those somebody works on."""
    names = [p.name for p in task.plans if not is_finished(folder, p)]
    with claim_files.claimed(folder, names) as mine:
        for name in mine:
            run = RunFolder(folder / name)
            if run.metrics.exists():
                continue  # somebody was faster
            # Runs of one program start anew together, and one that is left of them has
            # no checkpoints; without a configuration a run was cut off before its
            # first step.
            goes_on = run.config.exists() and run.checkpoints.exists()
            if run.path.exists() and (task.is_group or not goes_on):
                run.clear()
            run.path.mkdir(exist_ok=True)


def is_ready(task: Task, folder: pathlib.Path) -> bool:
    """Whether the folders are as `prepare` leaves them."""
    runs = [RunFolder(folder / p.name) for p in task.plans]
    return all(
        run.path.is_dir()
        and (
            not run_lock.leftovers(run.path)
            or (not task.is_group and run.config.exists())
        )
        for run in runs
    )


def read_failures(folder: pathlib.Path) -> dict[str, str]:
    """Why runs did not finish, by their name, as the last driver knew it."""
    path = folder / FAILED
    if not path.exists():
        return {}
    remedy = "Move it away; it only says why runs failed."
    return files.read_sealed(path, remedy=remedy)


def _note_failures(
    folder: pathlib.Path, plans: Sequence[Plan], failed: Mapping[str, str]
) -> None:
    """Keeps the failures of other plans that are still true."""
    now = {p.name for p in plans}
    with claim_files.alone(folder, FAILED):
        known = {
            name: reason
            for name, reason in read_failures(folder).items()
            if name not in now and not RunFolder(folder / name).metrics.exists()
        } | dict(failed)
        if known:
            files.write_sealed(folder / FAILED, known)
        else:
            (folder / FAILED).unlink(missing_ok=True)


def _engine(options: Options) -> Engine:
    """What trains the runs; ValueError where it is not known or not installed."""
    name = options.engine
    if options.is_in_process:
        from cloc_jax.sweeps.engines import local

        return local.train
    if name not in ENGINES:
        raise ValueError(f"--engine is {name!r}; use one of {', '.join(ENGINES)}.")
    # Late: what two of them need is optional.
    from cloc_jax.sweeps.engines import local_workers, ray, slurm

    if name == "local":
        local_workers.shares(options.workers)  # refuses, before anything is made
    engines: dict[str, Engine] = {
        "local": local_workers.train,
        "slurm": slurm.train,
        "ray": ray.train,
    }
    return engines[name]
