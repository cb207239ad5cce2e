"""Values behind the plots, for the page to draw them with numbers on hover."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from cloc_jax.scoring import calibration, metrics
from cloc_jax.scoring.predictions import Predictions

BINS = 10
MOST_LINES = 12  # more cannot be told apart


def build(
    scores: Mapping[str, Any],
    ranks: Sequence[str],
    history: Sequence[Mapping[str, Any]],
    shown: Predictions | None,
) -> dict[str, Any]:
    """Plots by name: `loss`, `accuracy`, one for each readout, and `calibration`.

    A plot against epochs has `x`, and `lines` with a `name`, `values` (None where there
    is none) and whether it `is_fixed`; `changes` are the epochs after which a new stage
    begins. `calibration` is a list of panels with their bins.
    """
    plots: dict[str, Any] = {}
    epochs = list(range(1, len(history) + 1))
    changes = [
        i for i, (a, b) in enumerate(zip(history, history[1:], strict=False), 1)
        if a.get("stage") != b.get("stage")
    ]  # fmt: skip

    def add(name: str, title: str, lines: list[dict[str, Any]]) -> None:
        lines = [line for line in lines if any(v is not None for v in line["values"])]
        if lines and len(lines) <= MOST_LINES and len(epochs) > 1:
            plots[name] = {
                "title": title,
                "x": epochs,
                "changes": changes,
                "lines": lines,
            }

    add("loss", "Loss", [_line("training loss", history, "train", "loss")])
    add(
        "accuracy",
        "Accuracy",
        [
            _line("training", history, "train_eval", "accuracy"),
            _line("validation", history, "val", "accuracy"),
        ],
    )
    for name, readout in scores["readouts"].items():
        is_per_boundary = readout["per"] == "boundary"
        names = metrics.boundary_names(ranks) if is_per_boundary else list(ranks)
        kinds = readout.get("kinds") or {}
        add(
            name,
            name.replace("_", " ").capitalize(),
            [
                _line(label, history, "readouts", name, label)
                | {"is_fixed": kinds.get(label) == "fixed"}
                for label in names
            ],
        )
    if shown is not None and shown.probabilities is not None:
        plots["calibration"] = _calibration(scores, ranks, shown)
    return plots


def _line(
    label: str, history: Sequence[Mapping[str, Any]], *keys: str
) -> dict[str, Any]:
    return {"name": label, "values": [_value(row, keys) for row in history]}


def _value(row: Any, keys: Sequence[str]) -> float | None:
    for key in keys:
        row = (row or {}).get(key)
    return row if isinstance(row, int | float) and math.isfinite(row) else None


def _calibration(
    scores: Mapping[str, Any], ranks: Sequence[str], shown: Predictions
) -> list[dict[str, Any]]:
    """The same panels as in calibration.png."""
    p, true = shown.probabilities, shown.true
    assert p is not None
    bins = min(BINS, max(len(true) // BINS, 1))
    panels = [("The likeliest rank", calibration.reliability(p, true, bins))]
    split = scores["final"].get("test") or scores["final"]["val"]
    critical = scores.get("critical") or ()
    for name in metrics.boundaries_that_matter(split["boundaries"], critical):
        h = metrics.boundary_names(ranks).index(name)
        holds = calibration.reliability_above(p, true, h, bins)
        panels.append((f"Above {name}", holds))
    return [
        {
            "title": title,
            "bins": [
                [b.predicted, b.observed, b.interval.low, b.interval.high, b.images]
                for b in sorted(found, key=lambda b: b.predicted)
            ],
        }
        for title, found in panels
    ]
