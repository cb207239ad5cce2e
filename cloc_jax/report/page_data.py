"""What the page's scripts work on: images, decisions and plots as compact JSON.

Probabilities are those that `decide` goes by, at the same temperature and in float64,
so that the page finds the same labels to the last image. Arrays are base64.
"""

import base64
import pathlib
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cloc_jax.report import plot_data
from cloc_jax.scoring import calibration, metrics
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions

MOST_BYTES = 5_000_000  # of probabilities; with more, nothing is decided in the page
CALIBRATION = "calibration"  # the split, as data/splits.py names it


def build(
    run: pathlib.Path,
    scores: Mapping[str, Any],
    ranks: Sequence[str],
    split: str,
    found: Mapping[str, Predictions],
    decision: Decision | None,
    history: Sequence[Mapping[str, Any]],
) -> dict[str, Any]:
    """Plain data for JSON: `images`, `deciding` and `plots`, and how they are read.

    Args:
      run: the folder, as commands should name it.
      scores: as in metrics.json.
      split: of the images shown.
      found: predictions by split; there may be none.
      decision: the saved one.
      history: one row per epoch.
    """
    shown = found.get(split)
    problem = _problem(found, scores)
    temperature = 1.0
    if not problem:
        val = found["val"]
        assert val.probabilities is not None
        temperature = calibration.fit_temperature(val.probabilities, val.true)
    return {
        "ranks": list(ranks),
        "split": {"test": "test", "val": "validation"}[split],
        "images": _images(shown, temperature, decision) if shown else None,
        "deciding": None
        if problem
        else {
            "command": f"python launch.py decide --run={shlex.quote(str(run))}",
            "boundaries": _boundaries(found, scores, ranks, temperature, decision),
            "calibration": len(found[CALIBRATION].true) if CALIBRATION in found else 0,
            "saved": _saved(decision),
            "temperature": temperature,
        },
        "problem": problem,
        "plots": plot_data.build(scores, ranks, history, shown),
    }


def _problem(found: Mapping[str, Predictions], scores: Mapping[str, Any]) -> str | None:
    """Why nothing can be decided in the page; None where it can."""
    for split, name in (("val", "validation"), ("test", "test")):
        if split not in found:
            return f"this run has no predictions for {name} images (predictions.csv)"
        if found[split].probabilities is None:
            return f"the method {scores.get('method', '')} gives no probabilities"
    probabilities = found["test"].probabilities
    if probabilities is not None and 8 * probabilities.size > MOST_BYTES:
        return (
            f"the probabilities of {len(found['test'].true)} images would make the "
            "page too large; `launch.py decide` prints the same numbers"
        )
    return None


def _images(
    shown: Predictions, temperature: float, decision: Decision | None
) -> dict[str, Any]:
    images: dict[str, Any] = {
        "names": list(shown.items),
        "true": _base64(shown.true, "<u2"),
        "predicted": _base64(shown.predicted, "<u2"),
        "probabilities": None,
        "sets": None,
    }
    p = shown.probabilities
    if p is not None and 8 * p.size <= MOST_BYTES:
        at = calibration.apply_temperature(p, temperature)
        images["probabilities"] = _base64(at, "<f8")
        if decision is not None and decision.sets is not None:
            low, high = decision.apply_sets(p)
            ends = {"low": _base64(low, "<u2"), "high": _base64(high, "<u2")}
            images["sets"] = ends | {"coverage": decision.sets.coverage}
    return images


def boundaries_to_move(
    scores: Mapping[str, Any], ranks: Sequence[str], decision: Decision | None
) -> list[str]:
    """Boundaries that get a slider: all critical ones, or those most often crossed
    where none is; and those that the saved decision is about. Low to high."""
    names = metrics.boundary_names(ranks)
    split = scores["final"].get("test") or scores["final"]["val"]
    chosen = scores.get("critical") or metrics.boundaries_that_matter(
        split["boundaries"], ()
    )
    saved = (decision.costs or decision.thresholds or {}) if decision else {}
    return [name for name in names if name in chosen or name in saved]


def _boundaries(
    found: Mapping[str, Predictions],
    scores: Mapping[str, Any],
    ranks: Sequence[str],
    temperature: float,
    decision: Decision | None,
) -> list[dict[str, Any]]:
    """P(above) of each boundary with a slider, by split, as thresholds need it."""
    names = metrics.boundary_names(ranks)
    at = {
        split: calibration.apply_temperature(images.probabilities, temperature)
        for split, images in found.items()
        if images.probabilities is not None
    }
    rows = []
    for name in boundaries_to_move(scores, ranks, decision):
        h = names.index(name)
        row: dict[str, Any] = {"name": name, "h": h, "fit": {}}
        for split, p in at.items():
            above = calibration.probability_above(p, h)
            if split == "test":
                row["above"] = _base64(above, "<f8")
            else:
                is_above = _base64(found[split].true > h, "<u1")
                row["fit"][split] = {
                    "scores": _base64(above, "<f8"),
                    "is_above": is_above,
                }
        rows.append(row)
    return rows


def _saved(decision: Decision | None) -> dict[str, Any] | None:
    """The saved decision as the page's controls show it."""
    if decision is None or not decision.chooses_labels:
        return None
    if decision.costs is not None:
        return {
            "mode": "cost",
            "costs": {k: list(v) for k, v in decision.costs.items()},
        }
    targets = {name: decision.target(name) for name in decision.thresholds or {}}
    if None in targets.values():  # thresholds that were not fitted for a share
        return None
    return {"mode": "missed", "targets": targets, "guarantee": decision.guarantee}


def _base64(values: np.ndarray, kind: str) -> str:
    return base64.b64encode(
        np.ascontiguousarray(values).astype(kind).tobytes()
    ).decode()
