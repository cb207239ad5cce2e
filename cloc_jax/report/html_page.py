"""A run folder as one HTML page that a person can open, print and send."""

import base64
import csv
import io
import json
import math
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jinja2
from PIL import Image

from cloc_jax.report import published
from cloc_jax.runtime import atomic_files, checked_files
from cloc_jax.runtime.checked_files import Damaged
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions, metrics

NAME = "report.html"
DASH = "–"  # stands for a number that is not defined
MANY_ROWS = 15  # longer tables are folded away
WORST = 10  # mistakes shown
COLLAPSED = 0.02  # a margin below it asks for next to nothing
MIME = {".png": "image/png", ".jpg": "image/jpeg"}
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
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    filters: dict[str, Callable[..., str | None]] = {
        "percent": _percent,
        "number": _number,
        "seconds": _duration,
        "percent_ends": _percent_ends,
    }
    environment.filters |= filters
    page = environment.get_template("report.html.jinja").render(
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
        readouts=_readouts(run, scores),
        collapsed=_collapsed(margin_rows),
        collapsed_below=COLLAPSED,
        has_learned=any(row["kind"] != "fixed" for row in margin_rows),
        mistakes=_worst_mistakes(run, ranks, split),
        nearest=_nearest(run, ranks),
        order=_order(scores),
        comparison=_comparison(scores),
        stages=_stages(scores),
        history=folder.read_history(),
        config=_config_tables(run),
        control=_study(run, "control.json", "control.png"),
        margin_study=_study(run, "margins.json", "margin_study.png"),
        collapse=_study(run, "collapse.json", "collapse.png"),
        decision=_decision(run, ranks),
        trade_off=scores.get("trade_off") or {},
        images={
            name: _picture(run / f"{name}.png")
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
    atomic_files.write_text(path, page)
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


def _picture(path: pathlib.Path) -> dict[str, Any] | None:
    """The picture as a data URI, and its width in CSS pixels (96 an inch)."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.verify()
            width = image.width * 96 / image.info.get("dpi", (96, 96))[0]
    except Exception as error:  # Pillow has many for a file that is damaged
        raise Damaged(
            path,
            f"it is no picture ({error})",
            f"`launch.py evaluate --run={path.parent}` draws it again.",
        ) from None
    data = base64.b64encode(content).decode()
    return {"uri": f"data:{MIME[path.suffix]};base64,{data}", "width": round(width)}


def _nearest(run: pathlib.Path, ranks: Sequence[str]) -> list[dict[str, Any]]:
    """Pictures of the images nearest boundaries, with their names."""
    pictures = [
        {"boundary": name, "picture": _picture(run / f"nearest_{h}.jpg")}
        for h, name in enumerate(metrics.boundary_names(ranks))
    ]
    return [found for found in pictures if found["picture"]]


def _read_json(path: pathlib.Path) -> dict[str, Any] | None:
    if not path.is_file():
        return None
    return checked_files.read_json(path, remedy="Move it away, or repeat the study.")


def _study(run: pathlib.Path, name: str, picture: str) -> dict[str, Any] | None:
    """A study of several runs: from the run's folder or from the one it is in."""
    for folder in (run, run.resolve().parent):
        found = _read_json(folder / name)
        if found is not None:
            return found | {"picture": _picture(folder / picture)}
    return None


def _decision(run: pathlib.Path, ranks: Sequence[str]) -> list[str]:
    """What the saved decision does, in sentences; none without one."""
    path = run / "decision.json"
    if not path.is_file():
        return []
    return decisions.Decision.from_json(path.read_text("utf-8"), ranks).describe()


def _config_tables(run: pathlib.Path) -> dict[str, list[tuple[str, str]]]:
    """The config by its top-level groups, as (dotted name, value) rows."""
    if not RunFolder(run).config.is_file():
        return {}
    config = RunFolder(run).read_config()
    tables: dict[str, list[tuple[str, str]]] = {}
    for name, value in config.items():
        group = name if isinstance(value, dict) else "general"
        tables.setdefault(group, []).extend(_flat(name, value))
    return tables


def _flat(name: str, value: Any) -> list[tuple[str, str]]:
    if isinstance(value, dict) and value:
        return [
            row for key, item in value.items() for row in _flat(f"{name}.{key}", item)
        ]
    return [(name, value if isinstance(value, str) else json.dumps(value))]


def _worst_mistakes(
    run: pathlib.Path, ranks: Sequence[str], split: str
) -> list[dict[str, Any]] | None:
    """The furthest, then most confident mistakes; None without predictions.csv."""
    path = run / "predictions.csv"
    if not path.is_file():
        return None
    place = {rank: i for i, rank in enumerate(ranks)}
    mistakes: list[dict[str, Any]] = []
    with path.open(encoding="utf-8", newline="") as file:
        for row in csv.DictReader(file):
            if row["split"] != split or row["true"] == row["predicted"]:
                continue
            if row["true"] not in place or row["predicted"] not in place:
                continue
            confidence = row.get(f"p_{row['predicted']}")
            mistakes.append(
                {
                    "item": row["item"],
                    "true": row["true"],
                    "predicted": row["predicted"],
                    "off": abs(place[row["true"]] - place[row["predicted"]]),
                    "confidence": float(confidence) if confidence else None,
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
            "value": _written(kind, final[split].get(key)),
            "interval": _ends(kind, intervals.get(key)),
            "beside": _written(kind, beside.get(key)) if beside else None,
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
            "accuracy_ends": _ends("percent", intervals.get("accuracy")),
            "mae_ends": _ends("number", intervals.get("mae")),
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
            "title": name.replace("_", " "),
            "per": readout["per"],
            "rows": list(readout["values"].items()),
            "picture": _picture(run / f"{name}.png"),
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
        (title, [_written(kind, split.get(key)) for _, split in columns])
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


# --- numbers as text -----------------------------------------------------------------


def _written(kind: str, value: float | int | None) -> str:
    return _percent(value) if kind == "percent" else _number(value)


def _ends(kind: str, ends: Sequence[float] | None) -> str | None:
    """An interval in words; None where there is none."""
    if not ends:
        return None
    low, high = (_written(kind, end) for end in ends)
    return f"{low.removesuffix('%')} to {high}"


def _percent_ends(ends: Sequence[float] | None) -> str | None:
    return _ends("percent", ends)


def _percent(value: float | int | None) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return f"{100 * value:.1f}%"


def _number(value: float | int | None) -> str:
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3f}".replace("-", "−")


def _duration(seconds: float | int | None) -> str:
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 59.95:  # rounds to less than a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"
