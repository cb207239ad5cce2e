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
from cloc_jax.scoring import results
from cloc_jax.scoring.results import Spread, Summary, SummaryCell, SummaryRun
from cloc_jax.sweeps.plan import FOLD, SEED, Plan, is_finished

SCORES = ("accuracy", "mae", "qwk")
MORE_SCORES = ("one_off_accuracy", "macro_mae", "nll")  # to choose by
Scores = dict[str, float | None]


def summarize(
    folder: pathlib.Path, plans: Sequence[Plan], *, is_choosing: bool
) -> Summary:
    """Mean and standard deviation over seeds and folds for each combination.

    Args:
      folder: of the runs.
      plans: the runs.
      is_choosing: gives every score of the validation data that there is to choose by,
        and none of the test data.
    """
    groups: dict[str, list[Plan]] = {}
    for plan in plans:
        groups.setdefault(json.dumps(_settings(plan)), []).append(plan)
    return Summary([_cell(folder, own, is_choosing) for own in groups.values()])


def _settings(plan: Plan) -> dict[str, Any]:
    """What the summary does not take the mean over."""
    return {k: v for k, v in plan.overrides.items() if k not in (SEED, FOLD)}


def _cell(
    folder: pathlib.Path, plans: Sequence[Plan], is_choosing: bool
) -> SummaryCell:
    finished = [plan for plan in plans if is_finished(folder, plan)]
    runs = []
    for plan in finished:
        found = results.read_results(RunFolder(folder / plan.name))
        val = _scores(found, "val", is_all=is_choosing)
        test = None if is_choosing else _scores(found, "test")
        runs.append(SummaryRun(plan.name, val, found.margins, test))
    return SummaryCell(
        _settings(plans[0]),
        runs,
        [plan.name for plan in plans if plan not in finished],
        _spreads([run.val for run in runs]),
        None if is_choosing else _spreads([run.test or {} for run in runs]),
    )


def _scores(found: results.RunResults, split: str, *, is_all: bool = False) -> Scores:
    """Of one split: all that there are to choose by, or the headlines."""
    scores = found.final[split]
    chosen = {name: scores.headline(name) for name in SCORES}
    if is_all:
        more = {name: scores.headline(name) for name in MORE_SCORES}
        chosen |= {name: value for name, value in more.items() if value is not None}
    if is_all or split == "test":
        for boundary in found.critical:
            rates = scores.boundaries[boundary]
            chosen[f"error {boundary}"] = rates.error_rate
            chosen[f"crossing {boundary}"] = rates.crossing_rate
    return chosen


def _spreads(runs: Sequence[Scores]) -> dict[str, Spread]:
    """Of each score of the first run."""
    return {
        name: _spread([run.get(name) for run in runs]) for name in (runs or [{}])[0]
    }


def _spread(values: Sequence[float | None]) -> Spread:
    known = [v for v in values if v is not None]
    if not known:
        return Spread(None, None, 0)
    std = float(np.std(known, ddof=1)) if len(known) > 1 else None
    return Spread(float(np.mean(known)), std, len(known))


def write_csv(path: pathlib.Path, summary: Summary) -> None:
    """Writes a row per run."""
    rows = [
        {"run": run.name} | _columns(run.val, run.test)
        for cell in summary.cells
        for run in cell.runs
    ]
    columns = {name: None for row in rows for name in row} or {"run": None}
    table = [[row.get(name, "") for name in columns] for row in rows]
    files.write_csv(path, [list(columns), *table])


def _columns(val: Mapping[str, Any], test: Mapping[str, Any] | None) -> dict[str, Any]:
    """Scores of both splits under the names of their columns."""
    return {f"val {name}": value for name, value in val.items()} | dict(test or {})


def show(summary: Summary, choose: str = "") -> None:
    """Prints a row per combination; with `choose` only what was chosen by."""
    shown = [_columns(cell.val, cell.test) for cell in summary.cells]
    columns = {name: None for scores in shown for name in scores}
    if choose:
        columns = dict.fromkeys(f"val {name}" for name in (choose, *SCORES))
    table = Table(box=None, pad_edge=False)
    for name in ("settings", "runs", *columns):
        table.add_column(name, justify="left" if name == "settings" else "right")
    for cell, scores in zip(summary.cells, shown, strict=True):
        row = [describe(cell.settings), str(len(cell.runs))]
        table.add_row(*row, *(text_of(scores.get(name)) for name in columns))
    console.print(table)
    for cell in summary.cells:
        for name in cell.unfinished:
            console.print(f"not finished: {name}", soft_wrap=True)


def describe(settings: Mapping[str, Any]) -> str:
    """Settings in one line."""
    return "  ".join(f"{k}={v}" for k, v in settings.items()) or "(as configured)"


def text_of(spread: Spread | None) -> str:
    """Mean and standard deviation; "" where there is none."""
    if spread is None or spread.mean is None:
        return ""
    std = "" if spread.std is None else f" ± {spread.std:.3f}"
    return f"{spread.mean:.3f}{std}"
