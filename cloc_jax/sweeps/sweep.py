"""Sweeps: one experiment with several settings and seeds, and one summary of them.

Every run of a sweep is a run folder like any other, so it can be evaluated, reported
and used to predict. Runs that are finished are never repeated: the same command goes on
where it was interrupted. The summary has means over seeds and folds, as JSON, CSV and a
table.
"""

import importlib.util
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from rich.table import Table

from cloc_jax.runtime import files
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import results
from cloc_jax.scoring.results import Spread, Summary, SummaryCell, SummaryRun
from cloc_jax.sweeps import choice, executors
from cloc_jax.sweeps.plan import (
    FOLD,
    SEED,
    Options,
    Plan,
    check_plans,
    combinations,
    describe,
    folds_of,
    is_finished,
    plan_runs,
)

LOCAL = Options()
LISTED = "sweep.json"
# What lies beside runs; the last are of `tables`, which are there without any run.
BESIDE = {"trunk", executors.COMMANDS, "summaries", "tables.md"}
PACKAGES = {"local": "cloc_jax", "slurm": "submitit", "ray": "ray"}  # by engine
# What the weights decide: filled in by whoever loads them.
RESOLVED = ("stride", "epsilon", "preprocessing")
SCORES = ("accuracy", "mae", "qwk")
MORE_SCORES = ("one_off_accuracy", "macro_mae", "nll")  # to choose by
Scores = dict[str, float | None]


def sweep(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    vary: Sequence[str],
    seeds: int,
    folds: str = "",
    options: Options = LOCAL,
    choose: str = "",
) -> Summary:
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
    """
    settings = combinations(vary)
    if choose:
        choice.check(choose, settings, config.data.critical)
    chosen = folds_of(config.data.name, folds)
    plans = plan_runs(config, settings, seeds=seeds, folds=chosen)
    train_runs(plans, folder, options)
    found = summarize(folder, plans, is_choosing=bool(choose))
    if choose:
        found = choice.rank(found, choose)
    more = choice.to_json(found.cells[0], choose) if choose else {}
    files.write_sealed(folder / "summary.json", found.to_json() | more)
    _write_csv(folder / "summary.csv", found)
    _show(found, choose)
    console.print(f"written to {folder / 'summary.json'}", soft_wrap=True)
    if choose:
        choice.write_config(folder, found.cells[0], choose, config)
    return found


# --- training ---


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
    path, names = folder / LISTED, {plan.name for plan in plans}
    if path.exists():
        remedy = "Put back a copy, or move it away: this command then writes it anew."
        listed = files.read_sealed(path, remedy=remedy, fields=("runs",))["runs"]
        before = {run["name"] for run in listed} - names
        if before and not is_open:
            raise FileExistsError(
                f"{folder} holds another sweep, with runs such as {min(before)}; give "
                "this one another --run folder."
            )
    elif folder.exists():
        there = {p.name for p in folder.iterdir() if p.suffix != files.PART}
        if there - BESIDE and there.isdisjoint(names):
            raise FileExistsError(
                f"{folder} holds files that are not a sweep; give another --run folder."
            )
    for plan in plans:
        check_same(folder, plan)
    folder.mkdir(parents=True, exist_ok=True)
    if not is_open or not path.exists():
        runs = [] if is_open else [{"name": p.name, **p.overrides} for p in plans]
        files.write_sealed(path, {"runs": runs})


def check_same(folder: pathlib.Path, plan: Plan) -> None:
    """ValueError where the run that lies there was made with other settings."""
    run = RunFolder(folder / plan.name)
    if not run.config.exists():
        return
    before, now = run.read_config(), plan.config.to_dict()
    for field in RESOLVED:
        now["encoder"][field] = now["encoder"][field] or before["encoder"][field]
    run.check_settings(before, now)


# --- the summary ---


def summarize(
    folder: pathlib.Path, plans: Sequence[Plan], *, is_choosing: bool
) -> Summary:
    """Mean and standard deviation over seeds and folds for each combination.

    Args:
      folder: of the runs.
      plans: the runs.
      is_choosing: gives every score of the validation data that there is to choose by,
        and none of the test data.
    """
    groups: dict[str, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(plan.setting, []).append(plan)
    return Summary([_cell(folder, own, is_choosing) for own in groups.values()])


def _cell(
    folder: pathlib.Path, plans: Sequence[Plan], is_choosing: bool
) -> SummaryCell:
    overrides = plans[0].overrides
    runs, unfinished = [], []
    for plan in plans:
        if not is_finished(folder, plan):
            unfinished.append(plan.name)
            continue
        found = results.read_results(RunFolder(folder / plan.name))
        val = _scores(found, "val", is_choosing)
        test = None if is_choosing else _scores(found, "test", is_choosing)
        kept = found.kept_in_training
        runs.append(SummaryRun(plan.name, val, found.margins, kept, test))
    return SummaryCell(
        {name: overrides[name] for name in overrides if name not in (SEED, FOLD)},
        runs,
        unfinished,
        _spreads([run.val for run in runs]),
        None if is_choosing else _spreads([run.test or {} for run in runs]),
    )


def _scores(found: results.RunResults, split: str, is_choosing: bool) -> Scores:
    """Of one split: all that there are to choose by, or the headlines."""
    scores = found.final[split]
    names = SCORES + MORE_SCORES if is_choosing else SCORES
    chosen = {name: scores.headline(name) for name in names}
    for boundary in found.critical if is_choosing or split == "test" else ():
        rates = scores.boundaries[boundary]
        chosen[f"error {boundary}"] = rates.error_rate
        chosen[f"crossing {boundary}"] = rates.crossing_rate
    return chosen


def _spreads(runs: Sequence[Scores]) -> dict[str, Spread]:
    """Mean and standard deviation of each score of the first run."""
    spreads = {}
    for name in (runs or [{}])[0]:
        known = [score for run in runs if (score := run.get(name)) is not None]
        mean = float(np.mean(known)) if known else None
        std = float(np.std(known, ddof=1)) if len(known) > 1 else None
        spreads[name] = Spread(mean, std, len(known))
    return spreads


def _columns(val: Mapping[str, Any], test: Mapping[str, Any] | None) -> dict[str, Any]:
    """Scores of both splits under the names of their columns."""
    return {f"val {name}": value for name, value in val.items()} | dict(test or {})


def _kept_columns(run: SummaryRun) -> dict[str, float | None]:
    return {f"kept triplets {name}": kept for name, kept in run.kept_triplets.items()}


def _write_csv(path: pathlib.Path, summary: Summary) -> None:
    """Writes a row per run."""
    rows = [
        {"run": run.name} | _columns(run.val, run.test) | _kept_columns(run)
        for cell in summary.cells
        for run in cell.runs
    ]
    columns = {name: None for row in rows for name in row} or {"run": None}
    table = [[row.get(name, "") for name in columns] for row in rows]
    files.write_csv(path, [list(columns), *table])


def _show(summary: Summary, choose: str) -> None:
    """Prints a row per combination; with `choose` only what was chosen by."""
    shown = [_columns(cell.val, cell.test) for cell in summary.cells]
    columns = {name: None for scores in shown for name in scores}
    if choose:
        columns = dict.fromkeys(f"val {name}" for name in (choose, *SCORES))
    table = Table(box=None, pad_edge=False)
    for name in ("settings", "runs", *columns):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for cell, scores in zip(summary.cells, shown, strict=True):
        found = [str(scores.get(name, "")) for name in columns]
        table.add_row(describe(cell.settings), str(len(cell.runs)), *found)
    console.print(table)
