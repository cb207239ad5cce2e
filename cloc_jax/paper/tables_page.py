"""The paper's tables beside our runs, as a page of Markdown."""

from collections.abc import Mapping, Sequence

from cloc_jax.paper import table_rows
from cloc_jax.paper.table_rows import HOURS, TABLES, Cell
from cloc_jax.paper.table_summaries import (
    BIASED,
    CONTROLLED,
    FINAL,
    PROTOCOLS,
    About,
    TableSummary,
)
from cloc_jax.report import published
from cloc_jax.scoring import results

QUOTED = "†"
LONGEST = 240  # letters of a reason why a run is missing
INTERVALS = (
    "Ours is the mean ± standard deviation over runs, n their number. Differences are "
    "ours minus the paper's, with a 95% interval over other seeds and other test "
    "images (Student's, by Welch and Satterthwaite's degrees of freedom; with folds "
    "over these only, with one run over images only). The paper's number is taken as "
    "exact. A difference in bold is one whose interval leaves out zero."
)

Titled = tuple[str, list[Cell]]  # a row


def markdown(
    summaries: Sequence[TableSummary],
    *,
    only: Sequence[str],
    data: Sequence[str],
    absent: Mapping[str, str],
) -> str:
    """The page as Markdown.

    Args:
      summaries: of runs.
      only: tables that are shown.
      data: datasets that are shown, with the paper's numbers alone where there are no
        runs; () for the paper's and those that have runs.
      absent: by dataset, how to get it.
    """
    lines = [
        "# The paper's tables",
        "",
        "Written by `python launch.py tables`. " + INTERVALS,
        "",
        f"{QUOTED} {published.document()['quoted']['why']}.",
        "",
    ]
    with_runs = [one.dataset for one in summaries]
    names = list(data) or [*published.DATASETS, "clap2015", *with_runs]
    for table in only:
        blocks = _blocks(table, list(dict.fromkeys(names)), summaries, absent)
        if blocks:
            title = TABLES[table].title
            lines += [f"## {title}", "", TABLES[table].about, "", *blocks]
    if unfinished := _by_reason(summaries):
        lines += ["## Not finished", ""]
        lines += [f"- `{name}`: {reason}" for name, reason in unfinished.items()]
        lines.append("")
    commands = dict.fromkeys(c for one in summaries for c in one.commands)
    if commands:
        lines += ["## Commands", ""]
        lines += [f"{n}. `{text}`" for n, text in enumerate(commands, 1)]
    return "\n".join(lines).rstrip() + "\n"


def _by_reason(summaries: Sequence[TableSummary]) -> dict[str, str]:
    """Why runs are missing, in a sentence, by the names of all it is true of."""
    names: dict[str, list[str]] = {}
    for one in summaries:
        for name, reason in one.unfinished.items():
            first = reason.split("; ")[0]
            cut = first if len(first) <= LONGEST else f"{first[:LONGEST]}…"
            names.setdefault(cut, []).append(name)
    return {", ".join(found): reason for reason, found in names.items()}


# --- blocks ---


def _blocks(
    table: str,
    datasets: Sequence[str],
    summaries: Sequence[TableSummary],
    absent: Mapping[str, str],
) -> list[str]:
    """Lines of each dataset and protocol that has runs; then those without runs."""
    full: list[str] = []
    empty: list[str] = []
    for dataset in datasets:
        has_runs = False
        for summary in (one for one in summaries if one.dataset == dataset):
            rows = _rows(table, dataset, summary)
            ours = [row for row in rows if any(cell.runs for cell in row[1])]
            if ours:
                # The paper's other rows stand in the first block already.
                full += _block(table, dataset, summary, ours if has_runs else rows)
                has_runs = True
        rows = _rows(table, dataset, None)
        if rows and not has_runs:
            why = absent.get(dataset, "") or "No runs of this yet."
            empty += _block(table, dataset, None, rows, why)
    return full + empty


