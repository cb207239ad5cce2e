"""What the page's scripts work on: images, decisions and plots as compact JSON.

Every label that a slider can lead to is found here, by `scoring.decisions`, so that the
page and `launch.py decide` agree to the last image; the page only looks labels up.
Arrays are base64.
"""

import base64
import itertools
import math
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cloc_jax.report.view import View
from cloc_jax.scoring import decisions, metrics
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions

MOST_BYTES = 5_000_000  # of what is decided with; with more, nothing is in the page
MOST_SLIDERS = 4  # boundaries whose sides are combined
CALIBRATION = "calibration"  # the split, as data/splits.py names it
# A missed image at one boundary, where all other mistakes cost 1.
COSTS = tuple(
    float(f"{digits * 10.0**power:.2g}")
    for power in (-1, 0, 1)
    for digits in (1, 1.5, 2, 3, 5, 7)
) + (100.0,)
BINS = 10  # of a calibration plot
MOST_POINTS = 400  # of a curve
MOST_LINES = 200  # of a plot


def build(view: View) -> dict[str, Any]:
    """Plain data for JSON: `images`, `deciding` and `plots`, and how they are read."""
    problem = _problem(view)
    temperature = 1.0
    if not problem:
        val = view.splits["val"]
        assert val.probabilities is not None
        temperature = decisions.fit_temperature(val.probabilities, val.true)
    return {
        "ranks": view.results.ranks,
        "images": _images(view, temperature, problem) if view.shown else None,
        "deciding": None if problem else _deciding(view, temperature),
        "problem": problem,
        "plots": _plots(view),
    }


def _problem(view: View) -> str | None:
    """Why nothing can be decided in the page; None where it can."""
    for split, name in (("val", "validation"), ("test", "test")):
        if split not in view.splits:
            return f"this run has no predictions for {name} images (predictions.csv)"
        if view.splits[split].probabilities is None:
            return f"the method {view.results.method} gives no probabilities"
    count, sliders = len(view.splits["test"].true), len(moved_boundaries(view))
    per_image = 4 * len(view.results.ranks) + (len(COSTS) + 16) * sliders
    if count * per_image > MOST_BYTES:
        return (
            f"the probabilities of {count} images would make the page too large; "
            "`launch.py decide` prints the same numbers"
        )
    return None


def _images(view: View, temperature: float, problem: str | None) -> dict[str, Any]:
    """The images of the split that is shown, with calibrated probabilities."""
    shown, kind = view.shown, _label_kind(view)
    assert shown is not None
    images: dict[str, Any] = {
        "names": list(shown.items),
        "true": _base64(shown.true, kind),
        "predicted": _base64(shown.predicted, kind),
        "probabilities": None,
        "sets": None,
    }
    if shown.probabilities is None or problem:
        return images
    at = decisions.apply_temperature(shown.probabilities, temperature)
    images["probabilities"] = _base64(at, "<f4")
    if view.decision is not None and view.decision.sets is not None:
        low, high = view.decision.apply_sets(shown.probabilities)
        ends = {"low": _base64(low, kind), "high": _base64(high, kind)}
        images["sets"] = ends | {"coverage": view.decision.sets.coverage}
    return images


# --- decisions ---


def moved_boundaries(view: View) -> list[str]:
    """Boundaries that get a slider: the critical ones, or those most often crossed
    where none is. Low to high."""
    names = metrics.boundary_names(view.results.ranks)
    chosen = view.results.critical or view.boundaries_that_matter
    return [name for name in names if name in chosen][:MOST_SLIDERS]


def _deciding(view: View, temperature: float) -> dict[str, Any]:
    """What the sliders look up.

    A slider of the share that may be missed has steps (see `_steps`). Which steps an
    image passes at which boundaries says on which sides it may lie, and for each
    combination of sides there is a table of labels. A slider of costs has a table of
    labels for each of its positions.
    """
    names = metrics.boundary_names(view.results.ranks)
    moved = {name: names.index(name) for name in moved_boundaries(view)}
    at = {
        split: decisions.apply_temperature(found.probabilities, temperature)
        for split, found in view.splits.items()
        if found.probabilities is not None
    }
    kind, decision, test = _label_kind(view), view.decision, view.splits["test"]
    p = test.probabilities
    assert p is not None

    def choose(costs: dict[str, tuple[float, float]]) -> np.ndarray:
        ranks = tuple(view.results.ranks)
        return Decision(ranks, temperature, costs=costs).apply(p)

    saved = None
    if decision is not None and decision.chooses_labels:
        saved = _base64(decision.apply(p), kind)
    run = shlex.quote(str(view.folder.path))
    return {
        "command": f"python launch.py decide --run={run}",
        "temperature": temperature,
        "saved": saved,
        "calibration": len(view.splits[CALIBRATION].true) if CALIBRATION in at else 0,
        "sides": _labels_by_side(at["test"], list(moved.values()), kind),
        "costs": COSTS,
        "boundaries": [
            {
                "name": name,
                "h": h,
                "above": _base64(above := _above(at["test"], h), "<f4"),
                "curve": _curve(above, test.true > h),
                "steps": {
                    split: _steps(above, at[split], view.splits[split], h, guarantee)
                    for split, guarantee in (("val", False), (CALIBRATION, True))
                    if split in at
                },
                "by_cost": [
                    _base64(choose({name: (cost, 1.0)}), kind) for cost in COSTS
                ],
            }
            for name, h in moved.items()
        ],
    }


