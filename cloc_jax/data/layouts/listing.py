"""What a layout finds: ranks in order, one item per image; and how to look for it."""

import hashlib
import os
import pathlib
from collections.abc import Iterable, Sized
from typing import NamedTuple

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")
SPLITS = ("train", "val", "test")
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
    split: str | None = None  # as shipped: train, val or test
    group: str | None = None  # the patient or subject, where known
    row: tuple[str, int] | None = None  # array and place, in a file of arrays
    weight: float | None = None  # how much it counts in training, where given


class Listing(NamedTuple):
    """All graded images of a dataset, sorted by id."""

    ranks: tuple[str, ...]  # names, lowest first
    items: list[Item]
    skipped: list[tuple[str, str]]  # what was passed over, and why
    notes: list[str]  # what was inferred, in plain sentences
    drawn: int | None = None  # fold whose test part is drawn, once images were read


# --- files and folders ---


def is_image(name: str) -> bool:
    """Whether a file of that name is read as an image."""
    return name.lower().endswith(EXTENSIONS)


def names_in(folder: pathlib.Path) -> list[str]:
    """What lies in a folder, sorted, hidden things left out."""
    left = "__MACOSX"  # by macOS archives
    return sorted(n for n in os.listdir(folder) if n[:1] != "." and n != left)


def subfolders(path: pathlib.Path) -> list[str]:
    """Names of the folders in a folder, sorted, hidden ones left out."""
    return [name for name in names_in(path) if (path / name).is_dir()]


def image_files(
    folder: pathlib.Path, skipped: list[tuple[str, str]], root: pathlib.Path
) -> list[pathlib.Path]:
    """The images directly in a folder, sorted; adds what is skipped."""
    images = []
    for name in names_in(folder):
        path = folder / name
        if is_image(name) and not path.is_dir():
            images.append(path)
        else:
            skipped.append((relative(path, root), "that are not images by their name"))
    return images


def relative(path: pathlib.Path, root: pathlib.Path) -> str:
    """Path below the root, with forward slashes."""
    return path.relative_to(root).as_posix()


def root_folder(
    root: str | pathlib.Path, wanted: str, needed: Iterable[str] = ()
) -> pathlib.Path:
    """The folder data.root names, or an error that says what it should be."""
    path = pathlib.Path(root).expanduser()
    missing = [name for name in needed if not os.path.exists(path / name)]
    if not str(root):
        problem = "is empty"
    elif not os.path.exists(path):  # also where a link leads back to itself
        problem = f"does not exist (looked at {path.absolute()})"
    elif not path.is_dir():
        problem = "is a file (an archive must be unpacked first)"
    elif missing:
        problem = f"has no {comma(missing)}"
    else:
        return path
    name = f"data.root={root}" if str(root) else "data.root"
    raise ValueError(f"{name} {problem}; give {wanted}.")


def place_by_hash(text: str) -> bytes:
    """Where a name comes in an order that looks random and never changes."""
    return hashlib.blake2b(os.fsencode(text), digest_size=16).digest()


# --- words ---


def comma(names: Iterable[str]) -> str:
    return ", ".join(names)


def plural(items: Sized, noun: str) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def count_of(items: Sized, noun: str = "image") -> str:
    return f"{len(items)} {plural(items, noun)}"
