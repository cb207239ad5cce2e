"""The paper's tables beside our runs, as Markdown and as one HTML page."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import jinja2
import numpy as np

from cloc_jax.paper import table_cells, table_rows
from cloc_jax.paper.table_cells import Cell, Summary
from cloc_jax.paper.table_rows import COLLAPSE, COLLAPSED, PRECAUTIONS, TABLES, Grid
from cloc_jax.report import published, unmet_margins
from cloc_jax.runtime import files

MARKDOWN, HTML = "tables.md", "tables.html"
QUOTED = "†"
LONGEST = 240  # letters of a reason why a run is missing
PROTOCOLS = {
    "frozen": "frozen encoder",
    "partial": "partly trained encoder",
    "whole": "whole network trained",
}
INTERVALS = (
    "Ours is the mean ± standard deviation over runs, n their number. Differences are "
    "ours minus the paper's, with a 95% interval over other seeds and other test "
    "images (Student's, by Welch and Satterthwaite's degrees of freedom; with folds "
    "over these only, with one run over images only). The paper's number is taken as "
    "exact. A difference in bold is one whose interval leaves out zero."
)


class Line(NamedTuple):
    """A row of a block."""

    title: str
    cells: tuple[Cell, ...]
    differs: str
    is_critical: bool


class Block(NamedTuple):
    """One table for one dataset and protocol."""

    title: str
    columns: tuple[str, ...]
    lines: tuple[Line, ...]
    notes: tuple[str, ...]  # what differs, and remarks on the paper's numbers
    missing: str = ""  # how to get the data, where there are none
    has_paper: bool = True  # whether the paper has any of it
    has_differences: bool = True  # False: what the paper has is of another machine
    texts: tuple[tuple[str, ...], ...] = ()  # rows of text, where cells do not fit


class Section(NamedTuple):
    """One of the paper's tables."""

    name: str
    title: str
    about: str
    blocks: tuple[Block, ...]


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
    "collapse": "Margins at the end of phase one, with the paper's precautions and "
    f"without. A run collapsed if a margin is below {COLLAPSED}. The paper shows this "
    "as a figure, without numbers.",
}


def sections(
    summaries: Sequence[Summary],
    *,
    only: Sequence[str] = tuple(TABLES),
    data: Sequence[str] = (),
    absent: Mapping[str, str] | None = None,
) -> list[Section]:
    """All tables, each with a block per dataset and protocol.

    Args:
      summaries: of runs.
      only: tables that are shown.
      data: datasets that are shown, with the paper's numbers alone where there are no
        runs; () for the paper's and those that have runs.
      absent: by dataset, how to get it.
    """
    with_runs = [s["dataset"] for s in summaries]
    names = list(data) or [*published.DATASETS, "clap2015", *with_runs]
    found = []
    for table in only:
        full, empty = [], []
        for dataset in dict.fromkeys(names):
            own = [s for s in summaries if s["dataset"] == dataset]
            made = [_block(table, dataset, one) for one in own]
            kept = [block for block in made if block and _has_runs(block)]
            # The paper's other rows stand in the first block already.
            full += kept[:1] + [_only_runs(block) for block in kept[1:]]
            if not kept and (block := _block(table, dataset, None)):
                why = (absent or {}).get(dataset, "") or "No runs of this yet."
                empty.append(block._replace(missing=why))
        if full or empty:
            blocks = tuple(full + empty)
            found.append(Section(table, TABLES[table], ABOUT[table], blocks))
    return found


