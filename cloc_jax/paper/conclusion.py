"""What the studies share: training and reading their runs, and leaving an answer.

A study names the settings it compares, trains each of them with several seeds as a
sweep does, reads what the runs wrote and leaves one JSON file, its pictures and, in the
report of its first run, an answer. Like a sweep it goes on where it was interrupted.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.paper.command_text import command
from cloc_jax.report import finished_run
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import write_sealed
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics, predictions
from cloc_jax.sweeps.engines import Options, carry_out
from cloc_jax.sweeps.run_plan import Plan, by_setting, resolved
from cloc_jax.training import assembly
from cloc_jax.training.trained_run import TrainedRun


def boundary_index(names: Sequence[str], ranks: Sequence[str]) -> list[int]:
    """Places of boundaries that a person named, lowest first."""
    known = metrics.boundary_names(ranks)
    unknown = [name for name in names if name not in known]
    if unknown or not names or len(set(names)) < len(names):
        raise ValueError(
            f"--boundary is {', '.join(names) or 'not given'}; name one or more of "
            f"{', '.join(known)}, each once."
        )
    return sorted(known.index(name) for name in names)


def train(
    plans: Sequence[Plan], folder: pathlib.Path, options: Options
) -> dict[str, list[Plan]]:
    """Trains and scores the runs that are not finished; all of them by setting."""
    carry_out(plans, folder, options)
    # Workers resolve plans for themselves.
    return by_setting(plans if options.is_in_process else list(map(resolved, plans)))


def read_metrics(folder: pathlib.Path, plan: Plan) -> dict[str, Any]:
    """What `evaluate` wrote of a run; ValueError where the run did not finish."""
    if not RunFolder(folder / plan.name).metrics.exists():
        raise ValueError(
            f"the run {folder / plan.name} did not finish, so the study has no answer "
            "yet; what it printed above says why."
        )
    return RunFolder(folder / plan.name).read_metrics()


def read_predictions(
    folder: pathlib.Path, plan: Plan
) -> dict[str, predictions.Predictions]:
    """Predictions of a run by split."""
    run = RunFolder(folder / plan.name)
    return predictions.read_of_run(run.path, run.read_metrics())


def finish(
    folder: pathlib.Path, name: str, study: Mapping[str, Any], first: Plan
) -> None:
    """Writes <name>.json and the report of the study's first run, which shows it."""
    about = _about(first.config) | {"command": command()}
    write_sealed(folder / f"{name}.json", dict(study) | about)
    run = RunFolder(folder / first.name)
    parts = assembly.build(first.config, run)
    finished_run.write_results(TrainedRun(first.config, run, parts), parts)
    console.print(study["sentence"], soft_wrap=True)
    for note in (*study.get("notes", ()), *study.get("warnings", ())):
        console.print(f"  {note}", soft_wrap=True)
    console.print(f"written to {folder / f'{name}.json'}", soft_wrap=True)


def _about(config: ConfigDict) -> dict[str, Any]:
    """What the runs of a study were, for whoever reads its JSON."""
    return {
        "dataset": config.data.name,
        "size": list(config.data.size),
        "relabel": list(config.data.relabel),
        "encoder": config.encoder.name,
        "is_frozen": config.encoder.frozen,
        "trainable_from": config.encoder.trainable_from,
    }
