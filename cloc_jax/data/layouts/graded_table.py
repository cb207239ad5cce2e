"""Your own images, graded in a table: `data.csv` with a column of paths and of labels.

Further columns, where there are any, say the split and the patient or subject.
"""

import os
import pathlib
from collections.abc import Mapping, Sequence

from cloc_jax.data.layouts import tables
from cloc_jax.data.layouts.listing import (
    EXTENSIONS,
    SPLIT_NAMES,
    Item,
    Listing,
    comma,
    existing_root,
    is_image,
    relative,
)
from cloc_jax.data.layouts.rank_folders import group_by_pattern, order_ranks

# Names a column may have where data.columns does not name it.
USUAL = {
    "path": ("path", "file", "filename", "file_name", "image", "image_path", "img"),
    "label": ("label", "grade", "rank", "class", "level", "score", "target"),
    "split": ("split", "set", "subset", "partition"),
    "group": ("group", "patient", "patient_id", "subject", "subject_id", "case"),
}
# What programs write where there is no value; never a rank, unless data.order has it.
NO_VALUE = ("nan", "n/a", "<na>", "null")
_SPLITS = SPLIT_NAMES | {
    "training": "train",
    "valid": "val",
    "dev": "val",
    "testing": "test",
}


def scan(
    root: str | pathlib.Path,
    *,
    csv: str,
    columns: Mapping[str, str],
    order: Sequence[str] = (),
    group_pattern: str = "",
    max_bytes: int = tables.MAX_BYTES,
) -> Listing:
    """Lists the images a table names.

    Args:
        root: Folder that the paths in the table start from; "" for the table's own.
        csv: The table: a path, or one below root.
        columns: Names of the columns path, label, split and group; "" for a usual one.
        order: Labels from lowest to highest. Without it they must be numbers or start
            with one.
        group_pattern: Finds the patient or subject in file names, where no column has
            it.
        max_bytes: A larger table is not opened.
    """
    path = pathlib.Path(csv).expanduser()
    if not os.path.lexists(path) and str(root):
        path = pathlib.Path(root).expanduser() / csv
    table = tables.read_table(path, max_bytes=max_bytes)
    folder = existing_root(
        root or path.parent, "the folder the table's paths start from"
    )
    places = _places(table, columns)
    notes = [_how(table, places)]
    graded, skipped = _graded(table, places, folder, order)
    names = sorted({label for label, _ in graded.values()})
    if not names:
        raise ValueError(f"{path} names no graded images.")
    ranks, more = order_ranks(names, order, what="label", where=str(path))
    items = sorted(
        item._replace(label=ranks.index(label)) for label, item in graded.values()
    )
    unnamed = [item for item in items if not item.split]
    if 0 < len(unnamed) < len(items):
        raise ValueError(
            f"{path} has a split for {len(items) - len(unnamed)} of {len(items)} "
            f"images, but none for others, such as {unnamed[0].id}; fill the column or "
            "leave it out."
        )
    if "group" not in places:
        items, group_notes = group_by_pattern(items, group_pattern)
        more += group_notes
    return Listing(ranks, items, skipped, notes + more)


def _places(table: tables.Table, columns: Mapping[str, str]) -> dict[str, int]:
    """Place of each column there is."""
    places = {}
    for role, usual in USUAL.items():
        if name := columns.get(role):
            places[role] = table.column(name)
        elif (place := table.find(*usual)) is not None:
            places[role] = place
        elif role in ("path", "label"):
            raise ValueError(
                f"{table.path} has no column for the {role}; it has "
                f"{comma(filter(None, table.header))}. Name it: "
                f"--config.data.columns.{role}=NAME."
            )
    if len(set(places.values())) < len(places):
        raise ValueError(
            f"{table.path}: one column was taken twice ({_how(table, places)}); name "
            "them with data.columns."
        )
    return places


def _how(table: tables.Table, places: Mapping[str, int]) -> str:
    taken = [f"{role} from {table.header[place]!r}" for role, place in places.items()]
    return f"{table.path.name}: {comma(taken)}."


def _graded(
    table: tables.Table,
    places: Mapping[str, int],
    root: pathlib.Path,
    order: Sequence[str],
) -> tuple[dict[str, tuple[str, Item]], list[tuple[str, str]]]:
    """Label and item, not labelled yet, of each id, and what was skipped."""
    graded: dict[str, tuple[str, Item]] = {}
    skipped: list[tuple[str, str]] = []
    for row in table.rows:
        cells = {role: row[place] for role, place in places.items()}
        label = _plain(cells["label"])
        if not cells["path"]:
            raise ValueError(f"{table.path} line {row.line} names no file.")
        if label.lower() in NO_VALUE and label not in order:
            label = ""
        file = _inside(table, row, cells["path"], root)
        id_ = relative(file, root)
        if not label:
            skipped.append((id_, "images without a label in the table"))
        elif id_ not in graded:
            split = _split(table, row, cells.get("split"))
            item = Item(id_, file, 0, split, cells.get("group") or None)
            graded[id_] = label, item
        elif graded[id_][0] == label:
            skipped.append((id_, "lines that name an image again"))
        else:
            raise ValueError(
                f"{table.path} line {row.line}: {id_} has the label {label} here and "
                f"{graded[id_][0]} above; keep one."
            )
    return graded, skipped


def _inside(
    table: tables.Table, row: tables.Row, written: str, root: pathlib.Path
) -> pathlib.Path:
    """The file a line names, which has to be below root."""
    # By the text alone: folders that are links to other disks are fine.
    below = pathlib.Path(os.path.abspath(root))
    file = pathlib.Path(os.path.normpath(below / written.replace("\\", "/")))
    if not file.is_relative_to(below) and os.path.isabs(written):
        # The root, or the way to it, may be a link that the table does not go by.
        below, file = (pathlib.Path(os.path.realpath(path)) for path in (below, file))
    if not file.is_relative_to(below):
        raise ValueError(
            f"{table.path} line {row.line}: {written} leaves data.root={root}; give a "
            "root that holds all images."
        )
    file = root / file.relative_to(below)
    # Not the methods of paths, which raise for a name that is too long.
    if not is_image(written) and not os.path.isfile(file):
        for extension in EXTENSIONS:  # names without one are common
            longer = file.with_name(file.name + extension)
            if os.path.isfile(longer):
                return longer
    return file


def _plain(label: str) -> str:
    """A label without the decimals that spreadsheets add: 2.0 is 2."""
    whole, dot, decimals = label.partition(".")
    is_whole = whole.removeprefix("-").isdecimal() and not decimals.strip("0")
    return whole if dot and is_whole else label


def _split(table: tables.Table, row: tables.Row, written: str | None) -> str | None:
    if not written:
        return None
    if (split := _SPLITS.get(written.lower())) is None:
        raise ValueError(
            f"{table.path} line {row.line}: the split is {written!r}; use train, val "
            "or test."
        )
    return split
