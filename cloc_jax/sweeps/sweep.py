"""Sweeps: one experiment with several settings and seeds, and one summary of them.

Every run of a sweep is a run folder like any other, so it can be evaluated, reported
and used to predict. Runs that are finished are never repeated: the same command goes on
where it was interrupted.
"""

import importlib.util
import pathlib
from collections.abc import Sequence

from ml_collections import ConfigDict

from cloc_jax.runtime import files
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import results
from cloc_jax.sweeps import choice, executors, summary
from cloc_jax.sweeps.plan import (
    Options,
    Plan,
    check_plans,
    combinations,
    folds_of,
    is_finished,
    plan_runs,
)

LOCAL = Options()
LISTED = "sweep.json"
# What lies beside runs; the last are of `tables`, which are there without any run.
BESIDE = (
    "trunk",
    executors.COMMANDS,
    "listed",
    "summaries",
    "tables.md",
)
PACKAGES = {"local": "cloc_jax", "slurm": "submitit", "ray": "ray"}  # by engine
# What the weights decide: filled in by whoever loads them.
RESOLVED = ("stride", "epsilon", "preprocessing")


def sweep(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    vary: Sequence[str],
    seeds: int,
    folds: str = "",
    options: Options = LOCAL,
    choose: str = "",
    per: str = "",
) -> results.Summary:
    """Trains every combination of settings and seeds and writes a summary.

    Args:
      config: what all runs have in common.
      folder: of the sweep; each run has its own below it.
      vary: settings and their values, each as "method.cloc.weight=0.5;1;2".
      seeds: runs per combination, with seeds from config.seed on.
      folds: of the dataset, as "all" or "0,3", each with every seed; "" for the
        configured one alone.
      options: where and how the runs are trained.
      choose: a score of the validation data by which settings are ranked; the summary
        then says nothing of the test data, and the best one becomes a configuration.
      per: a setting of `vary`; the best is chosen for each of its values.
    """
    settings = combinations(vary)
    if choose or per:
        choice.check(choose, per, settings, config.data.critical)
    chosen = folds_of(config.data.name, folds)
    plans = plan_runs(config, settings, seeds=seeds, folds=chosen)
    train_runs(plans, folder, options)
    found = summary.summarize(folder, plans, is_choosing=bool(choose))
    plain = found.to_json()
    if choose:
        found, best = choice.rank(found, choose, per)
        plain = found.to_json() | choice.to_json(best, choose, per)
    files.write_sealed(folder / "summary.json", plain)
    summary.write_csv(folder / "summary.csv", found)
    summary.show(found, choose)
    console.print(f"written to {folder / 'summary.json'}", soft_wrap=True)
    if choose:
        choice.write_configs(folder, best, config, choose=choose, per=per)
    return found


def train_runs(
    plans: Sequence[Plan],
    folder: pathlib.Path,
    options: Options = LOCAL,
    *,
    is_open: bool = False,
) -> dict[str, str]:
    """Trains and scores the runs that are not finished; why some could not be, by name.

    Args:
      plans: the runs.
      folder: each run has its own below it.
      options: where and how.
      is_open: whether the folder may hold further runs than these, and it is no error
        that none of these could be trained.
    """
    check_options(options)
    waiting = [plan for plan in plans if not is_finished(folder, plan)]
    if options.is_in_process and not is_open:
        check_plans(waiting)  # before anything is made; commands check their own runs
    list_runs(folder, plans, is_open=is_open)
    if len(waiting) < len(plans):
        console.print(f"{len(plans) - len(waiting)} of {len(plans)} runs are finished")
    for plan in waiting:
        RunFolder(folder / plan.name).failed.unlink(missing_ok=True)  # tried again
    lost = _train(waiting, folder, options) if waiting else {}
    failed = {}
    for plan in waiting:
        run = RunFolder(folder / plan.name)
        if is_finished(folder, plan):
            continue
        if not run.read_failure():
            log = folder / executors.COMMANDS / f"{plan.name}.log"
            run.path.mkdir(exist_ok=True)
            run.write_failure(f"{lost.get(plan.name, 'it has no results')}; see {log}")
        failed[plan.name] = run.read_failure()
        console.print(f"not finished: {plan.name}: {failed[plan.name]}", soft_wrap=True)
    if failed and not is_open and len(failed) == len(plans):
        raise ValueError(
            f"none of the {len(plans)} runs finished; the first one said: "
            f"{next(iter(failed.values()))}"
        )
    return failed


def check_options(options: Options) -> None:
    """ValueError where runs cannot be trained as it is asked for."""
    name = options.engine
    if name not in PACKAGES:
        raise ValueError(f"--engine is {name!r}; use one of {', '.join(PACKAGES)}.")
    if not importlib.util.find_spec(PACKAGES[name]):
        raise ValueError(
            f"--engine={name} needs {PACKAGES[name]}: pip install 'cloc_jax[{name}]'."
        )
    if name == "local" and not options.is_in_process:
        executors.shares(options.workers)


def _train(
    plans: Sequence[Plan], folder: pathlib.Path, options: Options
) -> dict[str, str]:
    """Trains runs as it is asked for; why some were lost, by name."""
    if options.is_in_process:
        executors.train_in_process(plans, folder)
        return {}
    works = [executors.Work(plan, folder) for plan in plans]
    said = folder / executors.COMMANDS
    console.print(f"what the commands of runs say is in {said}", soft_wrap=True)
    if options.engine == "slurm":
        from cloc_jax.sweeps import slurm

        return slurm.train_on_slurm(works, options)
    if options.engine == "ray":
        from cloc_jax.sweeps import ray

        return ray.train_on_ray(works, options)
    return executors.train_with_workers(works, options)


def list_runs(
    folder: pathlib.Path, plans: Sequence[Plan], *, is_open: bool = False
) -> None:
    """Writes what the runs of a folder are; refuses a folder that is something else."""
    path = folder / LISTED
    runs = {
        p.name: {"name": p.name, "setting": p.setting, **p.overrides} for p in plans
    }
    before, there = set(), set()
    if path.exists():
        remedy = "Put back a copy, or move it away: this command then writes it anew."
        listed = files.read_sealed(path, remedy=remedy, fields=("runs",))["runs"]
        before = {run["name"] for run in listed} - set(runs)
    elif folder.exists():
        there = {p.name for p in folder.iterdir() if p.suffix != files.PART}
    if before and not is_open:
        raise FileExistsError(
            f"{folder} holds another sweep, with runs such as {min(before)}; give this "
            "one another --run folder."
        )
    if there - set(BESIDE) and there.isdisjoint(runs):
        raise FileExistsError(
            f"{folder} holds files that are not a sweep; give another --run folder."
        )
    for plan in plans:
        check_same(folder, plan)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_open or not path.exists():
        written = [] if is_open else list(runs.values())
        files.write_sealed(path, {"runs": written})


def check_same(folder: pathlib.Path, plan: Plan) -> None:
    """ValueError where the run that lies there was made with other settings."""
    run = RunFolder(folder / plan.name)
    if not run.config.exists():
        return
    before, now = run.read_config(), plan.config.to_dict()
    for field in RESOLVED:
        now["encoder"][field] = now["encoder"][field] or before["encoder"][field]
    run.check_settings(before, now)
