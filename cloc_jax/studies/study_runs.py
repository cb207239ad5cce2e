"""Studies: questions that many runs answer together.

A study names the settings it compares, trains each of them with several seeds through
`sweep`, reads what the runs wrote and leaves one JSON file, its pictures and, in the
report of its first run, an answer. Like a sweep it goes on where it was interrupted.
"""

import copy
import json
import pathlib
import re
import sys
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cloc_jax.build import assembly
from cloc_jax.jobs import evaluate
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder, write_json
from cloc_jax.scoring import metrics
from cloc_jax.scoring import predictions as saved_predictions
from cloc_jax.studies.sweep import Plan


class Setting(NamedTuple):
    """One of the settings that a study compares."""

    name: str
    overrides: Mapping[str, Any]  # of the configuration, by dotted name


def plan(
    config: ConfigDict, settings: Sequence[Setting], seeds: int
) -> dict[str, list[Plan]]:
    """The runs of each setting, seed after seed, all of them checked."""
    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}; use 1 or more.")
    plans: dict[str, list[Plan]] = {}
    for setting in settings:
        plans[setting.name] = []
        for seed in range(config.seed, config.seed + seeds):
            own = copy.deepcopy(config)
            with own.unlocked():
                own.update_from_flattened_dict(dict(setting.overrides) | {"seed": seed})
            name = re.sub(r"[^\w.=,>|-]+", "_", f"{setting.name},seed={seed}")
            overrides = {"setting": setting.name, "seed": seed}
            plans[setting.name].append(Plan(name, overrides, assembly.resolve(own)))
    names = [p.name for runs in plans.values() for p in runs]
    if len(set(names)) < len(names):
        raise ValueError("two settings of the study are the same; give each once.")
    return plans


def all_of(plans: Mapping[str, Sequence[Plan]]) -> list[Plan]:
    """The runs of all settings."""
    return [p for runs in plans.values() for p in runs]


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


def read_metrics(folder: pathlib.Path, plan: Plan) -> dict[str, Any]:
    """What `evaluate` wrote of a run; ValueError where the run did not finish."""
    path = RunFolder(folder / plan.name).metrics
    if not path.exists():
        raise ValueError(
            f"the run {folder / plan.name} did not finish, so the study has no answer "
            "yet; what it printed above says why."
        )
    return json.loads(path.read_text())


def read_predictions(
    folder: pathlib.Path, plan: Plan, ranks: Sequence[str]
) -> dict[str, saved_predictions.Predictions]:
    """Predictions of a run by split."""
    return saved_predictions.read(folder / plan.name / saved_predictions.NAME, ranks)


def finish(
    folder: pathlib.Path, name: str, study: Mapping[str, Any], first: Plan
) -> None:
    """Writes <name>.json and the report of the study's first run, which shows it."""
    about = _about(first.config) | {"command": command()}
    write_json(folder / f"{name}.json", dict(study) | about)
    run = RunFolder(folder / first.name)
    evaluate.evaluate(first.config, run)
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
    }


def command() -> str:
    """The command line that is running: the job first, without where it writes, and
    with folders of this machine shortened."""
    words = [re.sub(r"=/\S*/", "=…/", w) for w in sys.argv[1:] if "--run=" not in w]
    words.sort(key=lambda word: word.startswith("-"))
    quoted = [f'"{w}"' if re.search("[|>()']", w) else w for w in words]
    return " ".join(["python launch.py", *quoted])
