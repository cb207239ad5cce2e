"""The paper's tables beside our runs, as Markdown, and the same as an HTML page."""

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from cloc_jax.paper import table_rows
from cloc_jax.paper.table_rows import HOURS, TABLES, Cell, Grid, Place
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
ABOUT = {
    "comparison": "Accuracy and mean absolute error on the test images.",
    "controllability": "Share of the images of two neighbouring ranks that are "
    "mistaken for each other, with learned margins and with those of critical "
    "boundaries fixed.",
    "bias": "Training labels are wrong at the critical boundary: 60% of the lower rank "
    "called the upper one, 30% of the upper the lower. Test labels are right.",
    "ablations": "All margins 1, one shared margin, or one of its own for each "
    "boundary; after phase one and after both.",
    "backbones": "CLOC on other encoders.",
    "classes": "Mean absolute error, counted in classes, where there are many.",
    "time": "Hours for 100 epochs of each stage, evaluation included. The paper's are "
    "of an RTX 4090, so a difference says nothing about the method.",
}
STYLE = """
body { max-width: 1180px; margin: 30px auto; padding: 0 20px; color: #22303c;
  font: 16px/1.6 system-ui, sans-serif; overflow-wrap: anywhere; }
table { display: block; overflow-x: auto; border-collapse: collapse; margin: 12px 0;
  font-size: 0.92rem; font-variant-numeric: tabular-nums; }
th, td { padding: 6px 10px; text-align: right; border-bottom: 1px solid #dfe5ea;
  white-space: nowrap; }
td:first-child { text-align: left; }
code { font-size: 0.88rem; background: #f5f7f9; }
"""


class Line(NamedTuple):
    """A row of a block."""

    title: str
    cells: tuple[Cell, ...]
    differs: str


class Block(NamedTuple):
    """One table for one dataset and protocol."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]  # what differs, and remarks on the paper's numbers
    missing: str = ""  # how to get the data, where there are none

    @property
    def has_runs(self) -> bool:
        """Whether any of it is ours."""
        return any(cell.runs for line in self.lines for cell in line.cells)


def html(text: str) -> str:
    """The page as HTML, from its Markdown."""
    from markdown_it import MarkdownIt

    body = MarkdownIt("commonmark", {"html": False}).enable("table").render(text)
    return (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        "<title>The paper's tables beside our runs</title>\n"
        f"<style>{STYLE}</style>\n</head>\n<body>\n{body}</body>\n</html>\n"
    )


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
        blocks = _blocks(table, dict.fromkeys(names), summaries, absent)
        if blocks:
            lines += [f"## {TABLES[table]}", "", ABOUT[table], ""]
        for block in blocks:
            lines += [f"### {block.title}", ""]
            lines += [block.missing, ""] if block.missing else []
            lines += [*map(_piped, _table(block)), ""]
            lines += [*(f"- {note}" for note in block.notes), ""]
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
    datasets: Mapping[str, Any],
    summaries: Sequence[TableSummary],
    absent: Mapping[str, str],
) -> list[Block]:
    """Of each dataset and protocol that has runs; then those without runs."""
    full, empty = [], []
    for dataset in datasets:
        made = [_block(table, dataset, s) for s in summaries if s.dataset == dataset]
        kept = [block for block in made if block and block.has_runs]
        # The paper's other rows stand in the first block already.
        full += kept[:1] + [_only_runs(block) for block in kept[1:]]
        if not kept and (block := _block(table, dataset, None)):
            why = absent.get(dataset, "") or "No runs of this yet."
            empty.append(block._replace(missing=why))
    return full + empty


def _only_runs(block: Block) -> Block:
    lines = [line for line in block.lines if any(c.runs for c in line.cells)]
    return block._replace(lines=tuple(lines))


def _block(table: str, dataset: str, summary: TableSummary | None) -> Block | None:
    title = published.title(dataset)
    if summary:
        title += f", {PROTOCOLS[summary.protocol]}"
    grid = table_rows.grid(table, dataset, summary)
    if not grid:
        return None
    lines = []
    for row in grid.rows:
        cells = tuple(table_rows.cell(place, summary) for place in row.places)
        differs = row_differences(summary, row.places) if summary else ""
        if any(cell.place.paper is not None or cell.runs for cell in cells):
            name = f"{row.title} (critical)" if row.is_critical else row.title
            lines.append(Line(name, cells, differs))
    notes = common_differences(summary) if summary else []
    notes += _remarks(table, dataset, grid, summary)
    return Block(title, grid.columns, tuple(lines), tuple(notes))


def _remarks(
    table: str, dataset: str, grid: Grid, summary: TableSummary | None
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
    shown = {place.setting for row in grid.rows for place in row.places}
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


def row_differences(summary: TableSummary, places: Sequence[Place]) -> str:
    """What is particular to the runs of a row, such as epochs and precision."""
    texts = []
    about = summary.about
    for place in places:
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


def _table(block: Block) -> list[list[str]]:
    """The head of a table, the line below it, and its rows."""
    places = [cell.place for line in block.lines for cell in line.cells]
    has_paper = any(place.paper is not None for place in places)
    # The paper's times are of another machine.
    has_differences = has_paper and places[0].score != HOURS
    titles = ["paper"] * has_paper + ["ours", "n"] + ["difference"] * has_differences
    head = [""]
    for column in block.columns:
        head += [f"{column}: {titles[0]}", *titles[1:]]
    head.append("what differs")
    rows = []
    for line in block.lines:
        row = [line.title]
        for cell in line.cells:
            count = str(cell.runs or "")
            row += [_paper(cell)] * has_paper + [_ours(cell), count]
            row += [_difference(cell)] * has_differences
        rows.append([*row, line.differs])
    return [head, ["---"] * len(head), *rows]


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
