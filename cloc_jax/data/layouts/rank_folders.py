"""One folder per rank, alone or below folders for the splits.

root/<rank>/*.png
root/{train,val,test}/<rank>/*.png

The order of ranks and the groups in file names are settled here for tables too.
"""

import collections
import pathlib
import re
from collections.abc import Sequence

from cloc_jax.data.layouts.listing import (
    EXTENSIONS,
    SPLIT_NAMES,
    Item,
    Listing,
    comma,
    count_of,
    image_files,
    is_hidden,
    is_image,
    plural,
    relative,
    root_folder,
    subfolders,
)

WANTED = (
    "the folder that holds one folder of images per rank (0, 1, 2, …), or train, val "
    "and test with such folders"
)
NUMBER = re.compile(r"[+-]?[0-9]+(\.[0-9]+)?")


def scan(
    root: str | pathlib.Path,
    *,
    order: Sequence[str] = (),
    group_pattern: str = "",
) -> Listing:
    """Lists the images below root.

    Args:
        root: The folder, in one of the two layouts.
        order: Names of the rank folders, lowest first. Without it, folders must be
            numbers or start with one.
        group_pattern: Regular expression that finds the patient or subject in a file
            name.

    Raises:
        FileNotFoundError: There is no folder at root.
        ValueError: The folder, or an argument, does not make a graded dataset.
    """
    root = root_folder(root, WANTED)
    notes: list[str] = []
    folders = _split_folders(root, notes)
    names = {split: subfolders(path) for split, path in folders.items()}
    train = folders["train"]
    if not names["train"]:
        raise ValueError(f"data.root: {train} has no rank folders; give {WANTED}.")
    where = f"data.root: {train}"
    ranks, more = order_ranks(names["train"], order, what="folder", where=where)
    skipped: list[tuple[str, str]] = []
    items: list[Item] = []
    for split, path in folders.items():
        if unknown := [name for name in names[split] if name not in ranks]:
            raise ValueError(
                f"{path} has the rank {plural(unknown, 'folder')} {comma(unknown)}, "
                f"which {train} has not (it has {comma(ranks)}); use the same folder "
                "names in all splits."
            )
        shipped = None if path == root else split
        items += _items(root, path, shipped, names[split], ranks, skipped)
    items, group_notes = group_by_pattern(sorted(items), group_pattern)
    return Listing(ranks, items, skipped, notes + more + group_notes)


def _split_folders(root: pathlib.Path, notes: list[str]) -> dict[str, pathlib.Path]:
    """Folder of each shipped split; root itself as train where none is shipped."""
    below = subfolders(root)
    folders: dict[str, pathlib.Path] = {}
    for name in below:
        if split := SPLIT_NAMES.get(name.lower()):
            if split in folders:
                raise ValueError(
                    f"data.root={root} has {folders[split].name} and {name}, which "
                    f"both mean {split}; keep one of them."
                )
            folders[split] = root / name
    if not folders:
        return {"train": root}
    if "train" not in folders:
        raise ValueError(
            f"data.root={root} has {comma(below)} but no train; name the folder of "
            "training images train, or give a data.root that holds the rank folders."
        )
    ignored = [name for name in below if root / name not in folders.values()]
    if ignored:
        notes.append(f"Ignored beside train, val and test: {comma(ignored)}.")
    return folders


def _items(
    root: pathlib.Path,
    path: pathlib.Path,
    split: str | None,
    names: list[str],
    ranks: tuple[str, ...],
    skipped: list[tuple[str, str]],
) -> list[Item]:
    """Items of one split."""
    items: list[Item] = []
    empty = []
    for label, rank in enumerate(ranks):
        files = image_files(path / rank, skipped, root) if rank in names else []
        if not files:
            empty.append(rank)
        for name in files:
            file = path / rank / name
            items.append(Item(relative(file, root), file, label, split))
    if empty and split in (None, "train"):
        raise ValueError(
            f"data.root: no images in the rank {plural(empty, 'folder')} "
            f"{comma(empty)} of {path} that end in {comma(EXTENSIONS)}. Fill it, move "
            "images up from folders inside it, or remove it."
        )
    skipped += [
        (relative(file, root), f"images directly in {path}, outside the rank folders")
        for file in sorted(path.iterdir())
        if is_image(file.name) and not is_hidden(file.name)
    ]
    return items


# --- groups ---


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
    if len(single) == len(items):
        raise ValueError(
            f"data.group_pattern={group_pattern!r} matches no file name, such as "
            f"{items[0].id.rpartition('/')[2]}; give a pattern that finds the patient "
            "or subject in it, or none."
        )
    if not single:
        return grouped, []
    note = (
        f"data.group_pattern finds nothing in {count_of(single)}, such as {single[0]}; "
        "each of them was taken as its own group."
    )
    return grouped, [note]


# --- the order of ranks ---


def order_ranks(
    names: Sequence[str], order: Sequence[str], *, what: str, where: str
) -> tuple[tuple[str, ...], list[str]]:
    """Rank names, lowest first, and notes on how that was settled.

    Args:
        names: The different names found.
        order: All of them from lowest to highest, or () to go by their numbers.
        what: What carries a name, "folder" or "label", for messages.
        where: Where the names were found, for messages.
    """
    ranks, notes = tuple(str(name) for name in order), []
    if not ranks:
        ranks = _order_by_number(names, what, where)
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


def _order_by_number(names: Sequence[str], what: str, where: str) -> tuple[str, ...]:
    """Names by the number that each of them is or starts with."""
    found = {name: NUMBER.match(name) for name in names}
    numbers = {name: float(match[0]) for name, match in found.items() if match}
    counts = collections.Counter(numbers.values())
    if len(numbers) < len(names) or len(counts) < len(names):
        same = [name for name in numbers if counts[numbers[name]] > 1]
        problem = f"{comma(same)} start with the same number"
        if len(numbers) < len(names):
            problem = (
                f"{comma(names)} do not all start with a number, and the alphabet is "
                "no order of grades"
            )
        raise ValueError(
            f"the order of the rank {what}s in {where} is unknown: {problem}. Give all "
            f"lowest rank first: data.order=({', '.join(map(repr, names))}), "
            "rearranged."
        )
    return tuple(sorted(names, key=numbers.__getitem__))
