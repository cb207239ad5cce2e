"""The paper's tables beside our runs, as a page of Markdown.

The interval of a difference holds other seeds and other test images of ours (see
`scoring/intervals.py`); the paper's number is taken as it is, since it gives no spread.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.paper import published, table_rows
from cloc_jax.paper.table_rows import HOURS, TABLES, Data, Row
from cloc_jax.paper.table_summaries import (
    FINAL,
    PROTOCOLS,
    Setting,
    TableSummary,
    page,
)
from cloc_jax.scoring import intervals, results


class Cell(NamedTuple):
    """A score over our runs, and its difference to the paper's."""

    values: Sequence[float] = ()
    mean: float = math.nan
    difference: float = math.nan
    ends: tuple[float, float] = (math.nan, math.nan)  # of its interval


def markdown(summaries: Sequence[TableSummary]) -> str:
    """The page as Markdown: every table that the summaries have runs of."""
    found = {
        name: [_block(rows_of, one) for one in summaries]
        for name, rows_of in TABLES.items()
    }
    commands = [text for one in summaries for text in one.commands]
    return page(
        "tables",
        mark=table_rows.QUOTED,
        published=published,
        summaries=summaries,
        title_of=_title,
        blocks={name: list(filter(None, some)) for name, some in found.items()},
        unfinished={k: v for one in summaries for k, v in one.unfinished.items()},
        commands=list(dict.fromkeys(commands)),
    )


# --- what runs were ---


def _title(summary: TableSummary) -> str:
    return f"{published.title(summary.dataset)}, {PROTOCOLS[summary.protocol]}"


def _runs_of(summary: TableSummary, row: Row) -> str:
    """The epochs of the runs of a row, where they ran, and how they differ."""
    setting, about = summary.settings[row.setting], summary.about
    title = row.stage.replace("_", " ")
    counts = [
        [s.epochs for s in run.stages if row.stage == FINAL or s.title == title]
        for run in setting.runs
    ]
    text = " + ".join(map(_span, zip(*counts, strict=False))) + " epochs"
    if setting.max_epochs != about.max_epochs:
        text += f" of at most {setting.max_epochs}"
    if setting.encoder != about.encoder:
        text += f", {setting.encoder}"
    if setting.dtype != "float32":
        text += f", {setting.dtype}"
    if setting.together > 1:
        text += f", {setting.together} runs timed as one"
    return f"{text}, {setting.device or about.device}"


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


# --- tables ---


def _block(
    rows_of: Callable[[Data], list[Row]], summary: TableSummary
) -> dict[str, Any]:
    """What the template shows of one summary; {} where it has too few runs."""
    data = Data(
        summary.dataset,
        summary.ranks,
        summary.critical,
        summary.about.encoder,
        summary.controlled,
    )
    rows = [row for row in rows_of(data) if row.setting in summary.settings]
    if len(rows) < 2:  # it compares nothing
        return {}
    has_paper = any(number is not None for row in rows for number in row.paper.values())
    # The paper's times are of another machine.
    has_differences = has_paper and HOURS not in rows[0].paper
    titles = ["paper"] * has_paper + ["ours", "n"] + ["difference"] * has_differences
    lines = []
    for row in rows:
        cells = [row.title]
        for score, number in row.paper.items():
            ours = cell(row, score, summary)
            printed = "" if number is None else f"{number:.4f}"
            cells += [printed] * has_paper
            cells += [_ours(ours, score), str(len(ours.values) or "")]
            cells += [_difference(ours)] * has_differences
        lines.append([*cells, _runs_of(summary, row)])
    shown = {"title": _title(summary), "titles": titles, "rows": lines}
    return shown | {"notes": _notes(rows, summary)}


def _notes(rows: Sequence[Row], summary: TableSummary) -> list[str]:
    """On margins that were fixed, and on those that do not matter."""
    names = {row.setting for row in rows}
    fixed = names & set(summary.controlled.values())
    notes = [
        f"The critical margin is fixed at {name.rpartition(' ')[2]}."
        for name in sorted(fixed)
    ]
    runs = [run for n in names for run in summary.settings[n].runs if run.margins]
    if runs and all(results.are_margins_unmet(run.kept_triplets) for run in runs):
        notes.append(
            "Next to no triplet keeps its margin in any of CLOC's runs, so the "
            "gradient of the contrast does not depend on the margins."
        )
    return notes


def _ours(ours: Cell, score: str) -> str:
    """Mean ± standard deviation; "" without runs."""
    if not ours.values:
        return ""
    digits = 4 if score == HOURS else 3
    text = f"{ours.mean:.{digits}f}"
    if len(ours.values) > 1:
        text += f" ± {np.std(ours.values, ddof=1):.{digits}f}"
    return text


def _difference(ours: Cell) -> str:
    """Ours minus the paper's with its interval; "" where one is missing."""
    if math.isnan(ours.difference):
        return ""
    text, (low, high) = _signed(ours.difference), ours.ends
    if math.isnan(low):
        return text
    text = text if low <= 0 <= high else f"**{text}**"
    return f"{text} [{_signed(low)} to {_signed(high)}]"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def cell(row: Row, score: str, summary: TableSummary) -> Cell:
    """A score of the setting of a row, which the summary has."""
    setting = summary.settings[row.setting]
    if score == HOURS:
        hours = _hours(setting, row.stage)
        return Cell(hours, float(np.mean(hours)))
    scored = [
        (value, run.fold)
        for run in setting.runs
        if (value := run.scores.get(row.stage, {}).get(score)) is not None
    ]
    if not scored:
        return Cell()
    values, folds = zip(*scored, strict=True)
    apart = intervals.mean_by_fold(values, folds)
    mean, number = float(np.mean(apart)), row.paper[score]
    if number is None:
        return Cell(values, mean)
    variance = 0.0
    if setting.images_variance is not None:
        of_stage = setting.images_variance.get(row.stage, {})
        variance = of_stage.get(score, math.nan)
    low, high = intervals.of_run_mean(apart, variance)
    return Cell(values, mean, mean - number, (low - number, high - number))


def _hours(setting: Setting, stage: str) -> list[float]:
    """For 100 epochs of each stage, or of one of them; machines differ."""
    return [
        sum(
            one.seconds / one.epochs * 100 / 3600
            for one in run.stages
            if one.epochs and stage in (FINAL, one.title)
        )
        for run in setting.runs
    ]
