"""A folder of graded images as random-access sources, one a split.

Two layouts are read, and nothing is ever written:

    root/<rank>/*.png                     val and test are carved
    root/{train,val,test}/<rank>/*.png    as shipped; val or test carved if missing
"""

import collections
import os
import pathlib
import re
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cloc_jax.data import carving, images

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")
SPLITS = ("train", "val", "test")

_SPLIT_NAMES = {"train": "train", "val": "val", "validation": "val", "test": "test"}
_NUMBER = re.compile(r"[0-9]+(\.[0-9]+)?")


class ImageFiles:
    """Random-access source over image files.

    Attributes:
        ids: Path of each file relative to the root, with forward slashes.
        labels: Rank of each file, int32 [n].
        paths: Path of each file.
    """

    def __init__(
        self,
        root: pathlib.Path,
        ids: Sequence[str],
        labels: Sequence[int] | np.ndarray,
        *,
        channels: int,
    ):
        self.ids = list(ids)
        self.labels = np.asarray(labels, np.int32)
        self.paths = [root / id_ for id_ in self.ids]
        self._channels = channels

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> np.ndarray:
        """Pixels of one file, uint8 [height, width, channels], as stored."""
        return images.read(self.paths[index], channels=self._channels)

    def __repr__(self) -> str:
        return f"ImageFiles({len(self)} files, channels={self._channels})"


class Folder(NamedTuple):
    """What a scan found."""

    ranks: tuple[str, ...]  # names of the rank folders, lowest rank first
    splits: dict[str, ImageFiles]  # always "train", "val" and "test"
    notes: list[str]  # what was inferred, ignored or carved, in plain sentences


def scan(
    root: str | pathlib.Path,
    *,
    channels: int,
    order: Sequence[str] = (),
    val_fraction: float = 0.1,
    test_fraction: float = 0.15,
    merge_val: bool = False,
    group_pattern: str = "",
    seed: int = 0,
) -> Folder:
    """Lists the images below root and settles ranks and splits.

    A split that is missing is carved from train: stratified by rank, groups kept
    whole, chosen by a hash of seed and name. The same files give the same splits in
    any listing order, and one more file moves at most a few others.

    Args:
        root: The folder, in one of the two layouts.
        channels: 1 (grey) or 3 (colour), for reading the images.
        order: Names of the rank folders, lowest first. Without it, folders must be
            numbers or start with one.
        val_fraction: Share of the groups of each rank that a carved val receives.
        test_fraction: The same for a carved test.
        merge_val: Put a shipped val into train, then carve a new val from the whole.
        group_pattern: Regular expression searched in file names. Its first group, or
            the whole match, names the patient or subject, whose images then stay
            together. Without it each image is its own group.
        seed: Chooses among carved splits.

    Raises:
        FileNotFoundError: There is no folder at root.
        ValueError: The folder, or an argument, does not make a graded dataset.
    """
    root = _check_root(root)
    pattern = carving.compile_pattern(group_pattern)
    notes: list[str] = []
    folders = _split_folders(root, order, notes)
    names = {split: _rank_folders(path) for split, path in folders.items()}
    ranks = _order_ranks(names["train"], order, folders["train"], notes)
    splits = _list_splits(root, folders, names, ranks, notes)

    if merge_val and splits.get("val"):
        shipped = splits.pop("val")
        splits["train"] = sorted(splits["train"] + shipped)
        notes.append(
            f"The shipped val ({carving.count_images(shipped)}) was merged into train."
        )
    elif merge_val:
        notes.append("data.merge_val is on, but there is no shipped val to merge.")

    carved = {"test": test_fraction, "val": val_fraction}
    carved = {split: carved[split] for split in carved if split not in splits}
    carving.check_fractions(val_fraction, test_fraction, carved)
    groups = carving.group_items(splits, pattern, notes)
    if carved:
        if pattern is None:
            notes.append(
                "For carving, each image was taken as its own patient or subject; "
                "where several images show the same one, give data.group_pattern."
            )
        splits |= carving.carve(splits["train"], groups, carved, seed, notes)
    if pattern is not None:
        carving.note_shared_groups(splits, groups, notes)
    for split in SPLITS:
        _note_absent(split, splits[split], ranks, notes)

    sources = {
        split: ImageFiles(
            root,
            [item.id for item in splits[split]],
            [item.label for item in splits[split]],
            channels=channels,
        )
        for split in SPLITS
    }
    return Folder(ranks, sources, notes)


