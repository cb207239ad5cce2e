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
    is_image,
    relative,
    root_folder,
)
from cloc_jax.data.layouts.rank_folders import group_by_pattern, order_ranks

# Names a column may have where data.columns does not name it.
USUAL = {
    "path": ("path", "file", "filename", "file_name", "image", "image_path"),
    "label": ("label", "grade", "rank", "class", "level", "score"),
    "split": ("split", "set", "subset", "partition"),
    "group": ("group", "patient", "patient_id", "subject", "subject_id"),
}
# What programs write where there is no value; never a rank, unless data.order has it.
NO_VALUE = ("", "nan", "n/a", "<na>", "null")


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
    folder = root_folder(root or path.parent, "the folder the table's paths start from")
    places = _places(table, columns)
    taken = [f"{role} from {table.header[place]!r}" for role, place in places.items()]
    notes = [f"{path.name}: {comma(taken)}."]
    graded, skipped = _graded(table, places, folder, order)
    if not graded:
        raise ValueError(f"{path} names no graded images.")
    names = sorted({label for label, _ in graded.values()})
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
    header = [name.lower() for name in table.header]
    places = {}
    for role, usual in USUAL.items():
        if name := columns.get(role):
            places[role] = table.column(name)
        elif found := [name for name in usual if name in header]:
            places[role] = header.index(found[0])
        elif role in ("path", "label"):
            raise ValueError(
                f"{table.path} has no column for the {role}; it has "
                f"{comma(filter(None, table.header))}. Name it: "
                f"--config.data.columns.{role}=NAME."
            )
    return places


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
        file = _inside(table, row, cells["path"], root)
        id_ = relative(file, root)
        if label.lower() in NO_VALUE and label not in order:
            skipped.append((id_, "images without a label in the table"))
            continue
        if graded.get(id_, (label,))[0] != label:
            raise ValueError(
                f"{table.path} line {row.line}: {id_} has the label {label} here and "
                f"{graded[id_][0]} above; keep one."
            )
        split = cells.get("split", "").lower()
        if split and split not in SPLIT_NAMES:
            raise ValueError(
                f"{table.path} line {row.line}: the split is {split!r}; use train, val "
                "or test."
            )
        group = cells.get("group") or None
        graded[id_] = label, Item(id_, file, 0, SPLIT_NAMES.get(split), group)
    return graded, skipped


def _inside(
    table: tables.Table, row: tables.Row, written: str, root: pathlib.Path
) -> pathlib.Path:
    """The file a line names, which has to be below root."""
    # By the text alone: folders that are links to other disks are fine.
    below = pathlib.Path(os.path.abspath(root))
    file = pathlib.Path(os.path.normpath(below / written.replace("\\", "/")))
    if below not in file.parents:
        raise ValueError(
            f"{table.path} line {row.line}: {written!r} is not a file below "
            f"data.root={root}; give a root that holds all images."
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