def write(
    folder: pathlib.Path,
    found: Sequence[Section],
    summaries: Sequence[Summary],
) -> list[pathlib.Path]:
    """Writes the Markdown and the HTML page, and returns their paths."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = list(dict.fromkeys(c for s in summaries for c in s["commands"]))
    unfinished = _by_reason(summaries)
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {
        "number": number,
        "ours": ours,
        "difference": difference,
        "ends": ends,
    }
    page = environment.get_template("tables.html.jinja").render(
        sections=found,
        commands=commands,
        unfinished=unfinished,
        intervals=INTERVALS,
        quoted=QUOTED,
        quoted_why=published.document()["quoted"]["why"],
    )
    files.write_text(folder / HTML, page)
    text = markdown(found, commands, unfinished)
    files.write_text(folder / MARKDOWN, text)
    return [folder / MARKDOWN, folder / HTML]


def _by_reason(summaries: Sequence[Summary]) -> dict[str, str]:
    """Why runs are missing, in a sentence, by the names of all it is true of."""
    names: dict[str, list[str]] = {}
    for one in summaries:
        for name, reason in one["unfinished"].items():
            first = reason.split("; ")[0]
            cut = first if len(first) <= LONGEST else f"{first[:LONGEST]}…"
            names.setdefault(cut, []).append(name)
    return {", ".join(found): reason for reason, found in names.items()}


# --- blocks --------------------------------------------------------------------------


def _block(table: str, dataset: str, summary: Summary | None) -> Block | None:
    title = published.title(dataset)
    if summary:
        protocol = summary["protocol"]
        title += f", {PROTOCOLS.get(protocol, protocol)}"
    if table == "collapse":
        return _collapse(title, summary) if summary else None
    names = list(summary["settings"]) if summary else []
    grid = table_rows.grid(
        table,
        dataset,
        ranks=summary["ranks"] if summary else (),
        critical=summary["critical"] if summary else (),
        encoder=summary["about"]["encoder"] if summary else "resnet50",
        settings=names,
        controlled=summary["controlled"] if summary else {},
    )
    return _filled(table, title, dataset, grid, summary) if grid else None


def _filled(
    table: str, title: str, dataset: str, grid: Grid, summary: Summary | None
) -> Block:
    lines = []
    for row in grid.rows:
        cells = tuple(table_cells.cell(place, summary) for place in row.places)
        differs = table_cells.row_differences(summary, row.places) if summary else ""
        if all(cell.paper is None and not cell.runs for cell in cells):
            continue  # neither the paper nor we have it
        lines.append(Line(row.title, cells, differs, row.is_critical))
    notes = [] if not summary else table_cells.common_differences(summary)
    notes += _remarks(table, dataset, grid, summary)
    has_paper = any(c.paper is not None for line in lines for c in line.cells)
    return Block(
        title,
        grid.columns,
        tuple(lines),
        tuple(notes),
        has_paper=has_paper,
        has_differences=has_paper and table != "time",
    )


def _remarks(
    table: str, dataset: str, grid: Grid, summary: Summary | None
) -> list[str]:
    """On the paper's numbers, and on which of our runs are shown."""
    found = []
    if dataset in published.DATASETS and table in ("comparison", "controllability"):
        paper = published.of_dataset(dataset)
        control = paper.control.notes if paper.control else ()
        said = control if table == "controllability" else paper.notes
        found += [f"Paper: {note}" for note in said]
    if summary and table in ("controllability", "bias"):
        kind = table_rows.BIASED if table == "bias" else ""
        name = summary["controlled"].get(kind)
        if name:
            value = name.rpartition(" ")[2]
            tried = [
                n for n in summary["settings"] if n.startswith(kind + "cloc contr")
            ]
            more = ""
            if len(tried) > 1:
                more = f", of {len(tried)} values the best on validation data"
            found.append(
                f"The critical margin is fixed at {value}{more}; the paper does not "
                "say which value it used."
            )
    if summary and table in ("controllability", "bias", "ablations"):
        shown = {place.setting for row in grid.rows for place in row.places}
        runs = [
            run
            for name, setting in summary["settings"].items()
            for run in setting["runs"]
            if name in shown and run["margins"]
        ]
        # Runs of earlier versions do not say.
        if runs and all(unmet_margins.are_unmet(r.get("violated", {})) for r in runs):
            found.append(
                "Next to no triplet of test images keeps its margin in any of CLOC's "
                "runs. While that is so in training, the gradient of the contrast does "
                "not depend on the margins."
            )
    if summary and table == "time":
        found.append(_devices(grid, summary))
        if summary["about"]["is_frozen"]:
            found.append(
                "On kept features the runs of a setting are one program; the time is "
                "that of all of them."
            )
    return found


def _devices(grid: Grid, summary: Summary) -> str:
    """Where runs were timed, row by row if they differ."""
    common = summary["about"]["device"]
    titles: dict[str, str] = {}  # a setting may have several rows
    for row in grid.rows:
        titles.setdefault(row.places[0].setting, row.title)
    found: dict[str, list[str]] = {}
    for name, title in titles.items():
        setting = summary["settings"].get(name)
        if setting:  # earlier ones do not say
            found.setdefault(setting.get("device", common), []).append(title)
    if len(found) < 2:
        return f"Ours: {next(iter(found), common)}."
    parts = [f"{', '.join(rows)} on {device}" for device, rows in found.items()]
    return f"Ours: {'; '.join(parts)}."


