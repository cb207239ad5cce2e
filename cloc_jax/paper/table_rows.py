"""The paper's tables: which runs stand in which row, beside what the paper printed.

A row names settings of runs and scores of theirs. The interval of a difference holds
other seeds and other test images of ours (see `scoring/intervals.py`); the paper's
number is taken as it is, since it gives no spread.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.paper.table_summaries import (
    BIASED,
    CONTROLLED,
    FINAL,
    METHODS,
    PHASE_ONE,
    Setting,
    TableSummary,
)
from cloc_jax.report import published
from cloc_jax.scoring import intervals, metrics

COMPARED = tuple(METHODS)[:10]
BACKBONES = {"densenet121": "DenseNet-121", "resnet50": "ResNet-50", "vgg16": "VGG16"}
MANY_CLASSES = ("poe", "gol", "mwr", "cloc")
MANY = 8  # ranks from which on a dataset counts as one of many classes
HOURS = "hours per 100 epochs"
SCORES = {"accuracy": "Accuracy", "mae": "MAE"}


class Place(NamedTuple):
    """A score of a setting's runs, and what the paper has for it."""

    setting: str
    score: str
    paper: float | None = None
    stage: str = FINAL
    is_quoted: bool = False


class Row(NamedTuple):
    """One line of a table."""

    title: str
    places: tuple[Place, ...]


class Table(NamedTuple):
    """One of the paper's tables."""

    title: str
    about: str  # a sentence
    columns: tuple[str, ...]  # a title per place of a row
    # Of a dataset and the summary of its runs, if there are some; [] without rows.
    rows: Callable[[str, TableSummary | None], list[Row]]


def _settings(summary: TableSummary | None) -> Mapping[str, Setting]:
    return summary.settings if summary else {}


def _printed(name: str, dataset: str) -> Mapping[str, Any]:
    """A table that the paper has of IDRiD alone."""
    return published.tables()[name] if dataset == "idrid" else {}


def _scored(title: str, setting: str, paper: Mapping[str, Any], **more: Any) -> Row:
    """Accuracy and MAE of a setting."""
    places = (Place(setting, score, paper.get(score), **more) for score in SCORES)
    return Row(title, tuple(places))


def _of_dataset(printed: Mapping[str, Any], dataset: str) -> dict[str, Any]:
    return {score: values.get(dataset) for score, values in printed.items()}


def _comparison(dataset: str, summary: TableSummary | None) -> list[Row]:
    settings = _settings(summary)
    if dataset not in published.DATASETS and not settings:
        return []
    printed = published.tables()["comparison"]
    return [
        _scored(
            title,
            method,
            _of_dataset(printed.get(method, {}), dataset),
            is_quoted=published.is_quoted(method, dataset),
        )
        for method, title in METHODS.items()
        if method in COMPARED or method in settings
    ]


def _controllability(dataset: str, summary: TableSummary | None) -> list[Row]:
    printed = None
    if dataset in published.DATASETS:
        printed = published.of_dataset(dataset).control
    names = metrics.boundary_names(summary.ranks) if summary else []
    if printed and names and len(printed.learned) != len(names):
        printed = None  # ranks of our own
    critical = set(summary.critical) if summary else set()
    learned: Sequence[float | None] = [None] * (len(names) + 1)
    controlled = learned
    if printed:
        names = names or [f"C{h + 1}|C{h + 2}" for h in range(len(printed.learned))]
        critical |= {names[h] for h in printed.critical}
        learned = (*printed.learned, printed.learned_accuracy)
        controlled = (*printed.controlled, printed.controlled_accuracy)
    if not critical:
        return []
    second = summary.controlled.get("", CONTROLLED) if summary else CONTROLLED
    titles = [f"{name} (critical)" if name in critical else name for name in names]
    scores = [*(f"error {name}" for name in names), "accuracy"]
    return [
        Row(title, (Place("cloc", score, one), Place(second, score, other)))
        for title, score, one, other in zip(
            [*titles, "Accuracy"], scores, learned, controlled, strict=True
        )
    ]