def _rows(table: str, dataset: str, summary: TableSummary | None) -> list[Titled]:
    """Rows of which the paper or our runs have a number."""
    rows = []
    for row in TABLES[table].rows(dataset, summary):
        cells = [table_rows.cell(place, summary) for place in row.places]
        if any(cell.place.paper is not None or cell.runs for cell in cells):
            rows.append((row.title, cells))
    return rows


def _block(
    table: str,
    dataset: str,
    summary: TableSummary | None,
    rows: Sequence[Titled],
    missing: str = "",
) -> list[str]:
    """Lines of one table for one dataset and protocol."""
    protocol = f", {PROTOCOLS[summary.protocol]}" if summary else ""
    lines = [f"### {published.title(dataset)}{protocol}", ""]
    lines += [missing, ""] if missing else []
    lines += [*map(_piped, _table(TABLES[table].columns, rows, summary)), ""]
    notes = common_differences(summary) if summary else []
    notes += _remarks(table, dataset, rows, summary)
    return [*lines, *(f"- {note}" for note in notes), ""]


def _remarks(
    table: str, dataset: str, rows: Sequence[Titled], summary: TableSummary | None
) -> list[str]:
    """On the paper's numbers, and on which of our runs are shown."""
    notes: list[str] = []
    if dataset in published.DATASETS and table in ("comparison", "controllability"):
        paper = published.of_dataset(dataset)
        control = paper.control.notes if paper.control else ()
        said = control if table == "controllability" else paper.notes
        notes += [f"Paper: {note}" for note in said]
    if not summary:
        return notes
    kind = BIASED if table == "bias" else ""
    if table in ("controllability", "bias") and kind in summary.controlled:
        value = summary.controlled[kind].rpartition(" ")[2]
        tried = [n for n in summary.settings if n.startswith(kind + CONTROLLED)]
        more = f", of {len(tried)} values the best on validation data"
        notes.append(
            f"The critical margin is fixed at {value}{more if len(tried) > 1 else ''}; "
            "the paper does not say which value it used."
        )
    shown = {cell.place.setting for _, cells in rows for cell in cells}
    if table in ("controllability", "bias", "ablations"):
        runs = [
            run
            for name in shown & set(summary.settings)
            for run in summary.settings[name].runs
            if run.margins
        ]
        if runs and all(results.are_margins_unmet(run.violated) for run in runs):
            notes.append(
                "Next to no triplet of test images keeps its margin in any of CLOC's "
                "runs. While that is so in training, the gradient of the contrast does "
                "not depend on the margins."
            )
    if table == "time":
        notes.append(f"Ours: {summary.about.device}, where not said otherwise.")
        if any(one.together > 1 for one in summary.settings.values()):
            notes.append(
                "On kept features the runs of a setting are one program; the time is "
                "that of all of them."
            )
    return notes


# --- what differs from the paper ---


def common_differences(summary: TableSummary) -> list[str]:
    """What all runs of a summary do otherwise than the paper, in short sentences."""
    about = summary.about
    paper = published.protocol(summary.dataset)
    train, val = about.images["train"], about.images["val"]
    if paper.get("merges_val") and not about.merge_val:
        notes = [
            f"Validation: the {val:,} shipped images are kept apart, while the paper "
            f"trains on them too; {train:,} are left for training."
        ]
    elif summary.dataset == "synthetic":
        notes = [f"Validation: {val:,} drawn images; {train:,} for training."]
    else:
        notes = [
            f"Validation: {val:,} of {train + val:,} training images are held out; the "
            "paper describes no validation data."
        ]
    size = _shape(about.size)
    if paper and size != _shape(paper["size"]):
        notes.append(f"Image size: {size}, not {_shape(paper['size'])}.")
    else:
        notes.append(f"Image size: {size}{', as in the paper' if paper else ''}.")
    if paper.get("equalize") and not about.equalize:
        notes.append("Images are not equalised here: a copy that was so already.")
    notes.append(f"Frozen parts: {_frozen(about)}.")
    if paper and about.encoder != paper["encoder"]:
        notes.append(f"Encoder: {about.encoder}, not {paper['encoder']}.")
    most = f", where the paper has {paper['max_epochs']}" if paper else ""
    notes.append(
        f"Epochs: at most {about.max_epochs} per phase{most}; the last column says how "
        "many."
    )
    folds = {run.fold for one in summary.settings.values() for run in one.runs}
    count = len(folds - {None})
    if paper.get("folds") and count < paper["folds"]:
        notes.append(f"Folds: {count or 1} of the paper's {paper['folds']}.")
    return notes


