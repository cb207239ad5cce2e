"""One folder per rank, alone or below folders for the splits.

root/<rank>/*.png
root/{train,val,test}/<rank>/*.png

The order of ranks and the groups in file names are settled here for tables too.
"""

import pathlib
import re
from collections.abc import Sequence

from cloc_jax.data.layouts.listing import (
    SPLIT_NAMES,
    Item,
    Listing,
    comma,
    count_of,
    image_files,
    is_image,
    names_in,
    plural,
    relative,
    root_folder,
    subfolders,
)

WANTED = (
    "the folder that holds one folder of images per rank (0, 1, 2, …), or train, val "
    "and test with such folders"
)
# Not the start of 1,000 or 1e3, which is another number.
NUMBER = re.compile(r"[+-]?[0-9]++(\.[0-9]++)?+(?![.,'’eE][+-]?[0-9])")


def scan(
    root: str | pathlib.Path,
    *,
    order: Sequence[str] = (),
    group_pattern: str = "",
) -> Listing:
    """Lists the images below root; ValueError where they make no graded dataset.

    Without an `order` of their names, folders must be numbers or start with one.
    """
    root = root_folder(root, WANTED)
    folders, notes = _split_folders(root)
    train = folders["train"]
    names = subfolders(train)
    if not names:
        raise ValueError(f"data.root: {train} has no rank folders; give {WANTED}.")
    where = f"data.root: {train}"
    ranks, more = order_ranks(names, order, what="folder", where=where)
    skipped: list[tuple[str, str]] = []
    items: list[Item] = []
    for split, path in folders.items():
        if unknown := [name for name in subfolders(path) if name not in ranks]:
            raise ValueError(
                f"{path} has the rank {plural(unknown, 'folder')} {comma(unknown)}, "
                f"which {train} has not (it has {comma(ranks)}); use the same folder "
                "names in all splits."
            )
        shipped = None if path == root else split
        for label, rank in enumerate(ranks):
            if (path / rank).is_dir():
                items += [
                    Item(relative(file, root), file, label, shipped)
                    for file in image_files(path / rank, skipped, root)
                ]
        skipped += [
            (relative(path / name, root), "outside the rank folders")
            for name in names_in(path)
            if is_image(name)
        ]
    items, group_notes = group_by_pattern(sorted(items), group_pattern)
    return Listing(ranks, items, skipped, notes + more + group_notes)


def _split_folders(root: pathlib.Path) -> tuple[dict[str, pathlib.Path], list[str]]:
    """Folder of each shipped split, root itself as train where none is; and notes."""
    below = subfolders(root)
    folders = {
        SPLIT_NAMES[name.lower()]: root / name
        for name in below
        if name.lower() in SPLIT_NAMES
    }
    if not folders:
        return {"train": root}, []
    if "train" not in folders:
        raise ValueError(
            f"data.root={root} has {comma(below)} but no train; name the folder of "
            "training images train, or give a data.root that holds the rank folders."
        )
    ignored = [name for name in below if root / name not in folders.values()]
    notes = [f"Ignored beside train, val and test: {comma(ignored)}."]
    return folders, notes if ignored else []


def group_by_pattern(
    items: list[Item], group_pattern: str
) -> tuple[list[Item], list[str]]:
    """The items with their groups, and notes.

    The first group of the regular expression, searched in the file name, or its whole
    match, names the patient or subject. Names it misses stay without a group.
    """
    if not group_pattern:
        return items, []
    try:
        pattern = re.compile(group_pattern)
    except re.error as error:
        raise ValueError(
            f"data.group_pattern={group_pattern!r} is not a regular expression "
            f"({error}); give e.g. r'^(\\d+)' where file names start with the "
            "patient's number."
        ) from None
    grouped = []
    for item in items:
        match = pattern.search(item.id.rpartition("/")[2])
        name = match and ((pattern.groups and match[1]) or match[0])
        grouped.append(item._replace(group=name or None))
    single = [item.id for item in grouped if item.group is None]
    if not single:
        return grouped, []
    note = (
        f"data.group_pattern finds nothing in {count_of(single)}, such as {single[0]}"
    )
    if len(single) == len(items):
        raise ValueError(
            f"{note}; give one that finds the patient or subject, or none."
        )
    return grouped, [f"{note}; each of them was taken as its own group."]


def order_ranks(
    names: Sequence[str], order: Sequence[str], *, what: str, where: str
) -> tuple[tuple[str, ...], list[str]]:
    """Rank names, lowest first, and notes on how that was settled.

    Without an `order` they go by their numbers; `what` and `where` are for messages.
    """
    ranks, notes = tuple(str(name) for name in order), []
    if not ranks:
        if not (ranks := in_order_of_numbers(names)):
            raise ValueError(
                f"the order of the rank {what}s in {where} is unknown, since not all "
                "start with a plain number of their own, such as 10 or 0.5. Give them, "
                f"lowest rank first: data.order=({', '.join(map(repr, names))}), "
                "rearranged."
            )
        notes = [f"Ranks by the numbers of their {what}s: {' < '.join(ranks)}."]
    elif sorted(ranks) != sorted(names):
        raise ValueError(
            f"data.order={ranks} does not fit {where}: it must name each {what} there "
            f"once ({comma(names)}), lowest rank first. Correct it, or take out "
            f"{what}s that are no ranks."
        )
    if len(ranks) == 1:
        raise ValueError(
            f"{where} has only one rank {what}, {ranks[0]}; grading needs at least two."
        )
    return ranks, notes


def in_order_of_numbers(names: Sequence[str]) -> tuple[str, ...]:
    """Names by the number each starts with; () unless each has one of its own."""
    found = {name: NUMBER.match(name) for name in names}
    numbers = {name: float(match[0]) for name, match in found.items() if match}
    if len({*numbers.values()}) < len(names):
        return ()
    return tuple(sorted(names, key=numbers.__getitem__))
