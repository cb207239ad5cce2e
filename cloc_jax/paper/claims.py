"""The paper's claims beside what runs here found, as one page.

Studies leave JSON files with their evidence, tables with summaries of their runs. This
reads all of them below a folder and writes a table: each claim, what was tried with
which command, data and seeds, the figures with their intervals, and a verdict by a
fixed rule.
"""

import math
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.paper import published, studies, table_summaries
from cloc_jax.paper.studies import Evidence, Study
from cloc_jax.paper.table_summaries import BIASED, FINAL, PHASE_ONE, TableSummary
from cloc_jax.runtime import files
from cloc_jax.scoring import intervals
from cloc_jax.scoring.intervals import Interval

# How a page begins, by which it is known when it is written again.
BEGIN = "# Claims\n\nWritten by `python launch.py claims`"
HOLDS, FAILS, OPEN = "holds", "does not hold", "not shown"


# --- verdicts ---


def verdict_on(ends: Interval, *, is_lower_better: bool) -> str:
    """The verdict on a difference, of its 95% interval, that a claim calls better."""
    if not (ends.low > 0 or ends.high < 0):  # also where there is no interval
        return OPEN
    return HOLDS if (ends.high < 0) == is_lower_better else FAILS


def _signed(value: float, ends: Interval) -> str:
    """A difference with its interval, as it is printed."""
    return f"{value:+.3f} [{ends.low:+.3f}, {ends.high:+.3f}]"


def lowered(
    claim: str, tried: str, before: float, after: float, ends: Interval
) -> Evidence:
    """Evidence of a claim that an error rate falls, by its difference's interval."""
    change = f"{before:.3f} → {after:.3f}, difference {_signed(after - before, ends)}"
    return Evidence(claim, tried, change, verdict_on(ends, is_lower_better=True))


_SCORES = {"accuracy": "accuracy", "mae": "MAE"}
Compared = tuple[float, float, Interval]  # both means, ends of their difference


def by_scores(claim: str, tried: str, compared: dict[str, Compared]) -> Evidence:
    """Evidence of two scores; the verdict names them where they do not agree."""
    parts, verdicts = [], {}
    for score, (first, second, ends) in compared.items():
        name = _SCORES[score]
        apart = _signed(first - second, ends)
        parts.append(f"{name} {first:.3f} against {second:.3f}, difference {apart}")
        verdicts[name] = verdict_on(ends, is_lower_better=score == "mae")
    verdict = ", ".join(f"{text} ({name})" for name, text in verdicts.items())
    if len(set(verdicts.values())) == 1:
        verdict = verdicts["accuracy"]
    return Evidence(claim, tried, "; ".join(parts), verdict)


# --- what tables say ---


def of_tables(summary: TableSummary) -> Iterator[Evidence]:
    """What the runs behind the paper's tables say.

    Settings are compared on the same test images. The interval of a difference covers
    other seeds and other test images (`cloc_jax.scoring.intervals`), with the
    images paired where one machine has trained both settings.
    """
    others = [method for method in table_summaries.METHODS if method != "cloc"]
    rivals = [method for method in others if method != "ce"]
    pairs = [
        (claim, f"{kind}cloc", kind + method, f"CLOC against {method.upper()}")
        for claim, kind, methods in (
            ("outperforms", "", rivals),
            ("beats_cross_entropy", "", ["ce"]),
            ("biased_outperforms", BIASED, others),
        )
        for method in methods
    ]
    fixed, learned = summary.controlled.get(BIASED, ""), f"{BIASED}cloc"
    pairs += [
        ("biased_accuracy", fixed, learned, "fixed margin against learned margins"),
        ("own_margins", "cloc", "cloc shared", "CLOC against one shared margin"),
        ("own_margins", "cloc", "cloc ones", "CLOC against all margins 1"),
    ]
    for claim, first, second, tried in pairs:
        if {first, second} <= set(summary.settings):
            compared = {
                score: _difference(summary, first, second, score) for score in _SCORES
            }
            tried += _pairing(summary, first, second)
            yield by_scores(claim, tried, compared)
    for claim, rate, kind in (
        ("neighbour_errors", "error", ""),
        ("crossings", "crossing", ""),
        ("biased_crossings", "crossing", BIASED),
    ):
        yield from _lower_errors(summary, claim, rate, kind)
    if "cloc" in summary.settings:
        yield from _two_phases(summary)


def _lower_errors(
    summary: TableSummary, claim: str, rate: str, kind: str
) -> Iterator[Evidence]:
    """Learned margins against the value that validation chose, where it matters."""
    fixed, learned = summary.controlled.get(kind), f"{kind}cloc"
    if fixed is None or learned not in summary.settings:
        return
    # With biased labels only the first boundary has a fixed margin.
    for boundary in summary.critical[: 1 if kind else None]:
        margins = [
            np.mean([run.margins[boundary] for run in summary.settings[name].runs])
            for name in (fixed, learned)
        ]
        if not kind and margins[0] <= margins[1]:
            continue  # nothing was raised
        after, before, ends = _difference(summary, fixed, learned, f"{rate} {boundary}")
        tried = f"{boundary}, {fixed.removeprefix(kind)}"
        tried += _pairing(summary, fixed, learned)
        yield lowered(claim, tried, before, after, ends)


