"""The runs of a sweep or a study: one configuration per setting, fold and seed.

And what became of them, which their folders tell.
"""

import ast
import contextlib
import copy
import itertools
import pathlib
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from ml_collections.config_flags import config_path

from cloc_jax.config import check_settings
from cloc_jax.data import datasets
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import InUse, RunFolder

SEED, FOLD = "seed", "data.fold"


class Setting(NamedTuple):
    """One of the settings that are compared."""

    name: str
    overrides: Mapping[str, Any]  # of the configuration, by dotted name


class Plan(NamedTuple):
    """One run."""

    name: str  # of its folder
    setting: str
    overrides: dict[str, Any]  # of the setting, and its fold and seed
    config: ConfigDict


class Options(NamedTuple):
    """Where and how runs are trained."""

    engine: str = "local"
    # Runs at a time; 0 for as many as there is room for, or one of the local engine.
    workers: int = 0
    hours: float = 24.0  # that a job of SLURM may take before it is queued again
    retries: int = 2  # of a command that died
    settings: Mapping[str, Any] = {}  # the engine's own

    @property
    def is_in_process(self) -> bool:
        """Whether this process trains the runs itself."""
        return self.engine == "local" and self.workers <= 1


def plan_runs(
    config: ConfigDict,
    settings: Sequence[Setting],
    *,
    seeds: int,
    folds: Sequence[int] = (),
) -> list[Plan]:
    """Every setting with every fold and seed, all of them checked.

    Args:
      config: what all runs have in common; seeds count from its own.
      settings: what is compared.
      seeds: runs per setting and fold.
      folds: of the dataset; () for the configured one.
    """
    if seeds < 1:
        raise ValueError(f"--seeds is {seeds}; use 1 or more.")
    plans = []
    repeats = itertools.product(
        settings, list(folds) or [-1], range(config.seed, config.seed + seeds)
    )
    for setting, fold, seed in repeats:
        overrides = dict(setting.overrides)
        if folds:
            overrides[FOLD] = fold
        overrides[SEED] = seed
        own = copy.deepcopy(config)
        for name, value in overrides.items():
            set_value(own, name, value)
        check_settings(own)
        name = run_name(setting.name, seed, fold if folds else None)
        plans.append(Plan(name, setting.name, overrides, own))
    if len({p.name for p in plans}) < len(plans):
        raise ValueError("two of the runs are the same; give each value once.")
    return plans


def check_plans(plans: Sequence[Plan]) -> None:
    """ValueError where one of the runs could not be trained as it is set."""
    from cloc_jax.runtime import sharding  # late: it loads JAX
    from cloc_jax.training import assembly, encoder

    checked: set[str] = set()
    for plan in plans:
        config = copy.deepcopy(plan.config)
        config.seed = config.data.permute = 0
        if (setting := config.to_json(sort_keys=True)) in checked:
            continue
        checked.add(setting)
        try:
            dataset = assembly.build_dataset(config)
            parts = assembly.check(encoder.resolve(config), dataset)
            sharding.check_batch(config.train.batch_size, parts.mesh)
        except ValueError as error:
            raise ValueError(f"run {plan.name}: {error}") from None


def is_finished(folder: pathlib.Path, plan: Plan) -> bool:
    """Whether a run has been trained and scored, and its results are whole."""
    with contextlib.suppress(files.Damaged):
        return RunFolder(folder / plan.name).is_finished()
    return False


def has_ended(path: pathlib.Path) -> bool:
    """Whether a run is finished or has failed."""
    run = RunFolder(path)
    with contextlib.suppress(files.Damaged):
        return run.is_finished() or bool(run.read_failure())
    return False


def is_held(path: pathlib.Path) -> bool:
    """Whether another process writes into the folder of a run."""
    if not path.is_dir():
        return False
    try:
        with RunFolder(path).held("sweep"):
            return False
    except InUse:
        return True


def run_name(setting: str, seed: int, fold: int | None = None) -> str:
    """The name of the folder of a run."""
    parts = [setting, "" if fold is None else f"fold={fold}", f"seed={seed}"]
    return re.sub(r"[^\w.=,>|-]+", "_", ",".join(filter(None, parts))).strip("_")


def describe(settings: Mapping[str, Any]) -> str:
    """Settings in one line."""
    return "  ".join(f"{k}={v}" for k, v in settings.items()) or "(as configured)"


def set_value(config: ConfigDict, name: str, value: Any) -> None:
    """Sets a field by its dotted name; ValueError where the schema forbids it.

    What looks like a number may be text, and true a boolean.
    """
    try:
        kind = config_path.get_type(name, config)
        if kind is bool and str(value).lower() in ("true", "false"):
            value = str(value).lower() == "true"
        config_path.set_value(name, config, str(value) if kind is str else value)
    except (KeyError, AttributeError, TypeError, ValueError, IndexError) as error:
        raise ValueError(
            f"{name} cannot be set to {value!r}, which cloc_jax/config.py does not "
            f"allow: {str(error).splitlines()[0]}"
        ) from None


def value_of(text: str) -> Any:
    """A value as the command line would read it: a literal, or a plain word."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def combinations(vary: Sequence[str]) -> list[Setting]:
    """Every combination of the values of `vary`, each as "method.cloc.weight=0.5;1"."""
    varied: dict[str, list[str]] = {}
    for text in vary:
        name, _, values = text.partition("=")
        name = name.strip().removeprefix("config.")
        if name in (*varied, SEED, FOLD):
            raise ValueError(
                f"--vary names {name}; give each setting once, seeds by --seeds and "
                "folds by --folds."
            )
        varied[name] = [v.strip() for v in values.split(";") if v.strip()]
        if not varied[name]:
            raise ValueError(
                f"--vary is {text!r}; write a setting and its values with semicolons "
                "between them, such as --vary='method.cloc.weight=0.5;1;2'."
            )
    settings = []
    for texts in itertools.product(*varied.values()):
        pairs = list(zip(varied, texts, strict=True))
        short = ",".join(f"{name.split('.')[-1]}={text}" for name, text in pairs)
        settings.append(Setting(short, {name: value_of(text) for name, text in pairs}))
    return settings


def folds_of(dataset: str, text: str) -> list[int]:
    """The folds that `text` names, "all" or "0,3"; [] where it is empty."""
    if not text:
        return []
    layout = datasets.LAYOUTS.get(dataset)
    known = [str(fold) for fold in range(layout.folds if layout else 0)]
    words = known if text == "all" else [word.strip() for word in text.split(",")]
    if not known or not set(words) <= set(known):
        there = (
            f"folds 0 to {known[-1]}; write all, or some of them" if known else "none"
        )
        raise ValueError(f"--folds is {text}, but the dataset {dataset!r} has {there}.")
    return [int(word) for word in words]
