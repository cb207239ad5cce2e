"""What a layout finds: ranks in order, one item per image; and how to look for it."""

import collections
import itertools
import os
import pathlib
from collections.abc import Callable, Iterable, Iterator, Sized
from typing import NamedTuple

EXTENSIONS = (".jpg", ".jpeg", ".png", ".webp", ".tif", ".tiff", ".bmp")
SPLITS = ("train", "val", "test")
FOLD = "fold {}"  # what a layout calls the splits of cross-validation
# Other words for the splits, as folders and in tables.
SPLIT_NAMES = {"train": "train", "val": "val", "validation": "val", "test": "test"}

UNLISTED = "folders that cannot be listed"  # an error, unless bad images are skipped
_BELOW = 4  # levels at which a misplaced dataset is looked for
_FOLDERS = 2000  # looked into at most, for a root that is a whole disk


class Item(NamedTuple):
    """One graded image."""

    id: str  # unique and lasting: the path below the root, with forward slashes
    path: pathlib.Path  # the file that holds its pixels
    label: int
    split: str | None = None  # as shipped: train, val, test, or a fold
    group: str | None = None  # the patient or subject, where known
    row: tuple[str, int] | None = None  # array and place, in a file of arrays
    eyes: tuple[float, float, float, float] | None = None  # x and y of both, to align


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


def _entries(path: pathlib.Path) -> list[os.DirEntry] | None:
    """What lies in a folder, sorted; None where it cannot be listed."""
    try:
        with os.scandir(path) as entries:
            return sorted(entries, key=lambda entry: entry.name)
    except OSError:
        return None


def _is_dir(entry: os.DirEntry) -> bool:
    try:
        return entry.is_dir()
    except OSError:  # a link that leads back to itself
        return False


def subfolders(path: pathlib.Path) -> list[str]:
    """Names of the folders in a folder, sorted, hidden ones left out."""
    if (entries := _entries(path)) is None:
        raise ValueError(
            f"the folder {path} cannot be listed; change its access, or move it away."
        )
    return [e.name for e in entries if _is_dir(e) and not is_hidden(e.name)]


def count_images(path: pathlib.Path) -> int:
    """How many images lie directly in a folder; 0 where that cannot be said."""
    return len(image_files(path, [], path))


def image_files(
    folder: pathlib.Path, skipped: list[tuple[str, str]], root: pathlib.Path
) -> list[str]:
    """Names of the images directly in a folder, sorted; adds what is skipped."""
    names: list[str] = []
    if (entries := _entries(folder)) is None:
        skipped.append((relative(folder, root), UNLISTED))
        return names
    for entry in entries:
        what = relative(pathlib.Path(entry.path), root)
        if is_hidden(entry.name):
            skipped.append((what, "hidden"))
        elif _is_dir(entry):
            why = "folders (images must lie directly in the rank folder)"
            skipped.append((what, why))
        elif is_image(entry.name):
            names.append(entry.name)
        else:
            skipped.append((what, "files that are not images by their name"))
    return names


def relative(path: pathlib.Path, root: pathlib.Path) -> str:
    """Path below the root, with forward slashes."""
    return path.relative_to(root).as_posix()


# --- the root ---


def existing_root(root: str | pathlib.Path, wanted: str) -> pathlib.Path:
    """The folder data.root names, or an error that says what it should be."""
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
    subfolders(path)  # one that cannot be listed says so
    return path


def root_folder(
    root: str | pathlib.Path, wanted: str, is_it: Callable[[pathlib.Path], bool]
) -> pathlib.Path:
    """The folder of a layout, or an error that says which other one it may be."""
    path = existing_root(root, wanted)
    if is_it(path):
        return path
    here = path.absolute()
    near = itertools.chain(_folders_below(here), here.parents[:3])
    meant = next(filter(is_it, near), None)
    names = sorted(entry.name for entry in path.iterdir() if not is_hidden(entry.name))
    held = comma(names[:6]) + ", …" * (len(names) > 6) or "nothing"
    advice = f" Did you mean data.root={meant}?" if meant else ""
    raise ValueError(f"data.root={root} holds {held}; it must be {wanted}.{advice}")


def _folders_below(path: pathlib.Path) -> Iterator[pathlib.Path]:
    """Folders below one, nearest first, up to some depth and number."""
    waiting = collections.deque([(path, 0)])
    for _ in range(_FOLDERS):
        if not waiting:
            return
        folder, depth = waiting.popleft()
        try:
            names = subfolders(folder)
        except ValueError:
            continue  # not readable: not the one meant
        if depth:
            yield folder
        if depth < _BELOW:
            waiting.extend((folder / name, depth + 1) for name in names)


# --- words ---


def comma(names: Iterable[str]) -> str:
    return ", ".join(names)


def plural(items: Sized, noun: str) -> str:
    return noun if len(items) == 1 else f"{noun}s"


def count_of(items: Sized, noun: str = "image") -> str:
    return f"{len(items)} {plural(items, noun)}"
