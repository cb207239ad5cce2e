"""The runs of the paper's tables: which there are, each once, and their training.

A setting has one name whichever table asks for it, so its runs are trained once: the
row CLOC of the comparison is the learned one of controllability. All runs lie side by
side in one folder, so that a further table adds to them, and the same command goes on
after an interruption.
"""

import copy
import hashlib
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict
from rich.table import Table

from cloc_jax.data import datasets
from cloc_jax.paper import table_rows, table_summaries, tables_page
from cloc_jax.paper.table_summaries import (
    BIASED,
    CONTROLLED,
    OWN_VIEWS,
    ListedRun,
    TableSummary,
)
from cloc_jax.report import published
from cloc_jax.runtime import files
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics, results
from cloc_jax.sweeps.plan import (
    Options,
    Plan,
    Setting,
    folds_of,
    is_finished,
    plan_runs,
    set_value,
    value_of,
)
from cloc_jax.sweeps.sweep import check_same, list_runs, train_runs

# What each protocol sets; a dataset's own :frozen configuration goes before.
PROTOCOLS: dict[str, dict[str, Any]] = {
    "frozen": {"encoder.frozen": True, "head.projection": 128},
    "partial": {"encoder.trainable_from": "layer4", "encoder.views": 4},
    "whole": {},
}
# Of the images of the lower rank at the first critical boundary that the paper calls
# the upper one, and the other way round.
RAISED, LOWERED = 0.6, 0.3
HUB = "timm/{}.tv_in1k"  # weights of other backbones
LISTS = "listed"  # folder beside the runs: which there are, a file per command
PAGE = "tables.md"
SUMMARIES = "summaries"  # likewise: what they found


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
    listed: dict[str, ListedRun]  # by name
    absent: dict[str, str]  # by dataset: how to get it


def plan(request: Request, load: Callable[[str, str], ConfigDict]) -> Planned:
    """The runs of all tables and datasets, identical ones once.

    Workers resolve them: weights that cannot be had are then a failure of their runs
    alone.

    Args:
      request: what is asked for.
      load: (dataset, protocol) -> its configuration as it comes.
    """
    planned = Planned([], {}, {})
    changes = _changes(request)
    for dataset in request.data:
        config = _dataset_config(request, dataset, load, changes.get((dataset, ""), {}))
        if dataset != "synthetic" and not config.data.root and not config.data.csv:
            planned.absent[dataset] = how_to_get(dataset)
            continue
        settings = _settings(request, config, changes)
        layout = datasets.LAYOUTS.get(dataset)
        folds = request.folds if layout and layout.folds else ""
        chosen = folds_of(dataset, folds)
        for one in plan_runs(config, settings, seeds=request.seeds, folds=chosen):
            fold = one.config.data.fold if folds else None
            place = dataset, request.protocol
            name = table_summaries.run_name(*place, one.setting, one.config.seed, fold)
            planned.plans.append(one._replace(name=name))
            planned.listed[name] = ListedRun(
                name, one.setting, one.config.seed, fold, *place, request.command
            )
    return planned


def _dataset_config(
    request: Request,
    dataset: str,
    load: Callable[[str, str], ConfigDict],
    changes: Mapping[str, Any],
) -> ConfigDict:
    """A dataset's configuration with the protocol and all that was given."""
    config = copy.deepcopy(load(dataset, request.protocol))
    is_own = request.protocol == "frozen" and config.encoder.frozen
    protocol = {} if is_own else PROTOCOLS[request.protocol]
    given = [_pair(text, "--config.") for text in request.settings]
    for name, value in [*protocol.items(), *given, *changes.items()]:
        set_value(config, name, value)
    root = request.roots.get(dataset, "")
    if root and not pathlib.Path(root).exists():
        raise ValueError(
            f"--root={dataset}={root}: there is no such folder. {how_to_get(dataset)}"
        )
    config.data.root = root or config.data.root
    return config


def how_to_get(dataset: str) -> str:
    """Where a dataset that is not here comes from."""
    layout = datasets.LAYOUTS.get(dataset)
    source = f" from {layout.source}" if layout and layout.source else ""
    return (
        f"{published.title(dataset)} is not here: get it{source} as "
        f"data/{dataset}/README.md says, and add --root={dataset}=DIR."
    )


def _changes(request: Request) -> dict[tuple[str, str], dict[str, Any]]:
    """Settings by dataset and method, "" for all, of "koa/dino:train.patience=5"."""
    changes: dict[tuple[str, str], dict[str, Any]] = {}
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
        name, value = _pair(rest, "--set=")
        changes.setdefault((dataset, method), {})[name.removeprefix("config.")] = value
    return changes


