"""The runs of a sweep or a study: one configuration per setting, fold and seed."""

import ast
import copy
import itertools
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from ml_collections.config_flags import config_path

from cloc_jax.config import check_settings

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
    config: ConfigDict  # resolved, unless workers do that


def plan_runs(
    config: ConfigDict,
    settings: Sequence[Setting],
    *,
    seeds: int,
    folds: Sequence[int] = (),
    is_resolved: bool = True,
) -> list[Plan]:
    """Every setting with every fold and seed, all of them checked.

    Args:
      config: what all runs have in common; seeds count from its own.
      settings: what is compared.
      seeds: runs per setting and fold.
      folds: of the dataset; () for the configured one.
      is_resolved: whether what the weights decide is filled in, which loads JAX; a
        worker that is given a plan without does it.
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
    return [resolved(plan) for plan in plans] if is_resolved else plans


def resolved(plan: Plan) -> Plan:
    """The plan with what the weights decide filled in, and the encoder checked."""
    from cloc_jax.training import encoder  # late: it loads JAX

    return plan._replace(config=encoder.resolve(plan.config))


def by_setting(plans: Sequence[Plan]) -> dict[str, list[Plan]]:
    """The runs of each setting, in their order."""
    found: dict[str, list[Plan]] = {}
    for plan in plans:
        found.setdefault(plan.setting, []).append(plan)
    return found


def run_name(setting: str, seed: int, fold: int | None = None) -> str:
    """The name of the folder of a run."""
    parts = [setting, "" if fold is None else f"fold={fold}", f"seed={seed}"]
    return re.sub(r"[^\w.=,>|-]+", "_", ",".join(filter(None, parts))).strip("_")


def set_value(config: ConfigDict, name: str, value: Any) -> None:
    """Sets a field; what looks like a number may be text, and true a boolean."""
    tried = [value]
    if isinstance(value, str) and value.lower() in ("true", "false"):
        tried = [value.lower() == "true"]
    elif not isinstance(value, str):
        tried.append(str(value))
    for last, one in enumerate(tried, 1):
        try:
            _set_field(config, name, one)
            return
        except ValueError:
            if last == len(tried):
                _set_field(config, name, value)  # with what was given in its message


def _set_field(config: ConfigDict, name: str, value: Any) -> None:
    """Sets a field by its dotted name; ValueError where the schema forbids it."""
    try:
        config_path.get_value(name, config)  # it has to be there
        config_path.set_value(name, config, value)
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