def _bias(dataset: str, summary: TableSummary | None) -> list[Row]:
    settings = _settings(summary)
    printed = _printed("biased_idrid", dataset)
    if not printed and not any(name.startswith(BIASED) for name in settings):
        return []
    rows = [
        _scored(title, BIASED + method, printed.get(method, {}))
        for method, title in METHODS.items()
        if method != "cloc" and (method in printed or BIASED + method in settings)
    ]
    fixed = (summary.controlled if summary else {}).get(BIASED, BIASED + CONTROLLED)
    for title, setting, key in (
        ("CLOC, learned margins", f"{BIASED}cloc", "cloc_learned"),
        ("CLOC, critical margin fixed", fixed, "cloc_fixed"),
    ):
        rows.append(_scored(title, setting, printed.get(key, {})))
    return rows


def _ablations(dataset: str, summary: TableSummary | None) -> list[Row]:
    if dataset not in published.DATASETS and not _settings(summary):
        return []
    printed = published.tables()["ablation"]
    return [
        _scored(title, setting, _of_dataset(printed[key], dataset), stage=stage)
        for key, title, setting, stage in (
            ("ones/phase2", "All margins 1, both phases", "cloc ones", FINAL),
            ("shared/phase1", "Shared margin, phase one", "cloc shared", PHASE_ONE),
            ("shared/phase2", "Shared margin, both phases", "cloc shared", FINAL),
            ("multi/phase1", "Own margins, phase one", "cloc", PHASE_ONE),
            ("multi/phase2", "Own margins, both phases", "cloc", FINAL),
        )
    ]


def _backbones(dataset: str, summary: TableSummary | None) -> list[Row]:
    settings = _settings(summary)
    printed = _printed("backbones_idrid", dataset)
    if not printed and not any(f"cloc on {name}" in settings for name in BACKBONES):
        return []
    usual = summary.about.encoder if summary else "resnet50"
    rows = []
    for name, title in BACKBONES.items():
        # The name of a setting counts: those on the usual encoder may be missing.
        own = f"cloc on {name}"
        is_usual = name == usual and own not in settings
        rows.append(_scored(title, "cloc" if is_usual else own, printed.get(name, {})))
    return rows


def bin_setting(years: int) -> str:
    """The setting of CLOC on CLAP2015 with classes of that many years."""
    return "cloc" if years == 3 else f"cloc bin {years}"


def _classes(dataset: str, summary: TableSummary | None) -> list[Row]:
    rows = []
    if dataset == "clap2015":
        for bins in published.tables()["clap2015_bins"]:
            years = f"{bins['bin']} {'year' if bins['bin'] == 1 else 'years'}"
            place = Place(bin_setting(bins["bin"]), "mae", bins["mae"])
            rows.append(Row(f"CLOC, {bins['classes']} classes of {years}", (place,)))
        printed = published.tables()["clap2015_bin3"]
        for method in MANY_CLASSES[:-1]:
            title = f"{METHODS[method]}, classes of 3 years"
            rows.append(Row(title, (Place(method, "mae", printed[method]),)))
    elif summary and len(summary.ranks) >= MANY and "cloc" in summary.settings:
        for method in MANY_CLASSES:
            title = f"{METHODS[method]}, {len(summary.ranks)} classes"
            rows.append(Row(title, (Place(method, "mae"),)))
    return rows


def _time(dataset: str, summary: TableSummary | None) -> list[Row]:
    settings = _settings(summary)
    printed = _printed("hours_100_epochs_idrid_rtx4090", dataset)
    if not printed and not any(m in settings for m in METHODS):
        return []
    rows = [
        Row(title, (Place(method, HOURS, printed.get(method)),))
        for method, title in METHODS.items()
        if method in printed or method in settings or method in COMPARED
    ]
    for stage, key in (("phase one", "cloc_phase1"), ("phase two", "cloc_phase2")):
        place = Place("cloc", HOURS, printed.get(key), stage=stage)
        rows.append(Row(f"CLOC, {stage}", (place,)))
    return rows


