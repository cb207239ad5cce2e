"""The paper's tables: from the command line to runs and a page."""

import pathlib
from collections.abc import Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.cli.command_line import CONFIGS, Settings, load_config
from cloc_jax.paper import studies, table_plans, table_rows, table_summaries
from cloc_jax.sweeps.plan import Options

PAPERS = ("adience", "hid", "koa", "idrid", "bracs", "clap2015")
FILES = {"synthetic": "quickstart"}  # where a dataset's file has another name


def check_names(
    only: Sequence[str], data: Sequence[str], methods: Sequence[str]
) -> None:
    """ValueError where a table, a dataset or a method is not known."""
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


def datasets() -> list[str]:
    """The datasets that have a configuration, the paper's first."""
    names = {file: name for name, file in FILES.items()}
    stems = [p.stem for p in sorted(CONFIGS.glob("[a-z]*.py")) if p.stem != "official"]
    return [*PAPERS, *(names.get(s, s) for s in stems if s not in PAPERS)]


def rebuild(
    sources: Sequence[str],
    only: Sequence[str],
    data: Sequence[str],
    *,
    to: str,
    summaries: str,
) -> None:
    """Makes the page from summaries alone."""
    made = table_plans.write(
        table_plans.read_merged([pathlib.Path(source) for source in sources]),
        pathlib.Path(to or sources[0]),
        only=only,
        data=data,
        kept=pathlib.Path(summaries) if summaries else None,
    )
    print(f"written to {made}")


def request(
    settings: Settings,
    *,
    only: Sequence[str],
    data: Sequence[str],
    methods: Sequence[str],
    roots: Sequence[str],
    weights: Sequence[str],
    **more: Any,
) -> table_plans.Request:
    """What the command asks for, as plans have it."""
    words = [word for word in settings.words if word.startswith("--config.")]
    return table_plans.Request(
        only=only or list(table_rows.TABLES),
        data=data or PAPERS,
        methods=methods or list(table_rows.COMPARED),
        roots=_named(roots, "--root", datasets()),
        weights=_named(weights, "--weights", tuple(table_rows.BACKBONES)),
        settings=[word.removeprefix("--config.") for word in words],
        command=studies.command(),
        **more,
    )


def dry_run(
    wanted: table_plans.Request, settings: Settings, place: pathlib.Path
) -> None:
    """Says which runs there are, how many are finished, and hours to go."""
    table_plans.dry_run(_plan(wanted, settings), place)


def train(
    wanted: table_plans.Request,
    settings: Settings,
    place: pathlib.Path,
    options: Options,
    *,
    to: str,
    summaries: str,
) -> dict[str, str]:
    """Trains what is missing and writes the page; gives the runs that failed."""
    planned = _plan(wanted, settings)
    failed = table_plans.train(planned, place, options)
    made = table_plans.write(
        table_plans.make_summaries(place),
        pathlib.Path(to or place),
        only=wanted.only,
        data=wanted.data,
        kept=pathlib.Path(summaries or place / table_plans.SUMMARIES),
        absent=planned.absent,
    )
    print(f"written to {made}")
    return failed


def _plan(wanted: table_plans.Request, settings: Settings) -> table_plans.Planned:
    def load(dataset: str, protocol: str) -> ConfigDict:
        return dataset_config(settings, dataset, protocol)

    return table_plans.plan(wanted, load)


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
