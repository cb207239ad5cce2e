"""One folder per rank, alone or below folders for the splits.

root/<rank>/*.png
root/{train,val,test}/<rank>/*.png
"""

import pathlib
from collections.abc import Sequence

from cloc_jax.data.layouts.groups import group_by_pattern
from cloc_jax.data.layouts.listing import (
    EXTENSIONS,
    SPLIT_NAMES,
    Item,
    Listing,
    comma,
    count_images,
    existing_root,
    image_files,
    is_hidden,
    is_image,
    is_listable,
    plural,
    relative,
    subfolders,
)
from cloc_jax.data.layouts.ranks import check_case, number, order_ranks

WANTED = "the folder that holds one folder of images per rank"


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
    root = existing_root(root, WANTED)
    notes: list[str] = []
    folders = _split_folders(root, order, notes)
    names = {split: subfolders(path) for split, path in folders.items()}
    ranks, rank_notes = _ranks(names, folders, order)
    skipped: list[tuple[str, str]] = []
    items: list[Item] = []
    for split, path in folders.items():
        shipped = None if path == root else split
        items += _items(root, path, shipped, names[split], ranks, skipped)
    items, group_notes = group_by_pattern(sorted(items), group_pattern)
    return Listing(ranks, items, skipped, notes + rank_notes + group_notes)


# --- splits ---


def _split_folders(
    root: pathlib.Path, order: Sequence[str], notes: list[str]
) -> dict[str, pathlib.Path]:
    """Folder of each shipped split; root itself as train where none is shipped."""
    found: dict[str, list[str]] = {}
    below = subfolders(root)
    for name in below:
        if split := SPLIT_NAMES.get(name.lower()):
            found.setdefault(split, []).append(name)
    if not found:
        _check_level(root, below, order)
        _note_siblings(root, notes)
        return {"train": root}
    for split, found_names in found.items():
        if len(found_names) > 1:
            raise ValueError(
                f"data.root={root} has {comma(found_names)}, which both mean {split}; "
                "keep one of them."
            )
    if "train" not in found:
        raise ValueError(
            f"data.root={root} has {comma(below)} but no train; name the folder of "
            "training images train, or give a data.root that holds the rank folders."
        )
    ignored = sorted(set(below) - {name for pair in found.values() for name in pair})
    if ignored:
        notes.append(
            f"Ignored beside the splits: {comma(ignored)} (splits are called train, "
            "val or validation, and test)."
        )
    folders = {split: root / found_names[0] for split, found_names in found.items()}
    return _graded(folders, notes)


def _graded(
    folders: dict[str, pathlib.Path], notes: list[str]
) -> dict[str, pathlib.Path]:
    """Without a val or test that holds no graded images."""
    kept = {}
    for split, path in folders.items():
        if split == "train" or any(count_images(path / n) for n in subfolders(path)):
            kept[split] = path
        elif count := count_images(path):
            notes.append(
                f"The folder {path.name} is not used: its {count} images lie in no "
                "rank folder, so their grades are unknown."
            )
        else:
            notes.append(f"The folder {path.name} is not used: it holds no images.")
    return kept


def _check_level(root: pathlib.Path, below: list[str], order: Sequence[str]) -> None:
    """Raises where root looks like the folder above or below the one meant."""
    here = root.absolute()
    if not below and count_images(root):
        parent = here.parent
        if parent.name.lower() in SPLIT_NAMES:
            parent = parent.parent
        raise ValueError(
            f"data.root={root} holds images but no rank folders, so it looks like one "
            f"rank of a dataset; did you mean data.root={parent}? Where a table has "
            "the grades, give it as data.csv."
        )
    if not below:
        raise ValueError(
            f"data.root={root} has no rank folders; it must hold one folder of images "
            "per rank (0, 1, 2, …), or train, val and test with such folders."
        )
    if any(count_images(root / name) for name in below):
        return
    if len(below) > 1 and (order or all(number(name) is not None for name in below)):
        return  # ranks, whose own images lie too deep or are missing
    meant = [path for name in below if (path := _find_dataset(root / name)) is not None]
    advice = (
        f"did you mean data.root={' or '.join(map(str, meant))}?"
        if meant
        else "it must hold one folder of images per rank (0, 1, 2, …)."
    )
    raise ValueError(
        f"data.root={root} holds {comma(below)} but no rank folders with images; "
        f"{advice}"
    )


def _find_dataset(path: pathlib.Path, depth: int = 4) -> pathlib.Path | None:
    """The folder that looks like a dataset: path, or one below it in a lone chain."""
    below = subfolders(path)
    if any(name.lower() == "train" for name in below):
        return path
    if sum(count_images(path / name) > 0 for name in below) > 1:
        return path
    if len(below) == 1 and depth:
        return _find_dataset(path / below[0], depth - 1)
    return None


def _note_siblings(root: pathlib.Path, notes: list[str]) -> None:
    here = root.absolute()
    if here.name.lower() not in SPLIT_NAMES:
        return
    beside = [
        name
        for name in subfolders(here.parent)
        if name.lower() in SPLIT_NAMES and name != here.name
    ]
    if beside:
        notes.append(
            f"data.root ends in {here.name}, and {comma(beside)} beside it "
            f"{'is' if len(beside) == 1 else 'are'} not used; give "
            f"data.root={here.parent} to use the shipped splits."
        )


# --- ranks and files ---


def _ranks(
    names: dict[str, list[str]],
    folders: dict[str, pathlib.Path],
    order: Sequence[str],
) -> tuple[tuple[str, ...], list[str]]:
    train = folders["train"]
    if not names["train"]:
        raise ValueError(
            f"data.root: {train} has no rank folders; it must hold one folder of "
            "images per rank (0, 1, 2, …)."
        )
    for split, path in folders.items():
        check_case(names[split], what="folder", where=str(path))
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
        raise ValueError(_empty_message(path, empty))
    skipped += [
        (relative(file, root), f"images directly in {path}, outside the rank folders")
        for file in sorted(path.iterdir())
        if is_image(file.name) and not is_hidden(file.name) and file.is_file()
    ]
    return items


def _empty_message(path: pathlib.Path, empty: list[str]) -> str:
    message = (
        f"data.root: no images in the rank {plural(empty, 'folder')} {comma(empty)} "
        f"of {path}; wanted are files ending in {comma(EXTENSIONS)}, directly in the "
        "folder."
    )
    closed = [name for name in empty if not is_listable(path / name)]
    if closed:
        return (
            f"data.root: the rank {plural(closed, 'folder')} {comma(closed)} of {path} "
            "cannot be listed, so no images of it are known; change its access."
        )
    nested = [name for name in empty if subfolders(path / name)]
    if nested:
        return f"{message} {comma(nested)} has folders inside: move their images up."
    return f"{message} Fill the folder or remove it."