def _pair(text: str, flag: str) -> tuple[str, Any]:
    """A setting and its value, of "train.batch_size=32"."""
    name, separator, value = text.partition("=")
    if not separator:
        raise ValueError(f"{flag}{text} has no value; write {flag}{name}=VALUE.")
    return name.strip(), value_of(value.strip())


# --- settings ---


def _settings(
    request: Request,
    config: ConfigDict,
    changes: Mapping[tuple[str, str], Mapping[str, Any]],
) -> list[Setting]:
    """Of all tables that are asked for on one dataset, each once."""
    dataset = config.data.name
    of_method = {
        m: {**changes.get(("", m), {}), **changes.get((dataset, m), {})}
        for m in request.methods
    }
    settings: dict[str, Setting] = {}
    for table in request.only:
        for setting in _of_table(table, request, config, of_method):
            before = settings.setdefault(setting.name, setting)
            assert before == setting, f"two settings are called {setting.name}"
    return list(settings.values())


def _of_table(
    table: str,
    request: Request,
    config: ConfigDict,
    of_method: Mapping[str, Mapping[str, Any]],
) -> list[Setting]:
    """What a table trains on one dataset; [] where it has nothing to do with it."""
    ranks = datasets.ranks_of(config.data.name, config.data.to_dict())
    # A frozen encoder leaves methods nothing to train that have views of their own.
    skipped = OWN_VIEWS if config.encoder.frozen else ()
    methods = [m for m in request.methods if m not in skipped]
    boundaries = metrics.boundary_names(ranks)
    at = [boundaries.index(name) for name in config.data.critical]

    def one(name: str, method: str, more: Mapping[str, Any] | None = None) -> Setting:
        return _setting(name, method, config, of_method.get(method, {}), more or {})

    def controlled(critical: Sequence[int]) -> list[Setting]:
        found = []
        for value in request.margins:
            entries: list[Any] = ["learn"] * len(boundaries)
            for h in critical:
                entries[h] = float(value)
            margins = {"method.cloc.margins": tuple(entries)}
            found.append(one(f"{CONTROLLED} {value:g}", "cloc", margins))
        return found

    def backbone(name: str) -> Setting:
        weights = request.weights.get(name, HUB.format(name))
        more = {"encoder.name": name, "encoder.weights": weights}
        return one(f"cloc on {name}", "cloc", more)

    if table in ("comparison", "time"):
        return [one(m, m) for m in methods]
    if table == "bias" and at:
        low, high = ranks[at[0]], ranks[at[0] + 1]
        wrong = (f"{low}>{high}:{RAISED}", f"{high}>{low}:{LOWERED}")
        plain = [one(m, m) for m in methods]
        plain += controlled(at[:1]) if "cloc" in methods else []
        return [
            Setting(BIASED + s.name, dict(s.overrides) | {"data.relabel": wrong})
            for s in plain
        ]
    if table == "classes":
        return _of_classes(config, methods, ranks, one)
    if "cloc" not in methods:
        return []
    cloc = one("cloc", "cloc")
    if table == "controllability" and at:
        return [cloc, *controlled(at)]
    if table == "ablations":
        kinds = {"ones": 1.0, "shared": "shared"}
        fewer = {f"cloc {k}": {"method.cloc.margins": v} for k, v in kinds.items()}
        return [*(one(name, "cloc", more) for name, more in fewer.items()), cloc]
    if table == "backbones":
        return [
            cloc if name == config.encoder.name else backbone(name)
            for name in table_rows.BACKBONES
        ]
    return []


def _of_classes(
    config: ConfigDict,
    methods: Sequence[str],
    ranks: Sequence[str],
    one: Callable[..., Setting],
) -> list[Setting]:
    """Many classes: those of CLAP2015 by years, else only where there are many."""
    others = [one(m, m) for m in table_rows.MANY_CLASSES if m in methods]
    if config.data.name != "clap2015":
        return others if len(ranks) >= table_rows.MANY else []
    bins = range(1, 6) if "cloc" in methods else ()
    return [
        *(one(table_rows.bin_setting(n), "cloc", {"data.bin": n}) for n in bins),
        *(setting for setting in others if setting.name != "cloc"),
    ]


def _setting(
    name: str,
    method: str,
    config: ConfigDict,
    given: Mapping[str, Any],
    more: Mapping[str, Any],
) -> Setting:
    own: dict[str, Any] = {"method.name": method}
    if config.data.name == "clap2015":
        own["data.bin"] = 3  # classes of three years where a table does not vary them
    if config.encoder.views > 1 and method in OWN_VIEWS:
        augment = config.method[method].get("augment")  # DINO has no other way
        if given.get(f"method.{method}.augment", augment) != "default":
            own["encoder.views"] = 1  # new images each time, through the frozen parts
    return Setting(name, {**own, **given, **more})


# --- training and summaries ---


