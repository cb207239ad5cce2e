"""The paper's tables: from the words of a command to the runs that it asks for."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.cli.command_line import Settings, TableFlags, value_of
from cloc_jax.config_files import CONFIGS
from cloc_jax.data.datasets import LAYOUTS
from cloc_jax.paper import table_rows, table_summaries, tables_page
from cloc_jax.runtime import files
from cloc_jax.sweeps.executors import Plan

PAPERS = ("adience", "hid", "koa", "idrid", "bracs", "clap2015")
DATASETS = (*PAPERS, "folder", "synthetic", "retinamnist")  # with a configuration
FILES = {"synthetic": "quickstart"}  # where a dataset's file has another name
# What each protocol sets where a dataset has no :frozen configuration of its own.
PROTOCOLS = {
    "frozen": ("--config.encoder.frozen=True", "--config.head.projection=128"),
    "partial": ("--config.encoder.trainable_from=layer4", "--config.encoder.views=4"),
    "whole": (),
}


def plan(settings: Settings, asked: TableFlags, seeds: int) -> list[Plan]:
    """The runs that the command asks for; how to get datasets not here."""
    for flag, given, known in (
        ("--only", asked.only, list(table_rows.TABLES)),
        ("--data", asked.data, DATASETS),
        ("--methods", asked.methods, table_summaries.METHODS),
    ):
        if unknown := [name for name in given if name not in known]:
            raise ValueError(
                f"{flag} names {', '.join(unknown)}; give some of {', '.join(known)} "
                "with commas between them."
            )
    data, methods = asked.data or PAPERS, asked.methods or table_summaries.COMPARED
    places = [text.replace("=", ":data.root=", 1) for text in asked.root]
    changes = _changes([*asked.set, *places], data, methods)
    configs = {}
    for name in data:
        words = [f"--config.{key}={value}" for key, value in changes[name].items()]
        config = dataset_config(settings, name, asked.protocol, words)
        root = config.data.root
        if root and not pathlib.Path(root).exists():
            raise ValueError(f"--root={name}={root}: there is no such folder.")
        if name == "synthetic" or root or config.data.csv:
            configs[name] = config
        else:
            print(how_to_get(name))
    return table_rows.plan(
        configs,
        only=asked.only or list(table_rows.TABLES),
        methods=methods,
        given=changes,
        protocol=asked.protocol,
        seeds=seeds,
        folds=asked.folds,
        margins=asked.margin,
    )


def _changes(
    texts: Sequence[str], data: Sequence[str], methods: Sequence[str]
) -> dict[str, dict[str, Any]]:
    """Settings by place, "koa" or "koa/dino", of texts as "koa/dino:train.seed=5"."""
    changes: dict[str, dict[str, Any]] = {name: {} for name in data}
    changes |= {f"{name}/{method}": {} for name in data for method in methods}
    for text in texts:
        place, _, setting = text.partition(":")
        name, separator, value = setting.partition("=")
        if place not in changes or not separator:
            raise ValueError(
                f"{text!r} sets nothing that is here; write --root=koa=DIR, "
                "--set=koa:SETTING=VALUE for a dataset or --set=koa/dino:SETTING=VALUE "
                "for a method on it, of those in --data and --methods."
            )
        name = name.strip().removeprefix("config.")
        changes[place][name] = value_of(value.strip())
    return changes


def how_to_get(dataset: str) -> str:
    """Where a dataset that is not here comes from."""
    source = LAYOUTS[dataset].source if dataset in LAYOUTS else ""
    return (
        f"{dataset} is not here: get it{source and f' from {source}'} as "
        f"data/{dataset}/README.md says, and add --root={dataset}=DIR."
    )


def dataset_config(
    settings: Settings, dataset: str, protocol: str, more: Sequence[str]
) -> ConfigDict:
    """A dataset's configuration: its own file or --config, the protocol, and words."""
    own = PROTOCOLS[protocol]
    given = [word for word in settings.words if word.startswith("--config=")]
    file = f"--config={CONFIGS / FILES.get(dataset, dataset)}.py"
    if given and settings.config.data.name == dataset:
        file = given[-1]
    elif protocol == "frozen" and dataset not in FILES:
        # The frozen variant of drawn knees has other images.
        file, own = f"{file}:frozen", ()
    words = [word for word in settings.words if word not in given]
    return Settings.read([file, *own, *words, *more]).config


def write_page(
    summaries: Sequence[table_summaries.TableSummary], folder: pathlib.Path
) -> None:
    """Writes tables.md and says where."""
    folder.mkdir(parents=True, exist_ok=True)
    files.write_text(folder / "tables.md", tables_page.markdown(summaries))
    print(f"written to {folder / 'tables.md'}")
