"""A run folder as one HTML page that a person can open, print and send.

All it shows is there without scripts; where a browser runs them, decisions can be
moved, images looked through, and plots say their values. page/ has its parts.
"""

import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2

from cloc_jax.report import (
    page_data,
    page_parts,
    published,
    run_files,
    thumbnails,
    unmet_margins,
    written_numbers,
)
from cloc_jax.runtime import files
from cloc_jax.runtime.errors import printable
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import conformal_sets, metrics
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions

NAME = "report.html"
MANY_ROWS = 15  # longer tables are folded away
WORST = 10  # mistakes shown
COLLAPSED = 0.02  # a margin below it asks for next to nothing
# Of the headline cards: key, title, how to write it.
HEADLINES = (
    ("accuracy", "Accuracy", "percent"),
    ("mae", "MAE", "number"),
    ("qwk", "QWK", "number"),
    ("one_off_accuracy", "At most one rank off", "percent"),
)
COMPARED = HEADLINES + (
    ("macro_mae", "Macro MAE", "number"),
    ("nll", "NLL", "number"),
)


def write_report(
    run: pathlib.Path, results: Mapping[str, Any] | None = None
) -> pathlib.Path:
    """Writes `report.html` into the run folder and returns its path.

    Reads nothing but files of that folder, and the studies of the margins that lie in
    it or beside it. Where a file is missing, the page says so in its place, except
    for `metrics.json`: it must be there, unless `results` has what it would hold.
    Images have thumbnails as far as the page stays below MOST_BYTES.
    """
    run = pathlib.Path(run)
    folder = RunFolder(run)
    scores = _read_metrics(folder) if results is None else dict(results)
    ranks = [str(rank) for rank in scores["ranks"]]
    final = scores["final"]
    split = "test" if final.get("test") else "val"
    margins = scores["readouts"].get("margins") or {}
    margin_rows = _margin_rows(scores, margins, ranks)
    boundary_rows = _boundary_rows(scores, final[split], ranks)
    paper = published.find(scores["dataset"], len(ranks))
    found, decision = (
        run_files.read_predictions(run, scores),
        run_files.decision(run, ranks),
    )
    history = folder.read_history()
    data = page_data.build(run, scores, ranks, split, found, decision, history)
    pictures = thumbnails.read(run / thumbnails.NAME)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(page_parts.FOLDER),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str | None]] = {
        "percent": written_numbers.percent,
        "number": written_numbers.number,
        "seconds": written_numbers.duration,
        "percent_ends": written_numbers.percent_interval,
    }
    environment.filters |= filters
    page = environment.get_template("page.html.jinja").render(
        parts=page_parts.read(),
        data=data,
        run_path=str(run),
        place=page_parts.PLACE,
        moved=page_data.boundaries_to_move(scores, ranks, decision),
        has_thumbnails=pictures is not None,
        sets=_sets(found, decision),
        run=run.resolve().name,
        scores=scores,
        ranks=ranks,
        split={"test": "test", "val": "validation"}[split],
        main=final[split],
        cards=_cards(final, split, len(ranks)),
        beside=_beside(final[split], ranks, paper),
        paper=paper,
        paper_rows=_paper_rows(boundary_rows, paper),
        rank_rows=_rank_rows(final[split], ranks),
        boundary_rows=boundary_rows,
        critical_rows=[row for row in boundary_rows if row["is_critical"]],
        margin_rows=margin_rows,
        margin_sum=sum(row["value"] for row in margin_rows),
        margin_limit=margins.get("limit"),
        is_too_wide=_is_too_wide(margins),
        unmet=unmet_margins.sentence(scores.get("violated") or {}),
        readouts=_readouts(run, scores),
        collapsed=_collapsed(margin_rows),
        collapsed_below=COLLAPSED,
        has_learned=any(row["kind"] != "fixed" for row in margin_rows),
        mistakes=_worst_mistakes(found.get(split), ranks, pictures or {}),
        nearest=run_files.nearest(run, ranks),
        order=_order(scores),
        comparison=_comparison(scores),
        stages=_stages(scores),
        history=history,
        config=run_files.config_tables(run),
        control=run_files.study(run, "control.json", "control.png"),
        margin_study=run_files.study(run, "margins.json", "margin_study.png"),
        collapse=run_files.study(run, "collapse.json", "collapse.png"),
        decision=decision.describe() if decision else [],
        trade_off=scores.get("trade_off") or {},
        images={
            name: run_files.picture(run / f"{name}.png")
            for name in (
                "confusion",
                "calibration",
                "margins",
                "embedding",
                "similarity",
                "curves",
            )
        },
        many_rows=MANY_ROWS,
    )
    path = run / NAME
    whole = page_parts.with_data(printable(page), data, pictures or {})
    files.write_text(path, whole)
    return path