def _collapse(title: str, summary: Summary) -> Block | None:
    rows = []
    for name in PRECAUTIONS:
        setting = summary["settings"].get(COLLAPSE + name)
        if not setting:
            continue
        runs = setting["runs"]
        ends_of = np.array([list(run["margins"].values()) for run in runs])
        epochs = [run["stages"][0]["epochs"] for run in runs]
        low, high = min(epochs), max(epochs)
        rows.append(
            (
                name.capitalize(),
                str(low) if low == high else f"{low}–{high}",
                " ".join(f"{v:.3f}" for v in ends_of.mean(0)),
                f"{int((ends_of < COLLAPSED).any(1).sum())} of {len(runs)}",
            )
        )
    if not rows:
        return None
    columns = ("Epochs", "Mean margins, " + _boundaries(summary), "Collapsed")
    notes = tuple(table_cells.common_differences(summary))
    return Block(title, columns, (), notes, texts=tuple(rows))


def _boundaries(summary: Summary) -> str:
    ranks = summary["ranks"]
    return f"{ranks[0]}|{ranks[1]} to {ranks[-2]}|{ranks[-1]}"


def _only_runs(block: Block) -> Block:
    lines = [line for line in block.lines if any(c.runs for c in line.cells)]
    return block._replace(lines=tuple(lines))


def _has_runs(block: Block) -> bool:
    return bool(block.texts) or any(c.runs for line in block.lines for c in line.cells)


# --- numbers -------------------------------------------------------------------------


def number(value: float | None) -> str:
    """Four digits, as the paper prints them; "" where there is none."""
    return "" if value is None else f"{value:.4f}"


def ours(cell: Cell) -> str:
    """Mean ± standard deviation; "" without runs."""
    if cell.mean is None:
        return ""
    digits = 4 if cell.is_time else 3
    spread = "" if cell.std is None else f" ± {cell.std:.{digits}f}"
    return f"{cell.mean:.{digits}f}{spread}"


def difference(cell: Cell) -> str:
    """Ours minus the paper's; "" where one is missing."""
    return "" if cell.difference is None else _signed(cell.difference)


def ends(cell: Cell) -> str:
    """The interval of the difference."""
    if cell.low is None or cell.high is None:
        return ""
    return f"{_signed(cell.low)} to {_signed(cell.high)}"


def _signed(value: float) -> str:
    return f"{value:+.3f}".replace("-", "−")


# --- Markdown ------------------------------------------------------------------------


def markdown(
    found: Sequence[Section],
    commands: Sequence[str],
    unfinished: Mapping[str, str],
) -> str:
    """The page as Markdown."""
    why = published.document()["quoted"]["why"]
    lines = [
        "# The paper's tables",
        "",
        "Written by `python launch.py tables`. " + INTERVALS,
        "",
        f"{QUOTED} {why}.",
        "",
    ]
    for section in found:
        lines += [f"## {section.title}", "", section.about, ""]
        for block in section.blocks:
            lines += [f"### {block.title}", ""]
            if block.missing:
                lines += [block.missing, ""]
            lines += _markdown_table(block)
            lines += [*(f"- {note}" for note in block.notes), ""]
    if unfinished:
        lines += ["## Not finished", ""]
        lines += [f"- `{name}`: {reason}" for name, reason in unfinished.items()]
        lines.append("")
    if commands:
        lines += ["## Commands", ""]
        lines += [f"{n}. `{text}`" for n, text in enumerate(commands, 1)]
    return "\n".join(lines).rstrip() + "\n"


def _markdown_table(block: Block) -> list[str]:
    if block.texts:
        head: list[str] = ["", *block.columns]
        rows = [list(row) for row in block.texts]
    else:
        head = [""]
        for column in block.columns:
            titles = ["paper"] if block.has_paper else []
            titles += ["ours", "n"]
            titles += ["difference"] if block.has_differences else []
            head += [f"{column}: {titles[0]}", *titles[1:]]
        head.append("what differs")
        rows = [_markdown_row(line, block) for line in block.lines]
    return [
        *(_piped(row) for row in (head, ["---"] * len(head), *rows)),
        "",
    ]


def _markdown_row(line: Line, block: Block) -> list[str]:
    row = [f"{line.title} (critical)" if line.is_critical else line.title]
    for cell in line.cells:
        mark = f" {QUOTED}" if cell.is_quoted and cell.paper is not None else ""
        apart = difference(cell)
        apart = f"**{apart}**" if apart and cell.is_apart else apart
        interval = f" [{ends(cell)}]" if ends(cell) else ""
        count = str(cell.runs) if cell.runs else ""
        row += [number(cell.paper) + mark] if block.has_paper else []
        row += [ours(cell), count]
        row += [apart + interval] if block.has_differences else []
    return [*row, line.differs]


def _piped(row: Sequence[Any]) -> str:
    return "| " + " | ".join(str(value).replace("|", "\\|") for value in row) + " |"
