"""Tables in text files, and your own images graded in one.

A table has commas, semicolons or tabs. That of your own images, `data.csv`, has columns
of paths and labels, and may have others of the split and the patient or subject.
"""

import csv as csv_files
import io
import math
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from cloc_jax.data.layouts import rank_folders
from cloc_jax.data.layouts.listing import (
    EXTENSIONS,
    SPLIT_NAMES,
    Item,
    Listing,
    comma,
    is_image,
    relative,
    root_folder,
)
from cloc_jax.runtime import files

# Names a column may have where data.columns does not name it.
USUAL = {
    "path": ("path", "file", "filename", "file_name", "image", "image_path"),
    "label": ("label", "grade", "rank", "class", "level", "score"),
    "split": ("split", "set", "subset", "partition"),
    "group": ("group", "patient", "patient_id", "subject", "subject_id"),
    "weight": (),  # a column of that name may be a patient's
}
# What programs write where there is no value; never a rank, unless data.order has it.
NO_VALUE = ("", "nan", "n/a", "<na>", "null")


class Table(NamedTuple):
    """A table; names of columns are in lower case."""

    path: pathlib.Path
    columns: list[str]
    # Of each line that is not blank, where it is, for messages, and its cells.
    rows: list[tuple[str, dict[str, str]]]

    def check(self, *names: str) -> None:
        """ValueError unless there is one column of each of these names."""
        for name in names:
            if (count := self.columns.count(name)) != 1:
                raise ValueError(
                    f"{self.path} has {count or 'no'} column{'s' * (count > 1)} {name}"
                    f"; it has {comma(filter(None, self.columns)) or 'none with names'}"
                    ", and one is needed."
                )


def read_table(path: pathlib.Path, columns: Sequence[str] = ()) -> Table:
    """Reads a table; the separator is the one that is most common in its first line.

    A row is one line with one cell per column; ValueError for any other, which a quote
    or separator too many may have joined or cut.

    `columns` are their names, where the first line does not have them.
    """
    try:
        text = files.read_regular(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a text file in UTF-8; save the table as CSV (UTF-8)."
        ) from None
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise ValueError(f"{path} is empty; a table of images was wanted.")
    separator = max(",;\t", key=first.count)
    names, rows, line = list(columns), [], 1
    lines = io.StringIO(text, newline="")
    reader = csv_files.reader(lines, delimiter=separator, strict=True)
    try:
        for cells in reader:
            place, last = f"{path} line {line}", reader.line_num
            is_one, line = line == last, last + 1
            if not any(map(str.strip, cells)):
                continue
            header = names or [cell.strip().lower() for cell in cells]
            if len(cells) != len(header) or not is_one:
                raise ValueError(
                    f"{place} to {last}: {len(cells)} cells, where {len(header)} on a "
                    f"line are needed; correct its quotes or separators {separator!r}."
                )
            if names:
                rows.append((place, dict(zip(names, cells, strict=True))))
            names = header
    except csv_files.Error as error:
        raise ValueError(
            f'{path} line {line}: {error}; a quote (") is missing or too many, or the '
            "file is damaged. Correct the line."
        ) from None
    return Table(path, names, rows)


# --- your own images ---