# --- what lies where ---


def _check_root(root: str | pathlib.Path) -> pathlib.Path:
    if not str(root):
        raise ValueError(
            "data.root is empty; give the folder that holds one folder of images a "
            "rank, e.g. --config.data.root=path/to/images."
        )
    path = pathlib.Path(root).expanduser()
    if not path.exists():
        raise FileNotFoundError(
            f"data.root={root}: there is no such folder (looked at "
            f"{path.absolute()}); check the path."
        )
    if not path.is_dir():
        raise ValueError(
            f"data.root={root} is a file; give the folder that holds one folder of "
            "images a rank. An archive must be unpacked first."
        )
    return path


def is_hidden(name: str) -> bool:
    """Whether a file or folder of that name is passed over."""
    return name.startswith(".") or name == "__MACOSX"  # left by macOS archives


def is_image(name: str) -> bool:
    """Whether a file of that name is read as an image."""
    return name.lower().endswith(EXTENSIONS)


def _subfolders(path: pathlib.Path) -> list[str]:
    with os.scandir(path) as entries:
        return sorted(e.name for e in entries if e.is_dir() and not is_hidden(e.name))


def _count_images(path: pathlib.Path) -> int:
    with os.scandir(path) as entries:
        return sum(
            is_image(e.name) and not is_hidden(e.name) and e.is_file() for e in entries
        )


