"""Cells of the paper's tables: what it printed, what runs here gave, and how far apart.

The interval of a difference holds other seeds and other test images of ours (see
`scoring/seed_intervals.py`); the paper's number is taken as it is, since it gives no
spread.
"""

import math
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.paper.table_rows import FINAL, HOURS, Place
from cloc_jax.report import published
from cloc_jax.scoring import intervals

PER = 100  # epochs
Summary = Mapping[str, Any]


class Cell(NamedTuple):
    """A score: the paper's, ours, and their difference."""

    paper: float | None
    is_quoted: bool
    mean: float | None = None  # ours, over runs
    std: float | None = None
    runs: int = 0
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    is_time: bool = False

    @property
    def is_apart(self) -> bool:
        """Whether the interval leaves out no difference at all."""
        return self.low is not None and not self.low <= 0 <= (self.high or 0)


def cell(place: Place, summary: Summary | None) -> Cell:
    """The cell of a place; without runs it holds the paper's number alone."""
    empty = Cell(place.paper, place.is_quoted, is_time=place.score == HOURS)
    setting = (summary or {"settings": {}})["settings"].get(place.setting)
    if not setting:
        return empty
    if place.score == HOURS:
        return _time(empty, setting, place.stage)
    found = [
        (run["scores"].get(place.stage, {}).get(place.score), run["fold"])
        for run in setting["runs"]
    ]
    values = [value for value, _ in found if value is not None]
    if not values:
        return empty
    apart = intervals.mean_by_fold(
        values, [fold for value, fold in found if value is not None]
    )
    filled = _filled(empty, values)._replace(mean=float(np.mean(apart)))
    if place.paper is None:
        return filled
    of_images = setting.get("images_variance")
    variance = 0.0 if of_images is None else math.nan
    variance = (of_images or {}).get(place.stage, {}).get(place.score, variance)
    low, high = intervals.of_run_mean(apart, variance)
    filled = filled._replace(difference=float(np.mean(apart)) - place.paper)
    if not math.isfinite(low):
        return filled
    return filled._replace(low=low - place.paper, high=high - place.paper)


def _filled(empty: Cell, values: Sequence[float]) -> Cell:
    std = float(np.std(values, ddof=1)) if len(values) > 1 else None
    return empty._replace(mean=float(np.mean(values)), std=std, runs=len(values))


def _time(empty: Cell, setting: Mapping[str, Any], stage: str) -> Cell:
    """Hours for 100 epochs of each stage, or of one of them; machines differ."""
    hours = []
    for run in setting["runs"]:
        spent = [
            one["seconds"] / one["epochs"] * PER / 3600
            for one in run["stages"]
            if one["epochs"] and stage in (FINAL, one["title"])
        ]
        if spent:
            hours.append(sum(spent))
    return _filled(empty, hours) if hours else empty


def common_differences(summary: Summary) -> list[str]:
    """What all runs of a summary do otherwise than the paper, in short sentences."""
    dataset, about = summary["dataset"], summary["about"]
    paper = published.protocol(dataset)
    images = about["images"]
    train, val = images["train"], images["val"]
    if paper.get("merges_val") and not about["merge_val"]:
        found = [
            f"Validation: the {val:,} shipped images are kept apart, while the paper "
            f"trains on them too; {train:,} are left for training."
        ]
    elif dataset == "synthetic":
        found = [f"Validation: {val:,} drawn images; {train:,} for training."]
    else:
        found = [
            f"Validation: {val:,} of {train + val:,} training images are held out; the "
            "paper describes no validation data."
        ]
    size = "x".join(map(str, about["size"]))
    if paper and about["size"] != paper["size"]:
        theirs = "x".join(map(str, paper["size"]))
        found.append(f"Image size: {size}, not {theirs}.")
    else:
        found.append(f"Image size: {size}{', as in the paper' if paper else ''}.")
    if paper.get("equalize") and not about["equalize"]:
        found.append("Images are not equalised here: a copy that was so already.")
    found.append(f"Frozen parts: {_frozen(about)}.")
    if paper and about["encoder"] != paper["encoder"]:
        found.append(f"Encoder: {about['encoder']}, not {paper['encoder']}.")
    cap = about["max_epochs"]
    most = f", where the paper has {paper['max_epochs']}" if paper else ""
    found.append(
        f"Epochs: at most {cap} per phase{most}; the last column says how many."
    )
    folds = {r["fold"] for s in summary["settings"].values() for r in s["runs"]}
    if paper.get("folds") and len(folds - {None}) < paper["folds"]:
        count = len(folds - {None}) or 1
        found.append(f"Folds: {count} of the paper's {paper['folds']}.")
    return found


def row_differences(summary: Summary, places: Sequence[Place]) -> str:
    """What is particular to the runs of a row, such as epochs and precision."""
    found = []
    for place in places:
        setting = summary["settings"].get(place.setting)
        if not setting:
            continue
        counts = [
            [
                stage["epochs"]
                for stage in run["stages"]
                if place.stage == FINAL
                or stage["title"] == place.stage.replace("_", " ")
            ]
            for run in setting["runs"]
        ]
        parts = [_span(column) for column in zip(*counts, strict=False)]
        text = " + ".join(parts) + " epochs"
        if setting["max_epochs"] != summary["about"]["max_epochs"]:
            text += f" of at most {setting['max_epochs']}"
        if setting["encoder"] != summary["about"]["encoder"]:
            text += f", {setting['encoder']}"
        batch = summary["about"].get("batch_size")
        if setting.get("batch_size", batch) != batch:  # earlier ones do not say
            text += f", batches of {setting['batch_size']}"
        if setting["views"] < summary["about"]["views"]:
            text += ", new views each time"
        if setting.get("dtype", "float32") != "float32":  # earlier ones do not say
            text += f", in {setting['dtype']}"
        found.append(text)
    return "; ".join(dict.fromkeys(found))


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _frozen(about: Mapping[str, Any]) -> str:
    if about["is_frozen"]:
        return (
            "the whole encoder; a projection and the classifier are trained, which "
            "leaves out methods that pretrain the encoder"
        )
    if about["trainable_from"]:
        return (
            f"all before {about['trainable_from']}, with {about['views']} kept views "
            "of each image"
        )
    return "none, as in the paper"