def scan(
    root: str | pathlib.Path,
    *,
    csv: str,
    columns: Mapping[str, str],
    order: Sequence[str] = (),
    group_pattern: str = "",
) -> Listing:
    """Lists the images a table names; without one, those in a folder per rank.

    `csv` is a path, or one below root. Paths in the table start from root; "" for the
    table's own folder. A column that is not named is looked for by its usual names.
    Labels without an order must be numbers or start with one.
    """
    if not csv:
        return rank_folders.scan(root, order=order, group_pattern=group_pattern)
    path = pathlib.Path(csv).expanduser()
    if not os.path.lexists(path) and str(root):
        path = pathlib.Path(root).expanduser() / csv
    table = read_table(path)
    folder = root_folder(root or path.parent, "the folder the table's paths start from")
    column_of = _columns(table, columns)
    taken = [f"{role} from {name!r}" for role, name in column_of.items()]
    notes = [f"{path.name}: {comma(taken)}."]
    # By the text alone: folders that are links to other disks are fine.
    below = pathlib.Path(os.path.abspath(folder))
    graded, skipped = _graded(table, column_of, below, order)
    if not graded:
        raise ValueError(f"{path} names no graded images.")
    names = sorted({label for label, _ in graded.values()})
    ranks, more = rank_folders.order_ranks(names, order, what="label", where=str(path))
    items = sorted(
        item._replace(label=ranks.index(label)) for label, item in graded.values()
    )
    if "group" not in column_of:
        items, group_notes = rank_folders.group_by_pattern(items, group_pattern)
        more += group_notes
    return Listing(ranks, items, skipped, notes + more)


def _columns(table: Table, given: Mapping[str, str]) -> dict[str, str]:
    """The column of each role that has one."""
    columns = {}
    for role, usual in USUAL.items():
        found = [name for name in usual if name in table.columns]
        if name := given.get(role, "").lower() or next(iter(found), ""):
            table.check(name)
            columns[role] = name
        elif role in ("path", "label"):
            raise ValueError(
                f"{table.path} has no column for the {role}; it has "
                f"{comma(filter(None, table.columns))}. Name it: "
                f"--config.data.columns.{role}=NAME."
            )
    return columns


def _graded(
    table: Table, column_of: Mapping[str, str], root: pathlib.Path, order: Sequence[str]
) -> tuple[dict[str, tuple[str, Item]], list[tuple[str, str]]]:
    """Label and item, not labelled yet, of each id, and what was skipped."""
    graded: dict[str, tuple[str, Item]] = {}
    skipped: list[tuple[str, str]] = []
    for place, row in table.rows:
        cells = {role: row[column].strip() for role, column in column_of.items()}
        path, label = row[column_of["path"]], row[column_of["label"]]
        # Blanks are part of a name: another file may have it without them.
        label = label if label in order else _plain(cells["label"])
        file = pathlib.Path(os.path.normpath(root / path.replace("\\", "/")))
        if root not in file.parents:
            raise ValueError(
                f"{place}: {path!r} is not a file below data.root={root}; "
                "give a root that holds all images."
            )
        file = _with_extension(file)
        id_ = relative(file, root)
        if label.lower() in NO_VALUE and label not in order:
            skipped.append((id_, "without a label in the table"))
            continue
        if graded.get(id_, (label,))[0] != label:
            raise ValueError(
                f"{place}: {id_} has the label {label} here and {graded[id_][0]} "
                "above; keep one."
            )
        split = cells.get("split", "").lower()
        if split and split not in SPLIT_NAMES:
            raise ValueError(
                f"{place}: the split is {split!r}; use train, val or test."
            )
        group = cells.get("group") or None
        item = Item(id_, file, 0, SPLIT_NAMES.get(split), group)
        if "weight" in cells:
            item = item._replace(weight=_weight(cells["weight"], place))
        graded[id_] = label, item
    return graded, skipped


def _weight(text: str, place: str) -> float:
    try:
        weight = float(text)
    except ValueError:
        weight = math.nan
    if not 0 <= weight < math.inf:
        raise ValueError(f"{place}: the weight is {text!r}; use a number of 0 or more.")
    return weight


def _with_extension(file: pathlib.Path) -> pathlib.Path:
    """The file that a table names without its extension, as is common."""
    # Not the methods of paths, which raise for a name that is too long.
    if is_image(file.name) or os.path.isfile(file):
        return file
    longer = (file.with_name(file.name + extension) for extension in EXTENSIONS)
    return next(filter(os.path.isfile, longer), file)


def _plain(label: str) -> str:
    """A label without the decimals that spreadsheets add: 2.0 is 2."""
    whole, dot, decimals = label.partition(".")
    is_whole = whole.removeprefix("-").isdecimal() and not decimals.strip("0")
    return whole if dot and is_whole else label
