"""The paper's tables as data: their rows, and the setting of runs behind each of them.

A row names settings of runs, scores of theirs, and what the paper printed for them.
`tables` trains the settings that rows name, which `changes` turns into configurations,
and shows the rows that have runs.

A setting has one name whichever table asks for it, so its runs are trained once: the
row CLOC of the comparison is the learned one of controllability. All runs lie side by
side in one folder, so that a further table adds to them, and the same command goes on
after an interruption.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from ml_collections import ConfigDict

from cloc_jax.data import datasets
from cloc_jax.paper import published
from cloc_jax.paper.table_summaries import BIASED, CONTROLLED, FINAL, METHODS, OWN_VIEWS
from cloc_jax.runtime.console import console
from cloc_jax.scoring import metrics
from cloc_jax.sweeps.executors import Plan
from cloc_jax.sweeps.sweep import Setting, check_same, folds_of, is_finished, plan_runs

BACKBONES = {"densenet121": "DenseNet-121", "resnet50": "ResNet-50", "vgg16": "VGG16"}
HUB = "timm/{}.tv_in1k"  # weights of other backbones
# Of the images of the lower rank at the first critical boundary that the paper calls
# the upper one, and the other way round.
RAISED, LOWERED = 0.6, 0.3
QUOTED = "†"  # marks rows that the paper quotes from elsewhere
HOURS = "hours per 100 epochs"
SCORES = ("accuracy", "mae")
NOTHING = dict.fromkeys(SCORES)  # what the paper has of other data


class Data(NamedTuple):
    """What the rows of a table depend on."""

    dataset: str
    ranks: Sequence[str]
    critical: Sequence[str]  # boundaries
    encoder: str
    # The settings with fixed critical margins; by "" and BIASED.
    controlled: Mapping[str, str]


class Row(NamedTuple):
    """One line of a table: scores of a setting's runs, and what the paper has."""

    title: str
    setting: str
    paper: Mapping[str, float | None]  # by score
    stage: str = FINAL


# --- rows ---


def _printed(name: str, data: Data) -> Mapping[str, Any]:
    """A table that the paper has of IDRiD alone."""
    return published.TABLES[name] if data.dataset == "idrid" else {}


def _scores(printed: Mapping[str, Any], data: Data) -> dict[str, float | None]:
    """Accuracy and MAE of a row that the paper has of several datasets."""
    return {score: printed.get(score, {}).get(data.dataset) for score in SCORES}


def _comparison(data: Data) -> list[Row]:
    printed = published.TABLES["comparison"]
    rows = []
    for method in METHODS:
        mark = f" {QUOTED}" if published.is_quoted(method, data.dataset) else ""
        scores = _scores(printed.get(method, {}), data)
        rows.append(Row(method.upper() + mark, method, scores))
    return rows


def _controllability(data: Data) -> list[Row]:
    if not data.critical:
        return []
    names = metrics.boundary_names(data.ranks)
    printed = published.controllability(data.dataset, len(data.ranks))
    rows = []
    for h, name in enumerate([*names, "accuracy"]):
        learned = controlled = None
        if printed:
            learned, controlled = (
                [*printed[key], printed["accuracy"][key]][h]
                for key in ("learned", "controlled")
            )
        score = name if name == "accuracy" else f"error {name}"
        title = f"{name} (critical)" if name in data.critical else name
        rows.append(Row(f"{title}, learned", "cloc", {score: learned}))
        setting = data.controlled.get("", CONTROLLED)
        rows.append(Row(f"{title}, controlled", setting, {score: controlled}))
    return rows


def _bias(data: Data) -> list[Row]:
    if not data.critical:
        return []
    printed = _printed("biased_idrid", data)
    fixed = data.controlled.get(BIASED, BIASED + CONTROLLED)
    rows = [
        (method.upper(), BIASED + method, method)
        for method in METHODS
        if method != "cloc"
    ]
    rows.append(("CLOC, learned margins", f"{BIASED}cloc", "cloc_learned"))
    rows.append(("CLOC, critical margin fixed", fixed, "cloc_fixed"))
    return [Row(t, name, NOTHING | printed.get(key, {})) for t, name, key in rows]


def _ablations(data: Data) -> list[Row]:
    printed = published.TABLES["ablation"]
    return [
        Row(title, setting, _scores(printed[key], data), stage)
        for key, title, setting, stage in (
            ("ones/phase2", "All margins 1, both phases", "cloc ones", FINAL),
            ("shared/phase1", "Shared margin, phase one", "cloc shared", "phase_one"),
            ("shared/phase2", "Shared margin, both phases", "cloc shared", FINAL),
            ("multi/phase1", "Own margins, phase one", "cloc", "phase_one"),
            ("multi/phase2", "Own margins, both phases", "cloc", FINAL),
        )
    ]


def _backbones(data: Data) -> list[Row]:
    printed = _printed("backbones_idrid", data)
    rows = []
    for name, title in BACKBONES.items():
        setting = "cloc" if name == data.encoder else f"cloc on {name}"
        rows.append(Row(title, setting, NOTHING | printed.get(name, {})))
    return rows


