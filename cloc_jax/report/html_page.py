"""A run folder as one HTML page that a person can open, print and send.

Its text and tables are there without scripts; where a browser runs them, curves are
drawn, decisions can be moved and images looked through. page/ has the templates, styles
and scripts; uPlot draws the curves and comes with its licence. The page's content
security policy lets these scripts run, known by their hash, and nothing be loaded.

Scripts work on compact JSON, with arrays as base64. Every label that a slider can lead
to is in it, found by `scoring.decisions`, so that the page and `launch.py decide` agree
to the last image; the page only looks labels up.
"""

import base64
import hashlib
import itertools
import json
import math
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
from markupsafe import Markup

from cloc_jax.report import view as views
from cloc_jax.report.view import View
from cloc_jax.runtime import files, run_folder
from cloc_jax.runtime.environment import commands_here
from cloc_jax.runtime.errors import printable
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import RunResults

NAME = "report.html"
FOLDER = pathlib.Path(__file__).parent / "page"
# Scripts in their order.
PARTS = ("scores", "run_data", "plots", "enlarged", "image_table", "deciding", "start")
LABEL = "<u2"  # how labels are written
CALIBRATION = "calibration"  # the split, as data/splits.py names it
# A missed image at one boundary, where all other mistakes cost 1.
COSTS = tuple(
    float(f"{digits * 10.0**power:.2g}")
    for power in (-1, 0, 1)
    for digits in (1, 1.5, 2, 3, 5, 7)
) + (100.0,)
BINS = 10  # of a calibration plot


def write_report(folder: RunFolder, results: RunResults | None = None) -> pathlib.Path:
    """Writes `report.html` into the run's folder and returns its path.

    Reads nothing but files of that folder, and the studies of the margins beside it.
    Where a picture is missing, the page says so in its place; the results must be
    there, unless `results` has what metrics.json would hold.
    """
    view = View(folder, results)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    ways = views.percent, views.number, views.duration, views.interval
    texts = views.unmet_margins, views.data_uri
    environment.filters |= {f.__name__: f for f in (*ways, *texts)}
    style = f"{_text('uPlot.min.css')}\n{_text('page.css')}"
    own = "\n".join(_text(f"{name}.js") for name in PARTS)
    script = (
        f"/*!\nuPlot\n\n{_text('uPlot.LICENSE')}\n*/\n{_text('uPlot.iife.min.js')}\n"
        f'(() => {{\n"use strict";\n{own}\n}})();\n'
    )
    data = page_data(view)
    page = environment.get_template("page.html.jinja").render(
        view=view,
        results=view.results,
        data=data,
        style=Markup(style),
        script=Markup(script),
        hash=base64.b64encode(hashlib.sha256(script.encode()).digest()).decode(),
        json=Markup(_json(data)),
    )
    path = folder.path / NAME
    files.write_text(path, page)
    return path


def _shown(value: Any) -> Any:
    """Text as people may see it, and data with all of their texts so; Markup stays."""
    if type(value) is str:
        return printable(value)
    if isinstance(value, list | tuple):
        return [_shown(part) for part in value]
    if isinstance(value, dict):
        return {key: _shown(part) for key, part in value.items()}
    return value


