"""The paper's tables: from the command line to runs and a page."""

import argparse
import importlib
import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.cli import tables_flags
from cloc_jax.paper import studies, table_plans, table_rows
from cloc_jax.sweeps.plan import Options


def rebuild(arguments: argparse.Namespace) -> int:
    """Makes the page from summaries alone."""
    made = table_plans.write(
        table_plans.read_merged([pathlib.Path(one) for one in arguments.source]),
        pathlib.Path(arguments.target or arguments.source[0]),
        only=arguments.only,
        data=arguments.data,
        kept=pathlib.Path(arguments.summaries) if arguments.summaries else None,
    )
    print(f"written to {' and '.join(map(str, made))}")
    return 0


def asked(arguments: argparse.Namespace, settings: Sequence[str]) -> Any:
    """What the command asks for, as `table_plans.Request`."""
    given = [w for w in settings if w.startswith("--config.")]
    return table_plans.Request(
        only=arguments.only,
        data=arguments.data or list(tables_flags.DATASETS[:6]),
        methods=arguments.methods,
        seeds=arguments.seeds,
        protocol=arguments.protocol,
        folds=arguments.folds,
        margins=arguments.margin,
        roots=_named(arguments.root, "--root", tables_flags.DATASETS),
        weights=_named(arguments.weights, "--weights", tuple(table_rows.BACKBONES)),
        settings=[word.removeprefix("--config.") for word in given],
        changes=arguments.set,
        command=studies.command(),
    )


def make(
    wanted: table_plans.Request, request: Any, options: Options, place: pathlib.Path
) -> bool:
    """Trains what is missing and writes the page; whether all runs finished.

    Args:
      wanted: what is asked for.
      request: the `request.Request` of the command.
      options: where and how runs are trained.
      place: folder of the runs.
    """
    arguments = request.arguments
    planned = table_plans.plan(
        wanted,
        lambda dataset, protocol: dataset_config(request, dataset, protocol),
    )
    if arguments.dry_run:
        table_plans.dry_run(planned, place)
        return True
    failed = table_plans.train(planned, place, options)
    made = table_plans.write(
        table_plans.make_summaries(place),
        pathlib.Path(arguments.target or place),
        only=wanted.only,
        data=wanted.data,
        kept=pathlib.Path(arguments.summaries or place / table_plans.SUMMARIES),
        absent=planned.absent,
    )
    print(f"written to {' and '.join(map(str, made))}")
    return not failed


def dataset_config(request: Any, dataset: str, protocol: str) -> ConfigDict:
    """A dataset's configuration: --config where it is of it, or its own file."""
    is_given = any(word.startswith("--config=") for word in request.settings)
    if is_given and request.config.data.name == dataset:
        return request.config
    if dataset == "synthetic":  # whose frozen variant has other images
        return importlib.import_module("configs.quickstart").get_config()
    variant = "frozen" if protocol == "frozen" else ""
    return importlib.import_module(f"configs.{dataset}").get_config(variant)


def _named(texts: Sequence[str], flag: str, known: Sequence[str]) -> dict[str, str]:
    """Values by name, of NAME=VALUE."""
    found = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not value or name not in known:
            raise ValueError(
                f"{flag} is {text!r}; write {flag}=NAME=VALUE, with a name of "
                f"{', '.join(known)}."
            )
        found[name] = value
    return found