def _classes(data: Data) -> list[Row]:
    if data.dataset != "clap2015":
        return []
    rows = []
    for bins in published.TABLES["clap2015_bins"]:
        years = bins["bin"]
        setting = "cloc" if years == 3 else f"cloc bin {years}"
        title = f"CLOC, {bins['classes']} classes (data.bin={years})"
        rows.append(Row(title, setting, {"mae": bins["mae"]}))
    printed = published.TABLES["clap2015_bin3"]
    for method in ("poe", "gol", "mwr"):
        title = f"{method.upper()}, 28 classes (data.bin=3)"
        rows.append(Row(title, method, {"mae": printed[method]}))
    return rows


def _time(data: Data) -> list[Row]:
    printed = _printed("hours_100_epochs_idrid_rtx4090", data)
    rows = [Row(m.upper(), m, {HOURS: printed.get(m)}) for m in METHODS]
    for stage, key in (("phase one", "cloc_phase1"), ("phase two", "cloc_phase2")):
        rows.append(Row(f"CLOC, {stage}", "cloc", {HOURS: printed.get(key)}, stage))
    return rows


# [] where a table says nothing of such data; tables.md.jinja has their titles.
TABLES: dict[str, Callable[[Data], list[Row]]] = {
    "comparison": _comparison,
    "controllability": _controllability,
    "bias": _bias,
    "ablations": _ablations,
    "backbones": _backbones,
    "classes": _classes,
    "time": _time,
}


# --- settings ---


def method_of(setting: str) -> str:
    """The method of a setting, of its name."""
    return setting.removeprefix(BIASED).partition(" ")[0]


def changes(
    setting: str, config: ConfigDict, given: Mapping[str, Any]
) -> dict[str, Any]:
    """What a setting changes in the configuration of its dataset, by dotted name.

    `given` are changes of the setting's method that were asked for.
    """
    ranks = datasets.ranks_of(config.data.name, config.data.to_dict())
    boundaries = metrics.boundary_names(ranks)
    critical = list(config.data.critical)
    method = method_of(setting)
    changed: dict[str, Any] = {"method.name": method}
    if config.encoder.views > 1 and method in OWN_VIEWS:
        augment = config.method[method].get("augment")  # DINO has no other way
        if given.get(f"method.{method}.augment", augment) != "default":
            changed["encoder.views"] = 1  # new images each time
    changed |= given
    if setting.startswith(BIASED):
        critical = critical[:1]
        h = boundaries.index(critical[0])
        low, high = ranks[h], ranks[h + 1]
        wrong = (f"{low}>{high}:{RAISED}", f"{high}>{low}:{LOWERED}")
        changed["data.relabel"] = wrong
    match setting.removeprefix(BIASED).split()[1:]:
        case ["controlled", value]:
            changed["method.cloc.margins"] = tuple(
                float(value) if name in critical else "learn" for name in boundaries
            )
        case ["ones"]:
            changed["method.cloc.margins"] = 1.0
        case ["shared"]:
            changed["method.cloc.margins"] = "shared"
        case ["on", name]:
            changed["encoder.name"] = name
            changed["encoder.weights"] = HUB.format(name)
        case ["bin", years]:
            changed["data.bin"] = int(years)
    return changed


# --- runs ---


def plan(
    configs: Mapping[str, ConfigDict],
    *,
    only: Sequence[str],
    methods: Sequence[str],
    given: Mapping[str, Mapping[str, Any]],
    protocol: str,
    seeds: int,
    folds: str = "all",
    margins: Sequence[float | int] = (1.0,),
) -> list[Plan]:
    """The runs of all tables and datasets, identical ones once.

    Workers resolve them: weights that cannot be had are then a failure of their runs
    alone.

    Args:
      configs: by dataset.
      only: tables.
      given: settings that were asked for by dataset and method, as "koa/dino".
      margins: of critical boundaries when controlled.
    """
    plans = []
    for dataset, config in configs.items():
        settings = []
        for name in _settings(config, only, margins):
            method = method_of(name)
            # A frozen encoder leaves methods nothing to train that have own views.
            is_idle = config.encoder.frozen and method in OWN_VIEWS
            if method in methods and not is_idle:
                own = given[f"{dataset}/{method}"]
                settings.append(Setting(name, changes(name, config, own)))
        layout = datasets.LAYOUTS.get(dataset)
        chosen = folds_of(dataset, folds if layout and layout.folds else "")
        for one in plan_runs(config, settings, seeds=seeds, folds=chosen):
            plans.append(one._replace(name=f"{dataset},{protocol},{one.name}"))
    return plans


def _settings(
    config: ConfigDict, only: Sequence[str], margins: Sequence[float | int]
) -> list[str]:
    """Of all tables that are asked for on one dataset, each once."""
    names: dict[str, None] = {}
    for value in margins:
        name = f"{CONTROLLED} {value:g}"
        data = Data(
            config.data.name,
            datasets.ranks_of(config.data.name, config.data.to_dict()),
            config.data.critical,
            config.encoder.name,
            {"": name, BIASED: BIASED + name},
        )
        rows = (row for table in only for row in TABLES[table](data))
        names |= dict.fromkeys(row.setting for row in rows)
    return list(names)


def dry_run(plans: Sequence[Plan], folder: pathlib.Path) -> None:
    """Prints the runs, and which of them are finished."""
    finished = 0
    for one in plans:
        check_same(folder, one)
        is_done = is_finished(folder, one)
        finished += is_done
        console.print(f"{one.name}: {'finished' if is_done else 'to train'}")
    console.print(f"{len(plans)} runs, {finished} finished, in {folder}")