def _steps(
    above: np.ndarray,
    fitted: np.ndarray,
    images: Predictions,
    h: int,
    guarantee: bool,
) -> dict[str, str]:
    """The thresholds of a boundary that can be asked for, from the lowest up.

    `shares` are the shares missed that they use up, `passed` how many of them each
    test image lies above.
    """
    scores = _above(fitted, h)
    wanted = np.sort(scores[images.true > h])
    thresholds = [decisions.just_below(float(score), scores) for score in wanted]
    shares = decisions.missed_shares(len(wanted), guarantee)
    return {
        "shares": _base64(shares, "<f8"),
        "thresholds": _base64(np.array(thresholds), "<f8"),
        "passed": _base64(np.searchsorted(thresholds, above, side="left"), "<u4"),
    }


def _labels_by_side(
    probabilities: np.ndarray, places: Sequence[int], kind: str
) -> dict[str, Any]:
    """Labels for every combination of sides of the boundaries, each of them free, below
    or above; `index` has the table of each combination, the last boundary fastest."""
    tables: dict[str, int] = {}
    index = []
    for sides in itertools.product((None, 1.0, -1.0), repeat=len(places)):
        chosen = zip(places, sides, strict=True)
        thresholds = {h: side for h, side in chosen if side is not None}
        labels = decisions.by_thresholds(probabilities, thresholds)
        index.append(tables.setdefault(_base64(labels, kind), len(tables)))
    return {"index": index, "tables": list(tables)}


def _curve(above: np.ndarray, is_above: np.ndarray) -> dict[str, Any]:
    """The fewest false alarms for each number of test images missed at a boundary."""
    order = np.argsort(above, kind="stable")
    is_last = np.append(np.diff(above[order]) > 0, True)  # equals go together
    missed = np.append(0, np.cumsum(is_above[order])[is_last])
    below = int((~is_above).sum())
    alarms = np.append(below, below - np.cumsum(~is_above[order])[is_last])
    fewest = dict(zip(missed.tolist(), alarms.tolist(), strict=True))
    some = sorted(fewest)[:: math.ceil(len(fewest) / MOST_POINTS)]
    some = list(dict.fromkeys([*some, max(fewest)]))
    return {
        "missed": some,
        "alarms": [fewest[count] for count in some],
        "above": int(is_above.sum()),
        "below": below,
    }


def _above(probabilities: np.ndarray, h: int) -> np.ndarray:
    return decisions.probability_above(probabilities, h)


def _label_kind(view: View) -> str:
    return "<u1" if len(view.results.ranks) <= 256 else "<u2"


def _base64(values: np.ndarray, kind: str) -> str:
    data = np.ascontiguousarray(values).astype(kind).tobytes()
    return base64.b64encode(data).decode()


# --- plots ---


def _plots(view: View) -> dict[str, Any]:
    """Plots by name: `loss`, `accuracy`, one for each readout, and `calibration`.

    A plot against epochs has `x`, and `lines` with a `name`, `values` (None where there
    is none) and whether it `is_fixed`; `changes` are the epochs after which a new stage
    begins. `calibration` is a list of panels with their bins.
    """
    history = view.history
    plots: dict[str, Any] = {}
    epochs = list(range(1, len(history) + 1))
    changes = [
        i for i, (a, b) in enumerate(itertools.pairwise(history), 1)
        if a.get("stage") != b.get("stage")
    ]  # fmt: skip

    def add(name: str, title: str, lines: list[dict[str, Any]]) -> None:
        lines = [line for line in lines if any(v is not None for v in line["values"])]
        if lines and len(lines) <= MOST_LINES and len(epochs) > 1:
            axes = {"title": title, "x": epochs, "changes": changes}
            plots[name] = axes | {"lines": lines}

    scalars = dict.fromkeys(key for row in history for key in row.get("train") or ())
    parts = [key for key in scalars if key not in ("loss", "accuracy")]
    losses = [_line("training loss", history, "train", "loss")]
    losses += [_line(key.replace("_", " "), history, "train", key) for key in parts]
    add("loss", "Loss", losses)
    add(
        "accuracy",
        "Accuracy",
        [
            _line("training", history, "train_eval", "accuracy"),
            _line("validation", history, "val", "accuracy"),
            _line("training batches", history, "train", "accuracy"),
        ],
    )
    for name, readout in view.results.readouts.items():
        lines = [
            _line(label, history, "readouts", name, label)
            | {"is_fixed": readout.kinds.get(label) == "fixed"}
            for label in readout.values
        ]
        add(name, name.replace("_", " ").capitalize(), lines)
    if view.shown is not None and view.shown.probabilities is not None:
        plots["calibration"] = _calibration(view, view.shown)
    return plots


def _line(
    label: str, history: Sequence[Mapping[str, Any]], *keys: str
) -> dict[str, Any]:
    return {"name": label, "values": [_value(row, keys) for row in history]}


def _value(row: Any, keys: Sequence[str]) -> float | None:
    for key in keys:
        row = (row or {}).get(key)
    return row if isinstance(row, int | float) and math.isfinite(row) else None


def _calibration(view: View, shown: Predictions) -> list[dict[str, Any]]:
    """How often it was so against how probable it was: of the likeliest rank, and of
    lying above each boundary that matters."""
    p, true = shown.probabilities, shown.true
    assert p is not None
    bins = min(BINS, max(len(true) // BINS, 1))  # with enough images in each
    likeliest = decisions.reliability(p.max(1), p.argmax(1) == true, bins)
    panels = [("The likeliest rank", likeliest)]
    names = metrics.boundary_names(view.results.ranks)
    for name in view.boundaries_that_matter:
        h = names.index(name)
        holds = decisions.reliability(_above(p, h), true > h, bins)
        panels.append((f"Above {name}", holds))
    return [
        {
            "title": title,
            "bins": [
                [b.predicted, b.observed, b.interval.low, b.interval.high, b.images]
                for b in found
            ],
        }
        for title, found in panels
    ]
