"""What a layout finds: ranks in order, one item per image; and how to look for it."""

import os
import pathlib
from collections.abc import Iterable, Sized
from typing import NamedTuple

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")
SPLITS = ("train", "val", "test")
FOLD = "fold {}"  # what a layout calls the splits of cross-validation
# Other words for the splits, as folders and in tables.
SPLIT_NAMES = {
    "train": "train",
    "training": "train",
    "val": "val",
    "valid": "val",
    "validation": "val",
    "test": "test",
    "testing": "test",
}


class Item(NamedTuple):
    """One graded image."""

    id: str  # unique and lasting: the path below the root, with forward slashes
    path: pathlib.Path  # the file that holds its pixels
    label: int
    split: str | None = None  # as shipped: train, val, test, or a fold
    group: str | None = None  # the patient or subject, where known
    row: tuple[str, int] | None = None  # array and place, in a file of arrays


class Listing(NamedTuple):
    """All graded images of a dataset, sorted by id."""

    ranks: tuple[str, ...]  # names, lowest first
    items: list[Item]
    skipped: list[tuple[str, str]]  # what was passed over, and why
    notes: list[str]  # what was inferred, in plain sentences


# --- files and folders ---


def is_hidden(name: str) -> bool:
    """Whether a file or folder of that name is passed over."""
    return name.startswith(".") or name == "__MACOSX"  # left by macOS archives


def is_image(name: str) -> bool:
    """Whether a file of that name is read as an image."""
    return name.lower().endswith(EXTENSIONS)


def _names(folder: pathlib.Path) -> list[str]:
    """What lies in a folder, sorted."""
    try:
        return sorted(os.listdir(folder))
    except OSError as error:
        raise ValueError(
            f"the folder {folder} cannot be listed ({error.strerror}); change its "
            "access, or move it away."
        ) from None


def subfolders(path: pathlib.Path) -> list[str]:
    """Names of the folders in a folder, sorted, hidden ones left out."""
    return [n for n in _names(path) if (path / n).is_dir() and not is_hidden(n)]


def image_files(
    folder: pathlib.Path, skipped: list[tuple[str, str]], root: pathlib.Path
) -> list[str]:
    """Names of the images directly in a folder, sorted; adds what is skipped."""
    names: list[str] = []
    for name in _names(folder):
        path = folder / name
        if is_hidden(name):
            skipped.append((relative(path, root), "hidden"))
        elif path.is_dir():
            why = "folders (images must lie directly in the rank folder)"
            skipped.append((relative(path, root), why))
        elif is_image(name):
            names.append(name)
        else:
            why = "files that are not images by their name"
            skipped.append((relative(path, root), why))
    return names


def relative(path: pathlib.Path, root: pathlib.Path) -> str:
    """Path below the root, with forward slashes."""
    return path.relative_to(root).as_posix()


# --- the root ---


def root_folder(
    root: str | pathlib.Path, wanted: str, needed: Iterable[str] = ()
) -> pathlib.Path:
    """The folder data.root names, or an error that says what it should be.

    Args:
        root: As given.
        wanted: What it should be, in words.
        needed: Files and folders that it must hold.
    """
    if not str(root):
        raise ValueError(
            f"data.root is empty; give {wanted}, e.g. --config.data.root=path/to/it."
        )
    path = pathlib.Path(root).expanduser()
    if not os.path.exists(path):  # also where a link leads back to itself
        raise FileNotFoundError(
            f"data.root={root}: there is no such folder (looked at "
            f"{path.absolute()}); check the path. It should be {wanted}."
        )
    if not path.is_dir():
        raise ValueError(
            f"data.root={root} is a file; give {wanted}. An archive must be unpacked "
            "first."
        )
    if missing := [name for name in needed if not (path / name).exists()]:
        raise ValueError(
            f"data.root={root} has no {comma(missing)}; it must be {wanted}."
        )
    return path


# --- words ---


def comma(names: Iterable[str]) -> str:
    return ", ".join(names)


def plural(items: Sized, noun: str) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def count_of(items: Sized, noun: str = "image") -> str:
    return f"{len(items)} {plural(items, noun)}"