# --- reading -------------------------------------------------------------------------


def _read_metrics(folder: RunFolder) -> dict[str, Any]:
    scores = folder.read_metrics()
    if not any(scores.get("final", {}).get(split) for split in ("test", "val")):
        raise ValueError(
            f'{folder.metrics} has neither "final"/"test" nor "final"/"val" scores; '
            "wanted the file a finished run leaves."
        )
    return scores


def _worst_mistakes(
    shown: Predictions | None, ranks: Sequence[str], pictures: Mapping[str, bytes]
) -> list[dict[str, Any]] | None:
    """The furthest, then most confident mistakes; None without predictions.csv."""
    if shown is None:
        return None
    p, mistakes = shown.probabilities, []
    for i, (true, label) in enumerate(zip(shown.true, shown.predicted, strict=True)):
        if true == label:
            continue
        name = shown.items[i]
        mistakes.append(
            {
                "item": name,
                "true": ranks[true],
                "predicted": ranks[label],
                "off": int(abs(true - label)),
                "confidence": None if p is None else float(p[i, label]),
                "picture": page_parts.jpeg_uri(pictures.get(name)),
            }
        )
    mistakes.sort(key=lambda m: (-m["off"], -(m["confidence"] or 0), m["item"]))
    return mistakes[:WORST]


# --- what each section shows ---------------------------------------------------------


def _cards(
    final: Mapping[str, Any], split: str, num_ranks: int
) -> list[dict[str, Any]]:
    beside = (final.get("val") or {}) if split == "test" else {}
    intervals = final[split].get("intervals") or {}
    return [
        {
            "title": title,
            "value": written_numbers.written(kind, final[split].get(key)),
            "interval": written_numbers.interval(kind, intervals.get(key)),
            "beside": written_numbers.written(kind, beside.get(key))
            if beside
            else None,
        }
        for key, title, kind in HEADLINES
        if num_ranks > 2 or key != "one_off_accuracy"  # of two, all are one off
    ]


def _beside(
    split: Mapping[str, Any],
    ranks: Sequence[str],
    paper: published.Published | None,
) -> list[dict[str, Any]]:
    """This run, always answering the commonest rank, and the paper's method."""
    intervals = split.get("intervals") or {}
    counts = [split["true_counts"][rank] for rank in ranks]
    commonest = counts.index(max(counts))
    off = sum(count * abs(i - commonest) for i, count in enumerate(counts))
    rows: list[dict[str, Any]] = [
        {
            "name": "This run",
            "accuracy": split["accuracy"],
            "mae": split["mae"],
            "accuracy_ends": written_numbers.interval(
                "percent", intervals.get("accuracy")
            ),
            "mae_ends": written_numbers.interval("number", intervals.get("mae")),
        },
        {
            "name": f"Always the commonest rank, “{ranks[commonest]}”",
            "accuracy": max(counts) / split["count"],
            "mae": off / split["count"],
        },
    ]
    if paper:
        name = "CLOC in the paper"
        rows.append({"name": name, "accuracy": paper.accuracy, "mae": paper.mae})
    return rows


def _paper_rows(
    rows: Sequence[Mapping[str, Any]], paper: published.Published | None
) -> list[dict[str, Any]]:
    """The paper's error rates by boundary beside the run's."""
    if paper is None or paper.control is None:
        return []
    control = paper.control
    return [
        {
            **row,
            "learned": learned,
            "raised": raised,
            "is_raised": i in control.critical,
        }
        for i, (row, learned, raised) in enumerate(
            zip(rows, control.learned, control.controlled, strict=True)
        )
    ]


def _rank_rows(split: Mapping[str, Any], ranks: Sequence[str]) -> list[dict[str, Any]]:
    return [
        {
            "rank": rank,
            "true": split["true_counts"][rank],
            "right": split["confusion"][i][i],
            "recall": split["recall"][rank],
            "predicted": split["predicted_counts"][rank],
        }
        for i, rank in enumerate(ranks)
    ]


def _boundary_rows(
    scores: Mapping[str, Any], split: Mapping[str, Any], ranks: Sequence[str]
) -> list[dict[str, Any]]:
    critical = scores.get("critical") or ()
    intervals = split.get("intervals") or {}
    return [
        {
            "name": name,
            "low": ranks[i],
            "high": ranks[i + 1],
            "is_critical": name in critical,
            "intervals": (intervals.get("boundaries") or {}).get(name) or {},
            **split["boundaries"][name],
        }
        for i, name in enumerate(metrics.boundary_names(ranks))
    ]


