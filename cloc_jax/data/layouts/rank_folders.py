"""One folder per rank, alone or below folders for the splits.

root/<rank>/*.png
root/{train,val,test}/<rank>/*.png

The order of ranks and the groups in file names are settled here for tables too.
"""

import collections
import math
import pathlib
import re
from collections.abc import Sequence

from cloc_jax.data.layouts.listing import (
    EXTENSIONS,
    SPLIT_NAMES,
    UNLISTED,
    Item,
    Listing,
    comma,
    count_images,
    count_of,
    image_files,
    is_hidden,
    is_image,
    plural,
    relative,
    root_folder,
    subfolders,
)
from cloc_jax.runtime.errors import printable

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
    root = root_folder(root, WANTED, lambda path: _is_dataset(path, order))
    notes: list[str] = []
    folders = _split_folders(root, notes)
    names = {split: subfolders(path) for split, path in folders.items()}
    ranks, rank_notes = _ranks(names, folders, order)
    skipped: list[tuple[str, str]] = []
    items: list[Item] = []
    for split, path in folders.items():
        shipped = None if path == root else split
        items += _items(root, path, shipped, names[split], ranks, skipped)
    items, group_notes = group_by_pattern(sorted(items), group_pattern)
    return Listing(ranks, items, skipped, notes + rank_notes + group_notes)


def _is_dataset(path: pathlib.Path, order: Sequence[str]) -> bool:
    below = subfolders(path)
    if any(name.lower() in SPLIT_NAMES for name in below):
        return True
    with_images = [name for name in below if count_images(path / name)]
    # Ranks whose own images lie too deep or are missing get a message of their own.
    are_ranks = order or all(number(name) is not None for name in below)
    return len(below if are_ranks else with_images) > 1


# --- splits ---


def _split_folders(root: pathlib.Path, notes: list[str]) -> dict[str, pathlib.Path]:
    """Folder of each shipped split; root itself as train where none is shipped."""
    names_of: dict[str, list[str]] = {}
    below = subfolders(root)
    for name in below:
        if split := SPLIT_NAMES.get(name.lower()):
            names_of.setdefault(split, []).append(name)
    if not names_of:
        return {"train": root}
    for split, names in names_of.items():
        if len(names) > 1:
            raise ValueError(
                f"data.root={root} has {comma(names)}, which both mean {split}; keep "
                "one of them."
            )
    if "train" not in names_of:
        raise ValueError(
            f"data.root={root} has {comma(below)} but no train; name the folder of "
            "training images train, or give a data.root that holds the rank folders."
        )
    ignored = [name for name in below if name.lower() not in SPLIT_NAMES]
    if ignored:
        notes.append(
            f"Ignored beside the splits: {comma(ignored)} (splits are called train, "
            "val or validation, and test)."
        )
    folders = {split: root / name for split, (name,) in names_of.items()}
    for split in sorted(folders.keys() - {"train"}):
        path = folders[split]
        if not any(count_images(path / name) for name in subfolders(path)):
            del folders[split]
            notes.append(
                f"The folder {path.name} is not used: no rank folder in it holds "
                f"images, and the grades of its other {count_images(path)} are unknown."
            )
    return folders


# --- files ---