def _two_phases(summary: TableSummary) -> Iterator[Evidence]:
    """Both phases against phase one alone, run by run; images are the same."""
    runs = summary.settings["cloc"].runs
    if not all(PHASE_ONE in run.scores for run in runs):
        return
    compared: dict[str, Compared] = {}
    for score in _SCORES:
        after, before = (
            np.array([run.scores[stage][score] for run in runs], float)
            for stage in (FINAL, PHASE_ONE)
        )
        apart = intervals.mean_by_fold(list(after - before), [run.fold for run in runs])
        ends = intervals.of_run_mean(apart, 0.0)
        compared[score] = (float(after.mean()), float(before.mean()), ends)
    yield by_scores(
        "two_phases", "both phases against phase one, over seeds only", compared
    )


def _difference(summary: TableSummary, first: str, second: str, score: str) -> Compared:
    """Both means, and the interval of the first minus the second."""
    each = []
    for name in (first, second):
        runs = summary.settings[name].runs
        # One per run or, with several folds, per fold; NaN where it has none.
        scores = np.array([run.scores[FINAL][score] for run in runs], float).tolist()
        each.append(intervals.mean_by_fold(scores, [run.fold for run in runs]))
    images = _over_images(summary, first, second, score)
    ends = intervals.of_run_mean(each[0], images, minus=each[1])
    return float(np.mean(each[0])), float(np.mean(each[1])), ends


def _over_images(summary: TableSummary, first: str, second: str, score: str) -> float:
    """Variance of the difference of two settings over other test images.

    Where the machines that trained them shared no folder, it is not known; then as if
    each had its own test images, which is more, as images that are hard for one tend to
    be hard for the other.
    """
    alone = [summary.settings[name].images_variance for name in (first, second)]
    if not any(alone):
        return 0.0  # folds: the runs had other test images each
    if paired := _paired(summary, first, second):
        return float(paired.get(score, math.nan))
    known = [one[FINAL] if one else {} for one in alone]
    return float(sum(one.get(score, math.nan) for one in known))


def _paired(summary: TableSummary, first: str, second: str) -> Mapping[str, Any]:
    """Variance of the difference of a setting and CLOC; {} if it is not known."""
    settings = summary.settings
    return settings[first].paired_variance or settings[second].paired_variance or {}


def _pairing(summary: TableSummary, first: str, second: str) -> str:
    """What the evidence says where the images of two settings are not paired."""
    settings = summary.settings
    has_images = any(settings[n].images_variance is not None for n in (first, second))
    is_paired = not has_images or _paired(summary, first, second)
    return "" if is_paired else ", images not paired"


# --- the page ---


class Row(NamedTuple):
    """A row of a claim's table."""

    evidence: Evidence
    dataset: str
    about: table_summaries.About | Study  # the encoder, and what of it was trained
    seeds: int
    commands: tuple[str, ...]


def write_claims(folder: pathlib.Path, target: pathlib.Path) -> int:
    """Writes the page from all studies and summaries in a folder and below it.

    Returns how many files there were.
    """
    rows: list[Row] = []
    count = 0
    for path in sorted(folder.rglob("*.json")):
        if table_summaries.is_summary(path):
            rows += _rows_of_tables(table_summaries.read_summary(path))
        elif path.name == studies.KEPT or path.stem in studies.KINDS:
            rows += _rows_of_studies(path)
        else:
            continue
        count += 1
    if not count:
        raise FileNotFoundError(
            f"{folder} holds no study; run `launch.py control`, `margins`, "
            "`collapse` or `tables` first, or give --run= the folder above them."
        )
    _check_target(target)
    files.write_text(target, _page(rows))
    return count


def _rows_of_studies(path: pathlib.Path) -> Iterator[Row]:
    kind: Any = studies.KeptStudies if path.name == studies.KEPT else studies.Study
    found = files.read_dataclass(kind, path, remedy=studies.REMEDY)
    for study in getattr(found, "studies", (found,)):
        for evidence in study.evidence:
            yield Row(evidence, study.dataset, study, study.seeds, (study.command,))


def _rows_of_tables(summary: TableSummary) -> Iterator[Row]:
    seeds = max(len({r.seed for r in one.runs}) for one in summary.settings.values())
    for evidence in of_tables(summary):
        yield Row(evidence, summary.dataset, summary.about, seeds, summary.commands)


def _check_target(target: pathlib.Path) -> None:
    """FileExistsError for a file that `claims` did not write."""
    is_ours = target.is_file() and target.read_bytes().startswith(BEGIN.encode())
    if target.exists() and not is_ours:
        raise FileExistsError(
            f"--to={target} exists and is no page that `claims` wrote; give another "
            "name or move it away."
        )


def _page(rows: Sequence[Row]) -> str:
    return table_summaries.page(
        "claims",
        begin=BEGIN,
        holds=HOLDS,
        fails=FAILS,
        open=OPEN,
        claims=published.CLAIMS,
        rows=rows,
        commands=list(dict.fromkeys(text for row in rows for text in row.commands)),
    )