def _margin_rows(
    scores: Mapping[str, Any], margins: Mapping[str, Any], ranks: Sequence[str]
) -> list[dict[str, Any]]:
    values = margins.get("values") or {}
    kinds = margins.get("kinds") or {}
    violated = scores.get("violated") or {}
    largest = max([abs(value) for value in values.values()], default=0)
    return [
        {
            "name": name,
            "low": ranks[i],
            "high": ranks[i + 1],
            "kind": kinds.get(name, "learned"),
            "value": values[name],
            "violated": violated.get(name),
            "width": 100 * abs(values[name]) / largest if largest else 0,
            "is_critical": name in (scores.get("critical") or ()),
        }
        for i, name in enumerate(metrics.boundary_names(ranks))
        if name in values
    ]


def _readouts(run: pathlib.Path, scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What the method lets people read, besides margins, which have their own place."""
    return [
        {
            "name": name,
            "title": name.replace("_", " "),
            "per": readout["per"],
            "rows": list(readout["values"].items()),
            "picture": run_files.picture(run / f"{name}.png"),
        }
        for name, readout in scores["readouts"].items()
        if name != "margins"
    ]


def _is_too_wide(margins: Mapping[str, Any]) -> bool:
    """Whether the margins sum to more than the cosine geometry allows."""
    limit = margins.get("limit")
    total = sum((margins.get("values") or {}).values())
    return limit is not None and total > limit + 1e-6


def _collapsed(margin_rows: Sequence[Mapping[str, Any]]) -> list[str]:
    """Boundaries whose margin training has all but removed."""
    return [
        row["name"]
        for row in margin_rows
        if row["kind"] != "fixed" and row["value"] < COLLAPSED
    ]


def _sets(
    found: Mapping[str, Predictions], decision: Decision | None
) -> dict[str, Any] | None:
    """How the saved prediction sets fare on the test images; None without."""
    test = found.get("test")
    if decision is None or decision.sets is None:
        return None
    if test is None or test.probabilities is None:
        return None
    ranks = decision.ranks
    low, high = decision.apply_sets(test.probabilities)
    overall, by_rank = conformal_sets.fare(low, high, test.true, len(ranks))
    counts = conformal_sets.size_counts(low, high, len(ranks))
    return {
        "asked": decision.sets.coverage,
        "chosen_on": decision.sets.images,
        "overall": overall,
        "over_slices": decision.sets.over_slices(),
        "verdict": overall.verdict(decision.sets.coverage),
        "by_rank": list(zip(ranks, by_rank, strict=True)),
        "sizes": [(size, count) for size, count in enumerate(counts, 1) if count],
    }


def _order(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """The order score, and the ranks that have the lowest and the highest."""
    score = scores.get("order_score") or {}
    if score.get("overall") is None:
        return None
    known = {k: v for k, v in score["by_rank"].items() if v is not None}
    low, high = min(known, key=known.__getitem__), max(known, key=known.__getitem__)
    return score | {"low": (low, known[low]), "high": (high, known[high])}


def _comparison(scores: Mapping[str, Any]) -> dict[str, Any] | None:
    """The last earlier stage that was scored against the end, one row per metric."""
    earlier = [
        key
        for key, value in scores.items()
        if key != "final" and isinstance(value, dict) and value.keys() & {"val", "test"}
    ]
    if not earlier:
        return None
    first = earlier[-1].replace("_", " ")
    columns = [
        (title, scores[stage].get(split) or {})
        for split in ("val", "test")
        for stage, title in ((earlier[-1], first), ("final", "final"))
    ]
    rows = [
        (title, [written_numbers.written(kind, split.get(key)) for _, split in columns])
        for key, title, kind in COMPARED
        if any(split.get(key) is not None for _, split in columns)
    ]
    return {"first": first, "columns": [title for title, _ in columns], "rows": rows}


def _stages(scores: Mapping[str, Any]) -> list[dict[str, Any]]:
    stages = [dict(stage) for stage in scores.get("stages") or ()]
    is_old = "phase_one" in scores and not any("title" in stage for stage in stages)
    for stage, phase in zip(stages, ("phase one", "phase two", *stages), strict=False):
        title = stage.get("title") or (phase if is_old else "")
        stage["title"] = f"{stage['name']} ({title})" if title else stage["name"]
    return stages
