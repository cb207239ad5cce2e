"""From what was asked for to the runs of the paper's tables: each of them once."""

import copy
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cloc_jax.data import datasets
from cloc_jax.paper.tables.table_settings import settings_of
from cloc_jax.report import published
from cloc_jax.sweeps.run_plan import Plan, Setting, plan_runs, set_value, value_of
from cloc_jax.sweeps.sweep import folds_of

# What each protocol sets; a dataset's own :frozen configuration goes before.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "frozen": {"encoder.frozen": True, "head.projection": 128},
    "partial": {"encoder.trainable_from": "layer4", "encoder.views": 4},
    "whole": {},
}
CONFIGS = {"synthetic": "quickstart"}  # files of configs/ that are named otherwise


class Request(NamedTuple):
    """What the command asks for."""

    only: Sequence[str]  # tables
    data: Sequence[str]  # datasets
    methods: Sequence[str]
    seeds: int
    protocol: str
    folds: str = "all"  # of datasets that have some
    margins: Sequence[float | int] = (1.0,)  # of critical boundaries when controlled
    roots: Mapping[str, str] = {}  # by dataset
    weights: Mapping[str, str] = {}  # by encoder, of other backbones
    settings: Sequence[str] = ()  # of all runs, as "train.batch_size=32"
    changes: Sequence[str] = ()  # of some, as "koa:data.size=(72,120)"
    command: str = ""


class Planned(NamedTuple):
    """All runs, and the datasets that are not there."""

    plans: list[Plan]
    entries: dict[str, dict[str, Any]]  # what the list of runs says of each, by name
    absent: dict[str, str]  # by dataset: how to get it


def plan(request: Request, load: Callable[[str, str], ConfigDict]) -> Planned:
    """The runs of all tables and datasets, identical ones once.

    Workers resolve them: weights that cannot be had are then a failure of their runs
    alone.

    Args:
      request: what is asked for.
      load: (dataset, protocol) -> its configuration as it comes.
    """
    plans: list[Plan] = []
    entries: dict[str, dict[str, Any]] = {}
    absent: dict[str, str] = {}
    changes = _changes(request)
    for dataset in request.data:
        config = dataset_config(request, dataset, load, changes.get((dataset, ""), {}))
        if dataset != "synthetic" and not config.data.root and not config.data.csv:
            absent[dataset] = how_to_get(dataset)
            continue
        ranks = datasets.ranks_of(dataset, config.data.to_dict())
        settings = _settings(request, config, ranks, changes)
        if not settings:
            continue
        has_folds = datasets.LAYOUTS.get(dataset)
        folds = request.folds if has_folds and has_folds.protocol.folds else ""
        made = plan_runs(
            config,
            settings,
            seeds=request.seeds,
            folds=folds_of(dataset, folds),
            is_resolved=False,
        )
        for one in made:
            name = f"{dataset},{request.protocol},{one.name}"
            plans.append(one._replace(name=name))
            entries[name] = {
                "dataset": dataset,
                "protocol": request.protocol,
                "command": request.command,
            }
    return Planned(plans, entries, absent)


def dataset_config(
    request: Request,
    dataset: str,
    load: Callable[[str, str], ConfigDict],
    changes: Mapping[str, Any],
) -> ConfigDict:
    """A dataset's configuration with the protocol and all that was given."""
    config = copy.deepcopy(load(dataset, request.protocol))
    if request.protocol == "frozen" and config.encoder.frozen:
        protocol = {}  # from its own file
    else:
        protocol = PROTOCOLS[request.protocol]
    given = [pair(text, "--config.") for text in request.settings]
    for name, value in [*protocol.items(), *given, *changes.items()]:
        set_value(config, name, value)
    root = request.roots.get(dataset, "")
    if root:
        if not pathlib.Path(root).exists():
            raise ValueError(
                f"--root={dataset}={root}: there is no such folder. "
                f"{how_to_get(dataset)}"
            )
        config.data.root = root
    return config


def _settings(
    request: Request,
    config: ConfigDict,
    ranks: Sequence[str],
    changes: Mapping[tuple[str, str], Mapping[str, Any]],
) -> list[Setting]:
    """Of all tables, by name."""
    dataset = config.data.name
    of_method = {
        m: {**changes.get(("", m), {}), **changes.get((dataset, m), {})}
        for m in request.methods
    }
    found: dict[str, Setting] = {}
    for table in request.only:
        for setting in settings_of(
            table,
            config,
            ranks,
            methods=request.methods,
            margins=request.margins,
            weights=request.weights,
            of_method=of_method,
        ):
            before = found.setdefault(setting.name, setting)
            assert before == setting, f"two settings are called {setting.name}"
    return list(found.values())


def how_to_get(dataset: str) -> str:
    """Where a dataset that is not here comes from."""
    layout = datasets.LAYOUTS.get(dataset)
    source = f" from {layout.source}" if layout and layout.source else ""
    return (
        f"{published.title(dataset)} is not here: get it{source} as "
        f"data/{dataset}/README.md says, and add --root={dataset}=DIR."
    )


def pair(text: str, flag: str) -> tuple[str, Any]:
    """A setting and its value, of "train.batch_size=32"."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{flag}{text} has no value; write {flag}{name}=VALUE.")
    return name.strip(), value_of(value.strip())


def _changes(request: Request) -> dict[tuple[str, str], dict[str, Any]]:
    """Settings by dataset and method, "" for all, of "koa/dino:train.patience=5"."""
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for text in request.changes:
        where, separator, rest = text.partition(":")
        dataset, _, method = where.partition("/")
        is_known = (not dataset or dataset in request.data) and (
            not method or method in request.methods
        )
        if not separator or not where or not is_known:
            raise ValueError(
                f"--set is {text!r}; write koa:SETTING=VALUE for a dataset, "
                "koa/dino:SETTING=VALUE for a method on it or /dino:SETTING=VALUE for "
                "a method, of those in --data and --methods."
            )
        name, value = pair(rest, "--set=")
        found.setdefault((dataset, method), {})[name.removeprefix("config.")] = value
    return found
