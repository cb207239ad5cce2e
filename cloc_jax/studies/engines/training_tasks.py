"""Training the runs of a task in this process; imports JAX, so only workers load it."""

import copy
import pathlib
from collections.abc import Sequence

from cloc_jax.build import assembly
from cloc_jax.build.trained_run import TrainedRun
from cloc_jax.report import run_scores
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.studies.engines.task_files import is_finished
from cloc_jax.studies.run_plan import Plan
from cloc_jax.training import loop
from cloc_jax.training.many_runs import train_together


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
    parts = assembly.build(common)
    runs = [RunFolder(folder / p.name) for p in plans]
    finished = train_together([p.config for p in plans], runs, parts)
    for p in plans:
        run = RunFolder(folder / p.name)
        if any(run.path == done.path for done in finished):
            own = assembly.with_method(parts, p.config)
            run_scores.score(TrainedRun(p.config, run, own), own)


def _train_alone(one: Plan, folder: pathlib.Path) -> None:
    run = RunFolder(folder / one.name)
    console.print(f"run {one.name}", soft_wrap=True)
    loop.train(one.config, run, resume=run.config.exists())
    parts = assembly.build(one.config, run)
    run_scores.score(TrainedRun(one.config, run, parts), parts)