def _ranks(
    names: dict[str, list[str]],
    folders: dict[str, pathlib.Path],
    order: Sequence[str],
) -> tuple[tuple[str, ...], list[str]]:
    train = folders["train"]
    if not names["train"]:
        raise ValueError(f"data.root: {train} has no rank folders; give {WANTED}.")
    where = f"data.root: {train}"
    ranks, notes = order_ranks(names["train"], order, what="folder", where=where)
    for split, path in folders.items():
        unknown = [name for name in names[split] if name not in ranks]
        if unknown:
            raise ValueError(
                f"{path} has the rank {plural(unknown, 'folder')} {comma(unknown)}, "
                f"which {train} has not (it has {comma(ranks)}): a rank without "
                "training images cannot be learned. Use the same folder names in all "
                "splits."
            )
    return ranks, notes


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
        closed = [what for what, why in skipped if why == UNLISTED]
        access = f" Not listed for lack of access: {comma(closed)}." if closed else ""
        raise ValueError(
            f"data.root: no images in the rank {plural(empty, 'folder')} "
            f"{comma(empty)} of {path} that end in {comma(EXTENSIONS)}. Fill it, move "
            f"images up from folders inside it, or remove it.{access}"
        )
    skipped += [
        (relative(file, root), f"images directly in {path}, outside the rank folders")
        for file in sorted(path.iterdir())
        if is_image(file.name) and not is_hidden(file.name) and file.is_file()
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


def number(name: str) -> float | None:
    """The number that a name is or starts with; None where it does neither.

    1e1 is 10; but only a whole name is read so, and 1early starts with 1.
    """
    match = NUMBER.match(name)
    if match is None:
        return None
    try:
        value = float(name)
    except ValueError:
        value = float(match[0])
    return value if math.isfinite(value) else None


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
    _check_names(names, what, where)
    if order:
        ranks, notes = _given_order(names, order, what, where), []
    else:
        ranks = _order_by_number(names, what, where)
        notes = [f"Ranks by the numbers of their {what}s: {' < '.join(ranks)}."]
    if len(ranks) == 1:
        raise ValueError(
            f"{where} has only one rank {what}, {ranks[0]}; grading needs at least two."
        )
    return ranks, notes


def _check_names(names: Sequence[str], what: str, where: str) -> None:
    """ValueError for names that differ in case only, or cannot be written anywhere."""
    lower = collections.Counter(name.lower() for name in names)
    same = sorted(name for name in names if lower[name.lower()] > 1)
    if same:
        raise ValueError(
            f"{where} has rank {what}s that differ in case only: {comma(same)}; merge "
            "or rename them."
        )
    odd = [name for name in names if printable(name) != name or "\n" in name]
    if odd:
        raise ValueError(
            f"{where} has rank {what}s with control characters or bytes that are not "
            f"UTF-8: {comma(map(repr, odd))}; rename them."
        )


def _given_order(
    names: Sequence[str], order: Sequence[str], what: str, where: str
) -> tuple[str, ...]:
    if isinstance(order, str):
        raise ValueError(
            f"data.order is the text {order!r}; give a tuple of {what} names, lowest "
            "rank first, e.g. ('healthy', 'mild', 'severe')."
        )
    ranks = tuple(str(name) for name in order)
    missing = [name for name in ranks if name not in names]
    extra = [name for name in names if name not in ranks]
    if missing or extra or len(set(ranks)) < len(ranks):
        raise ValueError(
            f"data.order={ranks} does not fit {where}: it must name each {what} there "
            f"once ({comma(names)}), lowest rank first"
            f"{f'; there is no {what} {comma(missing)}' * bool(missing)}"
            f"{f'; it leaves out {comma(extra)}' * bool(extra)}. Correct it, or take "
            f"out {what}s that are no ranks."
        )
    return ranks


def _order_by_number(names: Sequence[str], what: str, where: str) -> tuple[str, ...]:
    numbers = {name: number(name) for name in names}
    counts = collections.Counter(numbers.values())
    if None in counts or len(counts) < len(names):
        same = [name for name in names if counts[numbers[name]] > 1]
        problem = f"{comma(same)} start with the same number"
        if None in counts:
            problem = (
                f"{comma(names)} do not all start with a finite number, and the "
                "alphabet is no order of grades"
            )
        raise ValueError(
            f"the order of the rank {what}s in {where} is unknown: {problem}. Give all "
            f"lowest rank first: data.order=({', '.join(map(repr, names))}), "
            "rearranged."
        )
    return tuple(sorted(names, key=lambda name: numbers[name] or 0.0))
