"""Runs and summaries that never were, for the paper's tables, studies and claims."""

import dataclasses
import random

import numpy as np
from finished_runs import run_results

from cloc_jax.paper import published
from cloc_jax.paper.table_summaries import (
    COMPARED,
    About,
    Run,
    Setting,
    Stage,
    TableSummary,
)
from cloc_jax.runtime import files
from cloc_jax.scoring import metrics, predictions, results
from configs import idrid

RANKS = ("0", "1", "2", "3", "4")
BOUNDARIES = ("0|1", "1|2", "2|3", "3|4")
ABOUT_STUDY = {
    "command": "python launch.py control --boundary='1|2'",
    "dataset": "koa",
    "size": (120, 200),
    "encoder": "resnet50",
    "is_frozen": True,
    "trainable_from": "",
}


# --- summaries ---


def setting(
    seeds=3, *, accuracy=0.7, mae=0.5, phases=2, margins=None, variance=0.0016, **more
):
    """A setting whose runs scatter around what is given."""
    draw = random.Random(f"{accuracy} {mae}")

    def scores():
        found = {
            "accuracy": accuracy + draw.gauss(0, 0.02),
            "mae": mae + draw.gauss(0, 0.02),
            "qwk": 0.6,
        }
        for h, name in enumerate(BOUNDARIES):
            found[f"error {name}"] = max(0.02, 0.12 - 0.02 * h + draw.gauss(0, 0.01))
            found[f"crossing {name}"] = 0.1
        return found

    titles = ["phase one", "phase two"] if phases == 2 else ["fit"]
    runs = tuple(
        Run(
            scores={"final": scores()}
            | ({"phase_one": scores()} if phases == 2 else {}),
            val=scores(),
            stages=tuple(Stage(t, 20 + 3 * seed, 1000.0) for t in titles),
            margins=dict.fromkeys(BOUNDARIES, 0.4) | (margins or {}),
            seed=seed,
            fold=None,
        )
        for seed in range(seeds)
    )
    names = ["accuracy", "mae", *(f"error {b}" for b in BOUNDARIES)]
    per_image = dict.fromkeys(names, variance)
    fields = {
        "encoder": "resnet50",
        "max_epochs": 60,
        "images_variance": {"final": per_image, "phase_one": per_image},
    }
    return Setting(runs, **fields | more)


def summary(dataset="idrid", protocol="partial", settings=None, *, fields=None):
    """A summary of a dataset with five ranks."""
    about = {
        "encoder": "resnet50",
        "is_frozen": protocol == "frozen",
        "trainable_from": "layer4" if protocol == "partial" else "",
        "size": (224, 224),
        "merge_val": False,
        "images": {"train": 372, "val": 41, "test": 103},
        "max_epochs": 60,
        "device": "cpu x2",
    }
    own = {
        "commands": (f"python launch.py tables --data={dataset}",),
        "ranks": RANKS,
        "critical": ("1|2",),
        "controlled": {},
        "settings": settings or {},
        "unfinished": {},
    }
    return TableSummary(dataset, protocol, about=About(**about), **own | (fields or {}))


def full(dataset="idrid", protocol="partial", *, fields=None):
    """A summary in which every claim has runs."""
    printed = published.TABLES["comparison"]
    settings = {}
    for method in COMPARED:
        paper = printed.get(method, printed["cloc"])
        accuracy, mae = (paper[s].get(dataset, 0.6) for s in ("accuracy", "mae"))
        phases = 2 if method == "cloc" else 1
        one = {"accuracy": accuracy - 0.05, "mae": mae + 0.1, "phases": phases}
        settings[method] = setting(**one)
        one["accuracy"] -= 0.05
        settings[f"biased {method}"] = setting(**one)
    for name in ("cloc controlled 1", "biased cloc controlled 1"):
        settings[name] = setting(accuracy=0.66, margins={"1|2": 1.0})
    controlled = {"": "cloc controlled 1", "biased ": "biased cloc controlled 1"}
    own = {"controlled": controlled} | (fields or {})
    return summary(dataset, protocol, settings, fields=own)


# --- runs ---


def write_run(
    folder,
    true,
    predicted,
    ranks,
    *,
    margins=None,
    has_phase_one=False,
    first=0,
    chance=None,
    **settings,
):
    """A finished run with predictions of images that are numbered from `first` on.

    `settings` are those of its configuration, by dotted name.
    """
    folder.mkdir(parents=True)
    scores = files.from_plain(
        results.SplitScores, metrics.ordinal_metrics(true, predicted, ranks)
    )
    worse = dataclasses.replace(scores, accuracy=scores.accuracy - 0.1, mae=0.9)
    found = run_results(
        {},
        ranks,
        critical=["1|2"] if len(ranks) > 2 else ["0|1"],
        margins=margins or {},
        final={"val": scores, "test": scores},
        dataset="idrid",
        stages=[results.StageResult("fit", 2, 2, "", "", 1.0)],
        seconds={"total": 7200.0},
        environment={"device": "cpu x1"},
        earlier={"phase_one": {"val": worse, "test": worse}} if has_phase_one else {},
    )
    config = idrid.get_config()
    config.encoder.trainable_from = "layer4"
    config.update_from_flattened_dict(settings)
    files.write_sealed(folder / "config.json", config.to_dict())
    images = {"train": 8, "val": len(true), "test": len(true)}
    about = {"images": images, "ranks": list(ranks), "sha256": "0"}
    files.write_sealed(folder / "dataset.json", about)
    names = [str(first + i) for i in range(len(true))]
    one = predictions.Predictions(names, np.asarray(true), predicted, chance)
    path = folder / predictions.NAME
    predictions.write(path, {"val": one, "test": one}, ranks)
    found = dataclasses.replace(found, files={path.name: files.sha256(path)})
    files.write_sealed(folder / "metrics.json", found.to_json())