def _row_differences(summary: TableSummary, cells: Sequence[Cell]) -> str:
    """What is particular to the runs of a row, such as epochs and precision."""
    texts = []
    about = summary.about
    for place in (cell.place for cell in cells):
        setting = summary.settings.get(place.setting)
        if not setting:
            continue
        title = place.stage.replace("_", " ")
        counts = [
            [s.epochs for s in run.stages if place.stage == FINAL or s.title == title]
            for run in setting.runs
        ]
        text = " + ".join(map(_span, zip(*counts, strict=False))) + " epochs"
        if setting.max_epochs != about.max_epochs:
            text += f" of at most {setting.max_epochs}"
        if setting.encoder != about.encoder:
            text += f", {setting.encoder}"
        if setting.batch_size not in (None, about.batch_size):
            text += f", batches of {setting.batch_size}"
        if setting.views < about.views:
            text += ", new views each time"
        if setting.dtype != "float32":
            text += f", in {setting.dtype}"
        if place.score == HOURS and setting.device not in ("", about.device):
            text += f", on {setting.device}"
        texts.append(text)
    return "; ".join(dict.fromkeys(texts))


def _span(values: Sequence[int]) -> str:
    low, high = min(values), max(values)
    return str(low) if low == high else f"{low}–{high}"


def _shape(size: Sequence[int]) -> str:
    return "x".join(map(str, size))


def _frozen(about: About) -> str:
    if about.is_frozen:
        return (
            "the whole encoder; a projection and the classifier are trained, which "
            "leaves out methods that pretrain the encoder"
        )
    if about.trainable_from:
        views = f"with {about.views} kept views of each image"
        return f"all before {about.trainable_from}, {views}"
    return "none, as in the paper"


# --- numbers ---


def _table(
    columns: Sequence[str], rows: Sequence[Titled], summary: TableSummary | None
) -> list[list[str]]:
    """The head of a table, the line below it, and its rows."""
    places = [cell.place for _, cells in rows for cell in cells]
    has_paper = any(place.paper is not None for place in places)
    # The paper's times are of another machine.
    has_differences = has_paper and places[0].score != HOURS
    titles = ["paper"] * has_paper + ["ours", "n"] + ["difference"] * has_differences
    head = [""]
    for column in columns:
        head += [f"{column}: {titles[0]}", *titles[1:]]
    head.append("what differs")
    table = [head, ["---"] * len(head)]
    for title, cells in rows:
        row = [title]
        for cell in cells:
            count = str(cell.runs or "")
            row += [_paper(cell)] * has_paper + [_ours(cell), count]
            row += [_difference(cell)] * has_differences
        table.append([*row, _row_differences(summary, cells) if summary else ""])
    return table


def _paper(cell: Cell) -> str:
    """Four digits, as the paper prints them; "" where there is none."""
    if cell.place.paper is None:
        return ""
    return f"{cell.place.paper:.4f}{f' {QUOTED}' if cell.place.is_quoted else ''}"


def _ours(cell: Cell) -> str:
    """Mean ± standard deviation; "" without runs."""
    if cell.mean is None:
        return ""
    digits = 4 if cell.place.score == HOURS else 3
    spread = "" if cell.std is None else f" ± {cell.std:.{digits}f}"
    return f"{cell.mean:.{digits}f}{spread}"


def _difference(cell: Cell) -> str:
    """Ours minus the paper's with its interval; "" where one is missing."""
    if cell.difference is None:
        return ""
    text = _signed(cell.difference)
    text = f"**{text}**" if cell.is_apart else text
    return f"{text} [{' to '.join(map(_signed, cell.ends))}]" if cell.ends else text


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


def _piped(row: Sequence[str]) -> str:
    return "| " + " | ".join(value.replace("|", "\\|") for value in row) + " |"
