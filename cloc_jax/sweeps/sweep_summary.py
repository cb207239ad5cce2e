"""The summary of a sweep: means over seeds and folds, as JSON, CSV and a table."""

import json
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from rich.table import Table

from cloc_jax.runtime import files
from cloc_jax.runtime.console import console
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.sweeps.run_plan import FOLD, SEED, Plan

REPEATS = (SEED, FOLD)  # what the summary takes the mean over
SCORES = ("accuracy", "mae", "qwk")


def summarize(
    folder: pathlib.Path, plans: Sequence[Plan], *, splits: Sequence[str]
) -> dict[str, Any]:
    """Mean and standard deviation over seeds and folds for each combination.

    Args:
      folder: of the runs.
      plans: the runs.
      splits: "val" alone, with every score there is to choose by, or "val" and "test".
    """
    cells: dict[str, dict[str, Any]] = {}
    for p in plans:
        run = RunFolder(folder / p.name)
        settings = {k: v for k, v in p.overrides.items() if k not in REPEATS}
        cell = cells.setdefault(
            json.dumps(settings), {"settings": settings, "runs": [], "unfinished": []}
        )
        if not run.metrics.exists():
            cell["unfinished"].append(p.name)
            continue
        found = run.read_metrics()
        scores = {
            split: _scores(found, split, is_all=len(splits) == 1) for split in splits
        }
        cell["runs"].append({"name": p.name, **scores, "margins": found["margins"]})
    for cell in cells.values():
        for split in splits:
            names = cell["runs"][0][split] if cell["runs"] else ()
            cell[split] = {
                name: _spread([run[split].get(name) for run in cell["runs"]])
                for name in names
            }
    return {"cells": list(cells.values())}


def _scores(found: Mapping[str, Any], split: str, *, is_all: bool) -> dict[str, Any]:
    """Of one split: all that are numbers, or the headlines."""
    scores = found["final"][split]
    chosen = {name: scores[name] for name in SCORES}
    if is_all:
        chosen |= {k: v for k, v in scores.items() if isinstance(v, float)}
    if is_all or split == "test":
        for boundary in found["critical"]:
            rates = scores["boundaries"][boundary]
            chosen[f"error {boundary}"] = rates["error_rate"]
            chosen[f"crossing {boundary}"] = rates["crossing_rate"]
    return chosen


def _spread(values: Sequence[float | None]) -> dict[str, float | int | None]:
    known = [v for v in values if v is not None]
    if not known:
        return {"mean": None, "std": None, "count": 0}
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return {"mean": float(np.mean(known)), "std": std, "count": len(known)}


def write_csv(path: pathlib.Path, summary: Mapping[str, Any]) -> None:
    """Writes a row per run."""
    rows = []
    for cell in summary["cells"]:
        for run in cell["runs"]:
            val = {f"val {name}": value for name, value in run["val"].items()}
            rows.append({"run": run["name"]} | val | run.get("test", {}))
    columns = {name: None for row in rows for name in row} or {"run": None}
    table = [[row.get(name, "") for name in columns] for row in rows]
    files.write_csv(path, [list(columns), *table])


def show(summary: Mapping[str, Any], choose: str = "") -> None:
    """Prints a row per combination; with `choose` only what was chosen by."""
    table = Table(box=None, pad_edge=False)
    columns: dict[str, None] = {}
    shown = [
        {f"val {k}": v for k, v in cell["val"].items()} | cell.get("test", {})
        for cell in summary["cells"]
    ]
    for scores in shown:
        columns |= dict.fromkeys(scores)
    if choose:
        columns = dict.fromkeys(f"val {name}" for name in (choose, *SCORES))
    for name in ("settings", "runs", *columns):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for cell, scores in zip(summary["cells"], shown, strict=True):
        row = [describe(cell["settings"]), str(len(cell["runs"]))]
        row += [text_of(scores.get(name, {"mean": None})) for name in columns]
        table.add_row(*row)
    console.print(table)
    for cell in summary["cells"]:
        for name in cell["unfinished"]:
            console.print(f"not finished: {name}", soft_wrap=True)


def describe(settings: Mapping[str, Any]) -> str:
    """Settings in one line."""
    return "  ".join(f"{k}={v}" for k, v in settings.items()) or "(as configured)"


def text_of(spread: Mapping[str, Any]) -> str:
    """Mean and standard deviation; "" where there is none."""
    if spread["mean"] is None:
        return ""
    if spread["std"] is None:
        return f"{spread['mean']:.3f}"
    return f"{spread['mean']:.3f} ± {spread['std']:.3f}"