def _split_folders(
    root: pathlib.Path, order: Sequence[str], notes: list[str]
) -> dict[str, pathlib.Path]:
    """Folder of each shipped split; root itself as train where none is shipped."""
    found: dict[str, list[str]] = {}
    below = _subfolders(root)
    for name in below:
        if split := _SPLIT_NAMES.get(name.lower()):
            found.setdefault(split, []).append(name)
    if not found:
        _check_level(root, below, order)
        _note_siblings(root, notes)
        return {"train": root}
    for split, found_names in found.items():
        if len(found_names) > 1:
            raise ValueError(
                f"data.root={root} has {_list(found_names)}, which both mean {split}; "
                "keep one of them."
            )
    if "train" not in found:
        raise ValueError(
            f"data.root={root} has {_list(below)} but no train; name the folder of "
            "training images train, or give a data.root that holds the rank folders."
        )
    ignored = sorted(set(below) - {name for pair in found.values() for name in pair})
    if ignored:
        notes.append(
            f"Ignored beside the splits: {_list(ignored)} (splits are called train, "
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
        if split == "train" or any(_count_images(path / n) for n in _subfolders(path)):
            kept[split] = path
        elif count := _count_images(path):
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
    if not below and _count_images(root):
        parent = here.parent
        if parent.name.lower() in _SPLIT_NAMES:
            parent = parent.parent
        raise ValueError(
            f"data.root={root} holds images but no rank folders, so it looks like one "
            f"rank of a dataset; did you mean data.root={parent}?"
        )
    if not below:
        raise ValueError(
            f"data.root={root} has no rank folders; it must hold one folder of images "
            "a rank (0, 1, 2, …), or train, val and test with such folders."
        )
    if any(_count_images(root / name) for name in below):
        return
    if len(below) > 1 and (order or all(_NUMBER.match(name) for name in below)):
        return  # ranks, whose own images lie too deep or are missing
    meant = [path for name in below if (path := _find_dataset(root / name)) is not None]
    advice = (
        f"did you mean data.root={' or '.join(map(str, meant))}?"
        if meant
        else "it must hold one folder of images a rank (0, 1, 2, …)."
    )
    raise ValueError(
        f"data.root={root} holds {_list(below)} but no rank folders with images; "
        f"{advice}"
    )


def _find_dataset(path: pathlib.Path, depth: int = 4) -> pathlib.Path | None:
    """The folder that looks like a dataset: path, or one below it in a lone chain."""
    below = _subfolders(path)
    if any(name.lower() == "train" for name in below):
        return path
    if sum(_count_images(path / name) > 0 for name in below) > 1:
        return path
    if len(below) == 1 and depth:
        return _find_dataset(path / below[0], depth - 1)
    return None


def _note_siblings(root: pathlib.Path, notes: list[str]) -> None:
    here = root.absolute()
    if here.name.lower() not in _SPLIT_NAMES:
        return
    beside = [
        name
        for name in _subfolders(here.parent)
        if name.lower() in _SPLIT_NAMES and name != here.name
    ]
    if beside:
        notes.append(
            f"data.root ends in {here.name}, and {_list(beside)} beside it "
            f"{_are(beside)} not used; give data.root={here.parent} to use the shipped "
            "splits."
        )


# --- ranks ---


def _rank_folders(path: pathlib.Path) -> list[str]:
    names = _subfolders(path)
    lower = collections.Counter(name.lower() for name in names)
    same = [name for name in names if lower[name.lower()] > 1]
    if same:
        raise ValueError(
            f"{path} has rank folders that differ in case only: {_list(same)}; merge "
            "or rename them."
        )
    return names


def _order_ranks(
    names: list[str], order: Sequence[str], path: pathlib.Path, notes: list[str]
) -> tuple[str, ...]:
    """Names of the rank folders below path, lowest rank first."""
    if not names:
        raise ValueError(
            f"data.root: {path} has no rank folders; it must hold one folder of images "
            "a rank (0, 1, 2, …)."
        )
    if order:
        ranks = _given_order(names, order, path)
    else:
        ranks = _number_order(names, path)
        notes.append(f"Ranks by the numbers of their folders: {' < '.join(ranks)}.")
        if all(rank.isdecimal() for rank in ranks):
            absent = set(range(int(ranks[0]), int(ranks[-1]))) - set(map(int, ranks))
            if absent:
                notes.append(
                    f"No folder is called {_list(sorted(map(str, absent)))}; the ranks "
                    "around such a gap count as neighbours."
                )
    if len(ranks) == 1:
        raise ValueError(
            f"data.root: {path} has only one rank folder, {ranks[0]}; grading needs at "
            "least two."
        )
    return ranks


def _given_order(
    names: list[str], order: Sequence[str], path: pathlib.Path
) -> tuple[str, ...]:
    if isinstance(order, str):
        raise ValueError(
            f"data.order is the text {order!r}; give a tuple of folder names, lowest "
            "rank first, e.g. ('healthy', 'mild', 'severe')."
        )
    ranks = tuple(str(name) for name in order)
    twice = [name for name, count in collections.Counter(ranks).items() if count > 1]
    missing = [name for name in ranks if name not in names]
    extra = [name for name in names if name not in ranks]
    problems = []
    if twice:
        problems.append(f"it names {_list(twice)} more than once")
    if missing:
        problems.append(f"there is no folder {_list(missing)}")
    if extra:
        problems.append(f"it leaves out the {_plural(extra, 'folder')} {_list(extra)}")
    if problems:
        raise ValueError(
            f"data.order={ranks} does not fit the folders in {path}: "
            f"{'; '.join(problems)}. Name each of {_list(names)} once, lowest rank "
            "first, and move folders that are no ranks elsewhere."
        )
    return ranks


def _number_order(names: list[str], path: pathlib.Path) -> tuple[str, ...]:
    example = f"data.order=({', '.join(repr(name) for name in names)})"
    matches = {name: _NUMBER.match(name) for name in names}
    numbers = {name: float(match[0]) for name, match in matches.items() if match}
    if len(numbers) < len(names):
        raise ValueError(
            f"the order of the rank folders in {path} is unknown: {_list(names)} do "
            "not all start with a number, and the alphabet is no order of grades. "
            f"Give them lowest rank first: {example}, rearranged."
        )
    counts = collections.Counter(numbers.values())
    same = [name for name in names if counts[numbers[name]] > 1]
    if same:
        raise ValueError(
            f"the order of the rank folders in {path} is unknown: {_list(same)} start "
            f"with the same number. Give all lowest rank first: {example}, rearranged."
        )
    return tuple(sorted(names, key=numbers.__getitem__))


# --- files ---


def _list_splits(
    root: pathlib.Path,
    folders: dict[str, pathlib.Path],
    names: dict[str, list[str]],
    ranks: tuple[str, ...],
    notes: list[str],
) -> dict[str, list[carving.Item]]:
    splits = {}
    skipped: collections.Counter[str] = collections.Counter()
    for split, path in folders.items():
        unknown = [name for name in names[split] if name not in ranks]
        if unknown:
            raise ValueError(
                f"{path} has the rank {_plural(unknown, 'folder')} {_list(unknown)}, "
                f"which {folders['train']} has not (it has {_list(ranks)}): a rank "
                "without training images cannot be learnt. Use the same folder names "
                "in all splits."
            )
        items: list[carving.Item] = []
        empty = []
        for label, rank in enumerate(ranks):
            folder = path / rank
            files = _files(folder, skipped) if rank in names[split] else []
            if not files:
                empty.append(rank)
            prefix = folder.relative_to(root).as_posix()
            items += [carving.Item(f"{prefix}/{name}", label) for name in files]
        if empty and split == "train":
            raise ValueError(_empty_message(path, empty))
        stray = _count_images(path)
        if stray:
            notes.append(
                f"Skipped: {stray} images directly in {path}, outside the rank folders."
            )
        splits[split] = sorted(items)
    for what, count in sorted(skipped.items()):
        notes.append(f"Skipped in the rank folders: {count} {what}.")
    return splits


def _files(folder: pathlib.Path, skipped: collections.Counter[str]) -> list[str]:
    """Names of the images directly in a folder, sorted; counts what is skipped."""
    files = []
    with os.scandir(folder) as entries:
        for entry in entries:
            if is_hidden(entry.name):
                skipped["hidden (such as .DS_Store)"] += 1
            elif entry.is_dir():
                skipped["folders (images must lie directly in the rank folder)"] += 1
            elif is_image(entry.name):
                files.append(entry.name)
            else:
                skipped["files that are not images by their name"] += 1
    return sorted(files)


def _empty_message(path: pathlib.Path, empty: list[str]) -> str:
    message = (
        f"data.root: no images in the rank {_plural(empty, 'folder')} {_list(empty)} "
        f"of {path}; wanted are files ending in {', '.join(EXTENSIONS)}, directly in "
        "the folder."
    )
    nested = [name for name in empty if _subfolders(path / name)]
    if nested:
        return f"{message} {_list(nested)} has folders inside: move their images up."
    return f"{message} Fill the folder or remove it."


# --- notes ---


def _note_absent(
    split: str, items: list[carving.Item], ranks: tuple[str, ...], notes: list[str]
) -> None:
    counts = collections.Counter(item.label for item in items)
    absent = [rank for i, rank in enumerate(ranks) if not counts[i]]
    if absent:
        notes.append(
            f"{split} has no images of {_plural(absent, 'rank')} {_list(absent)}: "
            "scores there say nothing about them."
        )


def _plural(items: Sequence, noun: str) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def _are(items: Sequence) -> str:
    return "is" if len(items) == 1 else "are"


def _list(names: Sequence[str]) -> str:
    return ", ".join(names)
