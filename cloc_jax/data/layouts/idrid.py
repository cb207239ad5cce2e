"""IDRiD as downloaded: the folder "B. Disease Grading", two sets and two tables.

    1. Original Images/{a. Training Set,b. Testing Set}/IDRiD_001.jpg, …
    2. Groundtruths/{a. IDRiD_Disease Grading_Training Labels.csv,b. …Testing…}

File names start again at 001 in the second set.
"""

import pathlib

from cloc_jax.data.layouts import table_files
from cloc_jax.data.layouts.listing import (
    Item,
    Listing,
    comma,
    image_files,
    official_root,
    relative,
)

RANKS = ("0", "1", "2", "3", "4")
IMAGES, LABELS = "1. Original Images", "2. Groundtruths"
SETS = {
    "train": ("a. Training Set", "a. IDRiD_Disease Grading_Training Labels.csv"),
    "test": ("b. Testing Set", "b. IDRiD_Disease Grading_Testing Labels.csv"),
}
NAME, GRADE = "Image name", "Retinopathy grade"
WANTED = f'the folder "B. Disease Grading" with "{IMAGES}" and "{LABELS}" in it'


def scan(root: str | pathlib.Path) -> Listing:
    """Lists IDRiD with its own split."""
    root = official_root(
        root, WANTED, lambda path: (path / IMAGES).is_dir() and (path / LABELS).is_dir()
    )
    items: list[Item] = []
    skipped: list[tuple[str, str]] = []
    for split, (folder, table) in SETS.items():
        images = root / IMAGES / folder
        for path in (images, root / LABELS / table):
            if not path.exists():
                raise FileNotFoundError(
                    f"data.root={root} has no {relative(path, root)}; download "
                    "IDRiD's disease grading part again."
                )
        grades = _grades(root / LABELS / table)
        for name in image_files(images, skipped, root):
            path = images / name
            grade = grades.pop(pathlib.Path(name).stem.lower(), None)
            id_ = relative(path, root)
            if grade is None:
                skipped.append((id_, "images without a grade in the table"))
            else:
                items.append(Item(id_, path, RANKS.index(grade), split))
        skipped += [
            (f"{folder}/{name}", "grades in the table without an image")
            for name in grades
        ]
    return Listing(RANKS, sorted(items), skipped, [])


def _grades(path: pathlib.Path) -> dict[str, str]:
    """Grade of each image name, in lower case. Blank columns and rows are ignored."""
    table = table_files.read(path)
    name, grade = (table.column(wanted) for wanted in (NAME, GRADE))
    grades: dict[str, str] = {}
    for row in table.rows:
        if row[grade] not in RANKS:
            raise ValueError(
                f"{path} line {row.line}: the grade is {row[grade]!r}; it must be one "
                f"of {comma(RANKS)}."
            )
        grades[row[name].lower()] = row[grade]
    return grades