def _json(value: Any) -> str:
    """JSON that cannot end the element it is in."""
    text = json.dumps(_shown(value), allow_nan=False, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _text(name: str) -> str:
    return (FOLDER / name).read_text(encoding="utf-8").strip()


# --- what the scripts work on ---


def page_data(view: View) -> dict[str, Any]:
    """Plain data for JSON: `images`, `deciding` and `plots`, and how they are read."""
    return {
        "ranks": view.results.ranks,
        "images": _images(view),
        "deciding": _deciding(view) if "test" in view.calibrated else None,
        "plots": _plots(view),
    }


def _images(view: View) -> dict[str, Any]:
    """The test images, with calibrated probabilities."""
    shown, thumbnails = view.test, view.thumbnails or {}
    images: dict[str, Any] = {
        "names": list(shown.items),
        "true": _base64(shown.true, LABEL),
        "predicted": _base64(shown.predicted, LABEL),
        "probabilities": None,
        "sets": None,
        "thumbnails": {
            i: base64.b64encode(thumbnails[name]).decode()
            for i, name in enumerate(shown.items)
            if name in thumbnails
        },
    }
    if shown.probabilities is None:
        return images
    images["probabilities"] = _base64(view.calibrated["test"], "<f4")
    if view.decision is not None and view.decision.sets is not None:
        low, high = view.decision.apply_sets(shown.probabilities)
        ends = {"low": _base64(low, LABEL), "high": _base64(high, LABEL)}
        images["sets"] = ends | {"coverage": view.decision.sets.coverage}
    return images


def _base64(values: np.ndarray, kind: str) -> str:
    data = np.ascontiguousarray(values).astype(kind).tobytes()
    return base64.b64encode(data).decode()


# --- decisions ---


def _deciding(view: View) -> dict[str, Any]:
    """What the sliders look up.

    A slider of the share that may be missed has steps (see `_steps`). Which steps an
    image passes at which boundaries says on which sides it may lie, and for each
    combination of sides there is a table of labels. A slider of costs has a table of
    labels for each of its positions.
    """
    ranks = tuple(view.results.ranks)
    moved = view.results.boundaries_that_matter
    at, temperature = view.calibrated, view.temperature
    decision, test, p = view.decision, view.test, view.test.probabilities
    assert p is not None
    saved = None
    if decision is not None and decision.chooses_labels:
        saved = _base64(decision.apply(p), LABEL)
    boundaries = []
    for name, h in moved.items():
        above = decisions.probability_above(at["test"], h)
        by_cost = [Decision(ranks, temperature, {name: (c, 1.0)}) for c in COSTS]
        boundaries.append(
            {
                "name": name,
                "h": h,
                "above": _base64(above, "<f4"),
                "curve": _curve(above, test.true > h),
                "steps": {
                    split: _steps(above, at[split], view.splits[split], h, guarantee)
                    for split, guarantee in (("val", False), (CALIBRATION, True))
                    if split in at
                },
                "by_cost": [_base64(one.apply(p), LABEL) for one in by_cost],
            }
        )
    run = shlex.quote(str(view.folder.path))
    return {
        "command": commands_here(f"python launch.py decide --run={run}"),
        "temperature": temperature,
        "saved": saved,
        "calibration": len(view.splits[CALIBRATION].true) if CALIBRATION in at else 0,
        "sides": _labels_by_side(at["test"], list(moved.values())),
        "costs": COSTS,
        "boundaries": boundaries,
    }


def _steps(
    above: np.ndarray, fitted: np.ndarray, images: Predictions, h: int, guarantee: bool
) -> dict[str, str]:
    """The thresholds of a boundary that can be asked for, from the lowest up.

    `shares` are the shares missed that they use up, `passed` how many of them each
    test image lies above.
    """
    scores = decisions.probability_above(fitted, h)
    wanted = np.sort(scores[images.true > h])
    thresholds = [decisions.just_below(float(score), scores) for score in wanted]
    shares = decisions.missed_shares(len(wanted), guarantee)
    return {
        "shares": _base64(shares, "<f8"),
        "thresholds": _base64(np.array(thresholds), "<f8"),
        "passed": _base64(np.searchsorted(thresholds, above, side="left"), "<u4"),
    }


def _labels_by_side(probabilities: np.ndarray, places: Sequence[int]) -> list[str]:
    """Labels for every combination of sides of the boundaries, each of them free, below
    or above; the side of the last boundary changes fastest."""
    tables = []
    for sides in itertools.product((None, 1.0, -1.0), repeat=len(places)):
        chosen = zip(places, sides, strict=True)
        thresholds = {h: side for h, side in chosen if side is not None}
        labels = decisions.by_thresholds(probabilities, thresholds)
        tables.append(_base64(labels, LABEL))
    return tables


def _curve(above: np.ndarray, is_above: np.ndarray) -> dict[str, Any]:
    """The fewest false alarms for each number of test images missed at a boundary."""
    order = np.argsort(above, kind="stable")
    is_last = np.append(np.diff(above[order]) > 0, True)  # equals go together
    missed = np.append(0, np.cumsum(is_above[order])[is_last])
    below = int((~is_above).sum())
    alarms = np.append(below, below - np.cumsum(~is_above[order])[is_last])
    fewest = dict(zip(missed.tolist(), alarms.tolist(), strict=True))
    return {
        "missed": list(fewest),
        "alarms": list(fewest.values()),
        "above": int(is_above.sum()),
        "below": below,
    }


# --- plots ---


def _plots(view: View) -> dict[str, Any]:
    """Plots by name: `loss`, `accuracy`, one for each readout, and `calibration`.

    A plot against epochs has `x`, and `lines` with a `name`, `values` (None where there
    is none) and whether it `is_fixed`; `changes` are the epochs after which a new stage
    begins. `calibration` is a list of panels with their bins.
    """
    history = view.history
    rows = [run_folder.flatten(row) for row in history]
    epochs = list(range(1, len(history) + 1))
    changes = [
        i for i, (a, b) in enumerate(itertools.pairwise(history), 1)
        if a.get("stage") != b.get("stage")
    ]  # fmt: skip
    scalars = dict.fromkeys(key for row in history for key in row.get("train") or ())
    parts = [key for key in scalars if key not in ("loss", "accuracy")]
    lines = {
        "loss": [
            _line("training loss", rows, "train.loss"),
            *(_line(key.replace("_", " "), rows, f"train.{key}") for key in parts),
        ],
        "accuracy": [
            _line("training", rows, "train_eval.accuracy"),
            _line("validation", rows, "val.accuracy"),
            _line("training batches", rows, "train.accuracy"),
        ],
    }
    for name, readout in view.results.readouts.items():
        lines[name] = [
            _line(label, rows, f"readouts.{name}.{label}")
            | {"is_fixed": readout.kinds.get(label) == "fixed"}
            for label in readout.values
        ]
    lines["kept_triplets"] = [
        _line(label, rows, f"readouts.kept_triplets.{label}")
        for label in view.results.kept_in_training
    ]
    plots: dict[str, Any] = {}
    for name, some in lines.items():
        known = [line for line in some if any(v is not None for v in line["values"])]
        if known and len(epochs) > 1:
            title = name.replace("_", " ").capitalize()
            axes = {"title": title, "x": epochs, "changes": changes}
            plots[name] = axes | {"lines": known}
    if view.test.probabilities is not None:
        plots["calibration"] = _calibration(view, view.test)
    return plots


def _line(label: str, rows: Sequence[Mapping[str, Any]], key: str) -> dict[str, Any]:
    """A line by epoch; None where the history has no number."""
    values = [row.get(key) for row in rows]
    is_known = [isinstance(v, int | float) and math.isfinite(v) for v in values]
    known = [v if known else None for v, known in zip(values, is_known, strict=True)]
    return {"name": label, "values": known}


def _calibration(view: View, test: Predictions) -> list[dict[str, Any]]:
    """How often it was so against how probable it was: of the likeliest rank, and of
    lying above each boundary that matters. A bin has the mean probability, how often it
    was so, the two ends of its interval, and the number of images."""
    p, true = test.probabilities, test.true
    assert p is not None
    bins = min(BINS, max(len(true) // BINS, 1))  # with enough images in each
    panels = {"The likeliest rank": (p.max(1), p.argmax(1) == true)}
    for name, h in view.results.boundaries_that_matter.items():
        panels[f"Above {name}"] = decisions.probability_above(p, h), true > h
    return [
        {"title": title, "bins": decisions.reliability(chances, is_so, bins)}
        for title, (chances, is_so) in panels.items()
    ]
