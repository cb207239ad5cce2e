"""Training the runs of a task in this process; imports JAX, so only workers load it."""

import contextlib
import copy
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from cloc_jax.data.datasets import Dataset
from cloc_jax.runtime import processes, run_lock, sharding
from cloc_jax.runtime.console import console, print_warnings
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.sweeps.engines.task_files import is_finished
from cloc_jax.sweeps.run_plan import Plan
from cloc_jax.training import assembly, loop, run_scores
from cloc_jax.training.dataset import build_dataset
from cloc_jax.training.many_runs import train_together
from cloc_jax.training.trained_run import TrainedRun


def check(plans: Sequence[Plan]) -> None:
    """ValueError where one of the runs could not be trained as it is set."""
    loaded: dict[str, Dataset] = {}
    checked: set[str] = set()
    for p in plans:
        config = copy.deepcopy(p.config)
        config.seed = config.data.permute = 0
        setting = config.to_json(sort_keys=True)
        if setting in checked:
            continue
        checked.add(setting)
        # Runs of a sweep differ in their data by folds at most, as a rule.
        images = json.dumps([config.data.to_dict(), config.augment.to_dict()])
        try:
            if images not in loaded:
                loaded[images] = build_dataset(config)
            parts = assembly.check(config, loaded[images])
            sharding.check_batch(config.train.batch_size, parts.mesh)
        except ValueError as error:
            raise ValueError(f"run {p.name}: {error}") from None


def train(plans: Sequence[Plan], folder: pathlib.Path) -> dict[str, str]:
    """Trains and scores runs, several as one program; why some did not finish."""
    if len(plans) == 1:
        _train_alone(plans[0], folder)
    else:
        _train_together(plans, folder)
    return {
        p.name: "the loss or a gradient was not finite"
        for p in plans
        if not is_finished(folder, p)
    }


def _train_together(plans: Sequence[Plan], folder: pathlib.Path) -> None:
    common = copy.deepcopy(plans[0].config)
    common.data.permute = 0
    dataset = build_dataset(common)
    print_warnings(dataset)
    parts = assembly.build(common, dataset=dataset)
    runs = [RunFolder(folder / p.name) for p in plans]
    with contextlib.ExitStack() as stack:
        for run in runs:
            stack.enter_context(_held(run))
        finished = train_together([p.config for p in plans], runs, parts)
        for p, run in zip(plans, runs, strict=True):
            if any(run.path == done.path for done in finished):
                own = assembly.with_method(parts, p.config)
                run_scores.score(TrainedRun(p.config, run, own), own)


def _train_alone(one: Plan, folder: pathlib.Path) -> None:
    run = RunFolder(folder / one.name)
    console.print(f"run {one.name}", soft_wrap=True)
    with _held(run):
        loop.train(one.config, run, resume=run.config.exists())
        parts = assembly.build(one.config, run)
        run_scores.score(TrainedRun(one.config, run, parts), parts)
        if processes.is_first():
            run.drop_checkpoints()  # many runs would fill a disk with them


def _held(run: RunFolder) -> Any:
    """A context in which only the processes of this task write into a run."""
    if processes.is_first():
        return run_lock.held(run.path, "sweep", is_new=True)
    return contextlib.nullcontext()
