"""The paper's tables: from the command line to runs and a page."""

import pathlib
from collections.abc import Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cloc_jax.cli.command_line import CONFIGS, Settings, load_config
from cloc_jax.paper import studies, table_plans, table_rows, table_summaries
from cloc_jax.sweeps.plan import Options

PAPERS = ("adience", "hid", "koa", "idrid", "bracs", "clap2015")
FILES = {"synthetic": "quickstart"}  # where a dataset's file has another name


class Asked(NamedTuple):
    """Which tables of what, and where they go; checked when it is made."""

    only: Sequence[str]
    data: Sequence[str]
    methods: Sequence[str]
    to: str
    summaries: str


def asked(
    only: Sequence[str],
    data: Sequence[str],
    methods: Sequence[str],
    to: str,
    summaries: str,
) -> Asked:
    """What is asked for; ValueError where a name is not known."""
    for flag, given, known in (
        ("--only", only, list(table_rows.TABLES)),
        ("--data", data, datasets()),
        ("--methods", methods, list(table_summaries.METHODS)),
    ):
        if unknown := [name for name in given if name not in known]:
            raise ValueError(
                f"{flag} names {', '.join(unknown)}; give some of {', '.join(known)} "
                "with commas between them."
            )
    return Asked(
        only or list(table_rows.TABLES),
        data,
        methods or list(table_rows.COMPARED),
        to,
        summaries,
    )


def datasets() -> list[str]:
    """The datasets that have a configuration, the paper's first."""
    names = {file: name for name, file in FILES.items()}
    stems = [p.stem for p in sorted(CONFIGS.glob("[a-z]*.py")) if p.stem != "official"]
    return [*PAPERS, *(names.get(s, s) for s in stems if s not in PAPERS)]


def rebuild(given: Asked, sources: Sequence[str]) -> int:
    """Makes the page from summaries alone."""
    made = table_plans.write(
        table_plans.read_merged([pathlib.Path(source) for source in sources]),
        pathlib.Path(given.to or sources[0]),
        only=given.only,
        data=given.data,
        kept=pathlib.Path(given.summaries) if given.summaries else None,
    )
    print(f"written to {' and '.join(map(str, made))}")
    return 0


def request(
    given: Asked,
    settings: Settings,
    *,
    roots: Sequence[str],
    weights: Sequence[str],
    **more: Any,
) -> table_plans.Request:
    """What the command asks for, as plans have it."""
    words = [word for word in settings.words if word.startswith("--config.")]
    return table_plans.Request(
        only=given.only,
        data=given.data or PAPERS,
        methods=given.methods,
        roots=_named(roots, "--root", datasets()),
        weights=_named(weights, "--weights", tuple(table_rows.BACKBONES)),
        settings=[word.removeprefix("--config.") for word in words],
        command=studies.command(),
        **more,
    )


def make(
    wanted: table_plans.Request,
    given: Asked,
    settings: Settings,
    options: Options,
    place: pathlib.Path,
    *,
    dry_run: bool,
) -> bool:
    """Trains what is missing and writes the page; whether all runs finished.

    Args:
      wanted: what is asked for.
      given: where the page goes.
      settings: of the command.
      options: where and how runs are trained.
      place: folder of the runs.
      dry_run: only say what there is to do.
    """

    def load(dataset: str, protocol: str) -> ConfigDict:
        return dataset_config(settings, dataset, protocol)

    planned = table_plans.plan(wanted, load)
    if dry_run:
        table_plans.dry_run(planned, place)
        return True
    failed = table_plans.train(planned, place, options)
    made = table_plans.write(
        table_plans.make_summaries(place),
        pathlib.Path(given.to or place),
        only=wanted.only,
        data=wanted.data,
        kept=pathlib.Path(given.summaries or place / table_plans.SUMMARIES),
        absent=planned.absent,
    )
    print(f"written to {' and '.join(map(str, made))}")
    return not failed


def dataset_config(settings: Settings, dataset: str, protocol: str) -> ConfigDict:
    """A dataset's configuration: --config where it is of it, or its own file."""
    is_given = any(word.startswith("--config=") for word in settings.words)
    if is_given and settings.config.data.name == dataset:
        return settings.config
    # The frozen variant of drawn knees has other images.
    is_frozen = protocol == "frozen" and dataset not in FILES
    file = CONFIGS / f"{FILES.get(dataset, dataset)}.py"
    return load_config(f"{file}:frozen" if is_frozen else str(file))[0]


def _named(texts: Sequence[str], flag: str, known: Sequence[str]) -> dict[str, str]:
    """Values by name, of NAME=VALUE."""
    values = {}
    for text in texts:
        name, separator, value = text.partition("=")
        if not separator or not value or name not in known:
            raise ValueError(
                f"{flag} is {text!r}; write {flag}=NAME=VALUE, with a name of "
                f"{', '.join(known)}."
            )
        values[name] = value
    return values
