"""Training the runs of a task in this process; imports JAX, so only workers load it."""

import contextlib
import copy
import json
import pathlib
from collections.abc import Sequence
from typing import Any

from cloc_jax.data.datasets import Dataset
from cloc_jax.runtime import processes, run_lock, sharding
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.sweeps.engines.task_files import is_finished
from cloc_jax.sweeps.run_plan import Plan
from cloc_jax.training import assembly, fit, run_scores
from cloc_jax.training import run as run_training
from cloc_jax.training.dataset import build_dataset
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
    """Trains and scores runs one after another; why some did not finish.

    They share datasets, features and compiled programs.
    """
    failed: dict[str, str] = {}
    for one in plans:
        if is_finished(folder, one):
            continue
        try:
            _train_alone(one, folder)
        except fit.NonFinite as error:
            failed[one.name] = str(error)
    return failed


def _train_alone(one: Plan, folder: pathlib.Path) -> None:
    run = RunFolder(folder / one.name)
    console.print(f"run {one.name}", soft_wrap=True)
    with _held(run):
        run_training.train(one.config, run, resume=run.config.exists())
        parts = assembly.build(one.config, run)
        run_scores.score(TrainedRun(one.config, run, parts), parts)
        if processes.is_first():
            run.drop_checkpoints()  # many runs would fill a disk with them


def _held(run: RunFolder) -> Any:
    """A context in which only the processes of this task write into a run."""
    if processes.is_first():
        return run_lock.held(run.path, "sweep", is_new=True)
    return contextlib.nullcontext()
