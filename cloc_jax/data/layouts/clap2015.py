"""CLAP2015 (apparent age, ICCV 2015): three sets of faces, three lists of ages.

    {train,val,test}/image_1.jpg, …       folders whose names hold these words
    train.csv, val.csv, test.csv          lists whose names, or folders, do
    image_1.jpg;20;3.2                    image, mean apparent age, deviation

Lists may have a header and commas, semicolons or tabs. Faces are expected to be
aligned; where they are not, a table of eye positions aligns them here.
"""

import math
import os
import pathlib
from collections.abc import Iterable

from cloc_jax.data.layouts import tables
from cloc_jax.data.layouts.listing import (
    Item,
    Listing,
    comma,
    is_hidden,
    is_image,
    official_root,
    relative,
    subfolders,
)

SPLITS = {"train": ("train",), "val": ("val",), "test": ("test",)}
BINS = (1, 2, 3, 4, 5)  # years a class
WANTED = (
    "the folder that holds the images and the lists of the three sets, "
    "{train,val,test}/ and {train,val,test}.csv"
)
_IMAGE = ("image", "filename", "file", "name", "image name")
_AGE = ("age", "mean", "mean age", "mean_age", "apparent age", "apparent_age")
_EYES = ("left_x", "left_y", "right_x", "right_y")


def scan(root: str | pathlib.Path, *, bin: int = 1, landmarks: str = "") -> Listing:
    """Lists CLAP2015; class is floor(age / bin), counted over bins that occur.

    Args:
        root: The folder with the lists.
        bin: Years a class, 1 to 5.
        landmarks: Table with columns image, left_x, left_y, right_x and right_y, to
            align faces by their eyes; "" for faces that are aligned already.
    """
    if bin not in BINS:
        raise ValueError(f"data.bin is {bin}; use one of {comma(map(str, BINS))}.")
    root = official_root(
        root, WANTED, lambda path: {"train", "test"} <= set(_lists(path))
    )
    skipped: list[tuple[str, str]] = []
    faces: list[tuple[Item, float]] = []
    for split, path in _lists(root).items():
        files = _images(root, split)
        for name, age in _ages(path).items():
            if (file := files.get(name)) is None:
                skipped.append((f"{split}/{name}", "ages in a list without an image"))
                continue
            faces.append((Item(relative(file, root), file, 0, split), age))
    if not faces:
        raise FileNotFoundError(
            f"data.root={root} has lists, but none of the images they name; it must "
            f"be {WANTED}."
        )
    bins = sorted({math.floor(age / bin) for _, age in faces})
    items = [
        item._replace(label=bins.index(math.floor(age / bin))) for item, age in faces
    ]
    if landmarks:
        items = _with_eyes(items, root, landmarks, skipped)
    ranks = tuple(
        str(b) if bin == 1 else f"{b * bin}-{b * bin + bin - 1}" for b in bins
    )
    how = "by the given eyes" if landmarks else "as they are, expected to be aligned"
    notes = [f"{len(ranks)} classes of {bin} years; faces are taken {how}."]
    return Listing(ranks, sorted(items), skipped, notes)


def _split_of(names: Iterable[str]) -> str | None:
    """The split that the first telling one of some names tells."""
    for name in names:
        for split, words in SPLITS.items():
            if any(word in name.lower() for word in words):
                return split
    return None


def _lists(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """List of each split, in root or in the folder of a split."""
    found: dict[str, pathlib.Path] = {}
    below = [root / name for name in subfolders(root) if _split_of([name])]
    for folder in (root, *below):
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() not in (".csv", ".txt") or is_hidden(path.name):
                continue
            names = [path.stem, folder.name] if folder != root else [path.stem]
            if split := _split_of(names):
                found.setdefault(split, path)
    return {split: found[split] for split in SPLITS if split in found}


def _images(root: pathlib.Path, split: str) -> dict[str, pathlib.Path]:
    """Image files of a split by name: in its folder, or anywhere below root."""
    folders = [name for name in subfolders(root) if _split_of([name]) == split]
    files: dict[str, pathlib.Path] = {}
    for top in [root / name for name in folders] or [root]:
        for folder, _, names in os.walk(top):
            for name in filter(is_image, names):
                if is_hidden(name):
                    continue
                path = pathlib.Path(folder, name)
                if files.setdefault(name, path) != path:
                    raise ValueError(
                        f"{files[name]} and {path} have the same name, so a list "
                        f"cannot tell them apart; put {split} into a folder of its own."
                    )
    return files


def _ages(path: pathlib.Path) -> dict[str, float]:
    """Age of each image a list names."""
    table = tables.read_table(path, has_header=False)
    image, age = 0, 1
    first = table.rows[0]
    if len(first) > 1 and not _is_number(first[1]):
        table = tables.read_table(path)
        image, age = table.column(*_IMAGE), table.column(*_AGE)
    ages: dict[str, float] = {}
    for row in table.rows:
        if len(row) <= age or not _is_number(row[age]):
            raise ValueError(
                f"{path} line {row.line}: {comma(row)} has no age; each line must be "
                "an image, its mean apparent age and the deviation."
            )
        ages[row[image].rpartition("/")[2]] = float(row[age])
    return ages


def _is_number(text: str) -> bool:
    try:
        return math.isfinite(float(text))
    except ValueError:
        return False


def _with_eyes(
    items: list[Item],
    root: pathlib.Path,
    landmarks: str,
    skipped: list[tuple[str, str]],
) -> list[Item]:
    """Items whose eyes the table knows, by path below root or else by file name."""
    path = pathlib.Path(landmarks).expanduser()
    table = tables.read_table(path if path.exists() else root / landmarks)
    image = table.column(*_IMAGE)
    places = [table.column(name) for name in _EYES]
    eyes: dict[str, tuple[float, float, float, float]] = {}
    for row in table.rows:
        cells = [row[place] for place in places]
        if not all(map(_is_number, cells)):
            raise ValueError(
                f"{table.path} line {row.line}: {comma(cells)} are not four numbers, "
                f"{comma(_EYES)}."
            )
        left_x, left_y, right_x, right_y = map(float, cells)
        eyes[row[image]] = left_x, left_y, right_x, right_y
    kept = []
    for item in items:
        found = eyes.get(item.id) or eyes.get(item.path.name)
        if found is None:
            skipped.append((item.id, "images without eye positions"))
        else:
            kept.append(item._replace(eyes=found))
    if not kept:
        raise ValueError(
            f"data.landmarks={landmarks} names none of the images, such as "
            f"{items[0].id}; its column image must hold their paths or names."
        )
    return kept