_SCORED = tuple(SCORES.values())
TABLES = {
    "comparison": Table(
        "Methods compared",
        "Accuracy and mean absolute error on the test images.",
        _SCORED,
        _comparison,
    ),
    "controllability": Table(
        "Controllability: learned against controlled margins",
        "Share of the images of two neighbouring ranks that are mistaken for each "
        "other, with learned margins and with those of critical boundaries fixed.",
        ("Learned margins", "Controlled margins"),
        _controllability,
    ),
    "bias": Table(
        "Robustness to biased training labels",
        "Training labels are wrong at the critical boundary: 60% of the lower rank "
        "called the upper one, 30% of the upper the lower. Test labels are right.",
        _SCORED,
        _bias,
    ),
    "ablations": Table(
        "Ablations: margins and phases",
        "All margins 1, one shared margin, or one of its own for each boundary; after "
        "phase one and after both.",
        _SCORED,
        _ablations,
    ),
    "backbones": Table("Backbones", "CLOC on other encoders.", _SCORED, _backbones),
    "classes": Table(
        "Many classes",
        "Mean absolute error, counted in classes, where there are many.",
        ("MAE in classes",),
        _classes,
    ),
    "time": Table(
        "Training time",
        "Hours for 100 epochs of each stage, evaluation included. The paper's are of "
        "an RTX 4090, so a difference says nothing about the method.",
        ("Hours per 100 epochs",),
        _time,
    ),
}


# --- cells ---


class Cell(NamedTuple):
    """A score: the paper's, ours, and their difference."""

    place: Place
    mean: float | None = None  # ours, over runs
    std: float | None = None
    runs: int = 0
    difference: float | None = None
    ends: tuple[float, float] | None = None  # of its interval

    @property
    def is_apart(self) -> bool:
        """Whether the interval leaves out no difference at all."""
        return self.ends is not None and not self.ends[0] <= 0 <= self.ends[1]


def cell(place: Place, summary: TableSummary | None) -> Cell:
    """The cell of a place; without runs it holds the paper's number alone."""
    setting = summary.settings.get(place.setting) if summary else None
    if not setting:
        return Cell(place)
    if place.score == HOURS:
        return _filled(place, _hours(setting, place.stage))
    scored = [
        (score, run.fold)
        for run in setting.runs
        if (score := run.scores.get(place.stage, {}).get(place.score)) is not None
    ]
    if not scored:
        return Cell(place)
    scores, folds = zip(*scored, strict=True)
    apart = intervals.mean_by_fold(scores, folds)
    filled = _filled(place, scores)._replace(mean=float(np.mean(apart)))
    if place.paper is None:
        return filled
    variance = 0.0
    if setting.images_variance is not None:
        of_stage = setting.images_variance.get(place.stage, {})
        variance = of_stage.get(place.score, math.nan)
    low, high = intervals.of_run_mean(apart, variance)
    filled = filled._replace(difference=float(np.mean(apart)) - place.paper)
    if not math.isfinite(low):
        return filled
    return filled._replace(ends=(low - place.paper, high - place.paper))


def _filled(place: Place, values: Sequence[float]) -> Cell:
    if not values:
        return Cell(place)
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return Cell(place, float(np.mean(values)), std, len(values))


def _hours(setting: Setting, stage: str) -> list[float]:
    """For 100 epochs of each stage, or of one of them; machines differ."""
    spent = [
        [
            one.seconds / one.epochs * 100 / 3600
            for one in run.stages
            if one.epochs and stage in (FINAL, one.title)
        ]
        for run in setting.runs
    ]
    return [sum(hours) for hours in spent if hours]