def train(planned: Planned, folder: pathlib.Path, options: Options) -> dict[str, str]:
    """Trains the runs that are not finished; why some could not be."""
    for dataset, how in planned.absent.items():
        console.print(f"{dataset}: {how}", soft_wrap=True)
    if not planned.plans:
        return {}
    list_runs(folder, planned.plans, is_open=True)  # refuses a folder of other things
    _list_planned(planned, folder)
    return train_runs(planned.plans, folder, options, is_open=True)


def _list_planned(planned: Planned, folder: pathlib.Path) -> None:
    """Notes the runs of a command, in a file of its own: several may be at work."""
    runs = files.to_plain(list(planned.listed.values()))
    digest = hashlib.sha256(repr(runs).encode()).hexdigest()[:16]
    path = folder / LISTS / f"{digest}.json"
    if not path.exists():  # their age says which command was the first to list a run
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_sealed(path, {"runs": runs})


def read_merged(sources: Sequence[pathlib.Path]) -> list[TableSummary]:
    """The summaries in folders of several machines, one per dataset and protocol."""
    read = table_summaries.read_summaries
    return table_summaries.merge(one for source in sources for one in read(source))


def write(
    summaries: Sequence[TableSummary],
    to: pathlib.Path,
    *,
    only: Sequence[str] = (),
    data: Sequence[str] = (),
    kept: pathlib.Path | None = None,
    absent: Mapping[str, str] | None = None,
) -> pathlib.Path:
    """Writes the page and returns its file.

    Args:
      summaries: of runs.
      to: folder of the page.
      only: tables to show; () for all.
      data: datasets to show; () for the paper's and those that have runs.
      kept: folder where the summaries go, if anywhere.
      absent: by dataset, how to get it; None for all that have no runs.
    """
    if kept:
        table_summaries.write_summaries(summaries, kept)
    shown = [one for one in summaries if not data or one.dataset in data]
    if absent is None:
        names = set(data or [*published.DATASETS, "clap2015"])
        absent = {n: how_to_get(n) for n in names - {one.dataset for one in shown}}
    text = tables_page.markdown(
        shown, only=only or list(table_rows.TABLES), data=data, absent=absent
    )
    to.mkdir(parents=True, exist_ok=True)
    files.write_text(to / PAGE, text)
    return to / PAGE


def make_summaries(folder: pathlib.Path) -> list[TableSummary]:
    """Of every dataset and protocol that the folder has finished runs of."""
    remedy = "Put back a copy, or move it away: its command then writes it anew."
    listed: dict[str, ListedRun] = {}
    for path in sorted(
        (folder / LISTS).glob("*.json"), key=lambda p: p.stat().st_mtime
    ):
        for plain in files.read_sealed(path, remedy=remedy)["runs"]:
            run = files.from_plain(ListedRun, plain)
            listed.setdefault(run.name, run)
    groups: dict[tuple[str, str], list[ListedRun]] = {}
    for run in listed.values():
        groups.setdefault((run.dataset, run.protocol), []).append(run)
    failed = {
        name: reason
        for name in listed
        if (reason := RunFolder(folder / name).read_failure())
    }
    made = [table_summaries.summarize(folder, r, failed) for r in groups.values()]
    return [summary for summary in made if summary]


def dry_run(planned: Planned, folder: pathlib.Path) -> None:
    """Prints the runs, how many are finished, and hours that the others may take."""
    seconds: dict[str, list[float]] = {}  # of finished runs, by dataset
    rows: dict[tuple[str, str], list[bool]] = {}  # whether runs are finished
    for one in planned.plans:
        check_same(folder, one)
        dataset, is_done = planned.listed[one.name].dataset, is_finished(folder, one)
        rows.setdefault((dataset, one.setting), []).append(is_done)
        if is_done:
            found = results.read_results(RunFolder(folder / one.name))
            seconds.setdefault(dataset, []).append(found.seconds["total"])
    table = Table("dataset", "setting", "runs", "finished", box=None, pad_edge=False)
    hours, unknown = 0.0, 0
    for (dataset, setting), done in rows.items():
        table.add_row(dataset, setting, str(len(done)), str(sum(done)))
        left, spent = done.count(False), seconds.get(dataset, [])
        hours += left * sum(spent) / len(spent) / 3600 if spent else 0.0
        unknown += 0 if spent else left
    console.print(table)
    finished = sum(map(len, seconds.values()))
    text = f"{len(planned.plans)} runs, {finished} finished, in {folder}; about "
    text += f"{hours:.1f} hours left on one machine, as the finished ones took"
    if unknown:
        text += f", besides {unknown} runs of datasets without a finished one, whose "
        text += "time is not known yet"
    console.print(text, soft_wrap=True)
    for how in planned.absent.values():
        console.print(how, soft_wrap=True)
