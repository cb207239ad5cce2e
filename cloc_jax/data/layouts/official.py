"""Official downloads: where their images and grades lie.

KOA, HID and BRACS have one folder per rank, IDRiD, Adience and CLAP2015 tables, and
RetinaMNIST is one file of arrays. Keyword arguments are settings of the dataset.
"""

import hashlib
import math
import pathlib
import zipfile
import zlib

import numpy as np

from cloc_jax.data.layouts import rank_folders, tables
from cloc_jax.data.layouts.listing import (
    FOLD,
    SPLITS,
    Item,
    Listing,
    comma,
    image_files,
    relative,
    root_folder,
)
from cloc_jax.runtime import files

GRADES = ("0", "1", "2", "3", "4")  # of KOA (Kellgren-Lawrence), IDRiD, RetinaMNIST

# --- one folder per rank ---

DECADES = ("1930s", "1940s", "1950s", "1960s", "1970s")
LESIONS = ("0_N", "1_PB", "2_UDH", "3_FEA", "4_ADH", "5_DCIS", "6_IC")


def scan_koa(root: str | pathlib.Path, *, group_pattern: str = r"^(\d+)") -> Listing:
    """KOA: `kneeKL224/{train,val,test}/{0,1,2,3,4}/<patient><L or R>.png`.

    Args:
        root: The folder with the three splits.
        group_pattern: Finds the patient in a file name: its digits; the letter is the
            side. So both knees of a patient are one group.
    """
    wanted = (
        "the folder that holds train, val and test, each with the folders 0 to 4, such "
        "as KneeXrayData/ClsKLData/kneeKL224"
    )
    root = root_folder(root, wanted, [f"train/{grade}" for grade in GRADES])
    return rank_folders.scan(root, order=GRADES, group_pattern=group_pattern)


def scan_hid(root: str | pathlib.Path) -> Listing:
    """HID: `decade_database/{1930s, …, 1970s}/*`; which are for testing is drawn."""
    wanted = (
        f"the folder that holds {comma(DECADES)}: "
        "HistoricalColor-ECCV2012/data/imgs/decade_database"
    )
    return rank_folders.scan(root_folder(root, wanted, DECADES), order=DECADES)


def scan_bracs(root: str | pathlib.Path) -> Listing:
    """BRACS: `latest_version/{train,val,test}/<class>/BRACS_<slide>_<class>_<n>.png`.

    The regions of one slide are one group.
    """
    wanted = (
        "the folder that holds train, val and test, each with the folders "
        f"{comma(LESIONS)}: BRACS_RoI/latest_version"
    )
    root = root_folder(root, wanted, [f"train/{name}" for name in LESIONS])
    listing = rank_folders.scan(root, order=LESIONS, group_pattern=r"^BRACS_(\d+)_")
    return listing._replace(ranks=tuple(name[2:] for name in LESIONS))


# --- IDRiD ---

_IDRID = {
    "train": (
        "1. Original Images/a. Training Set",
        "2. Groundtruths/a. IDRiD_Disease Grading_Training Labels.csv",
    ),
    "test": (
        "1. Original Images/b. Testing Set",
        "2. Groundtruths/b. IDRiD_Disease Grading_Testing Labels.csv",
    ),
}


def scan_idrid(root: str | pathlib.Path) -> Listing:
    """IDRiD's folder "B. Disease Grading": two sets of images and two tables.

    File names start again at 001 in the second set.
    """
    wanted = 'the folder "B. Disease Grading" with the images and tables of both sets'
    root = root_folder(root, wanted, [*_IDRID["train"], *_IDRID["test"]])
    items: list[Item] = []
    skipped: list[tuple[str, str]] = []
    for split, (folder, table) in _IDRID.items():
        grades = _idrid_grades(root / table)
        for name in image_files(root / folder, skipped, root):
            path = root / folder / name
            grade = grades.pop(path.stem.lower(), None)
            id_ = relative(path, root)
            if grade is None:
                skipped.append((id_, "images without a grade in the table"))
            else:
                items.append(Item(id_, path, GRADES.index(grade), split))
        skipped += [(name, "grades in the table without an image") for name in grades]
    return Listing(GRADES, sorted(items), skipped, [])


def _idrid_grades(path: pathlib.Path) -> dict[str, str]:
    """Grade of each image name, in lower case. Blank columns and rows are ignored."""
    table = tables.read_table(path)
    name, grade = table.column("Image name"), table.column("Retinopathy grade")
    grades: dict[str, str] = {}
    for row in table.rows:
        if row[grade] not in GRADES:
            raise ValueError(
                f"{path} line {row.line}: the grade is {row[grade]!r}; it must be one "
                f"of {comma(GRADES)}."
            )
        grades[row[name].lower()] = row[grade]
    return grades


# --- Adience ---

# As the fold files write them. The paper calls the third class 8-13.
AGES = {
    "(0, 2)": "0-2",
    "(4, 6)": "4-6",
    "(8, 12)": "8-13",
    "(15, 20)": "15-20",
    "(25, 32)": "25-32",
    "(38, 43)": "38-43",
    "(48, 53)": "48-53",
    "(60, 100)": "60-100",
}
FOLDS = tuple(FOLD.format(fold) for fold in range(5))


def scan_adience(root: str | pathlib.Path) -> Listing:
    """Adience: five fold files beside the folder of aligned faces; users are groups.

        fold_0_data.txt … fold_4_data.txt
        aligned/<user_id>/landmark_aligned_face.<face_id>.<original_image>

    Folds share no user. Ages that are not exactly one of the eight classes are
    skipped, as in the lists of Levi and Hassner.
    """
    lists = [f"fold_{fold}_data.txt" for fold in range(len(FOLDS))]
    wanted = (
        "the folder that holds aligned (unpacked from aligned.tar.gz) and the files "
        f"{lists[0]} to {lists[-1]}"
    )
    root = root_folder(root, wanted, ["aligned", *lists])
    label_of = {age: label for label, age in enumerate(AGES)}
    items: dict[str, Item] = {}
    skipped: list[tuple[str, str]] = []
    for fold, name in zip(FOLDS, lists, strict=True):
        table = tables.read_table(root / name)
        user, image, face, age = map(
            table.column, ("user_id", "original_image", "face_id", "age")
        )
        for row in table.rows:
            aligned = f"landmark_aligned_face.{row[face]}.{row[image]}"
            file = root / "aligned" / row[user] / aligned
            id_ = relative(file, root)
            if row[age] not in label_of:
                skipped.append((id_, "faces whose age is none of the eight classes"))
            elif id_ in items:
                skipped.append((id_, "faces that the fold files name twice"))
            else:
                label = label_of[row[age]]
                items[id_] = Item(id_, file, label, fold, row[user])
    return Listing(tuple(AGES.values()), sorted(items.values()), skipped, [])


# --- RetinaMNIST ---

_FILE = "retinamnist.npz"
RETINAMNIST_MD5 = "bd4c0672f1bba3e3a89f0e4e876791e4"  # as published by MedMNIST


def scan_retinamnist(root: str | pathlib.Path) -> Listing:
    """RetinaMNIST, `retinamnist.npz` or the folder that holds it."""
    path = pathlib.Path(root).expanduser()
    if not path.is_file():
        path = root_folder(root, f"{_FILE}, or the folder that holds it", [_FILE])
        path /= _FILE
    try:
        files.check_unpacked_zip(path, path)
        # Without pickle: arrays only, nothing in the file is ever run.
        with np.load(path, allow_pickle=False) as arrays:
            labels = {split: arrays[f"{split}_labels"].reshape(-1) for split in SPLITS}
            if missing := {f"{split}_images" for split in SPLITS} - {*arrays.files}:
                raise ValueError(f"it has no {comma(sorted(missing))}")
    except files.TooLarge:
        raise
    except (
        OSError,
        KeyError,
        ValueError,
        EOFError,
        MemoryError,  # an array that claims to be larger than it is
        zipfile.BadZipFile,
        zlib.error,
    ) as error:
        raise ValueError(
            f"{path} is not RetinaMNIST as MedMNIST ships it ({error}); download it "
            "again."
        ) from None
    items = [
        Item(f"{split}/{row:05d}", path, label, split, row=(f"{split}_images", row))
        for split in SPLITS
        for row, label in enumerate(map(int, labels[split]))
    ]
    if any(not 0 <= item.label < len(GRADES) for item in items):
        raise ValueError(f"{path} has labels beyond {GRADES[0]} to {GRADES[-1]}.")
    md5 = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    notes = []
    if path.name == _FILE and md5 != RETINAMNIST_MD5:
        notes.append(
            f"Warning: the MD5 of {path} is {md5}; published is {RETINAMNIST_MD5}."
        )
    return Listing(GRADES, sorted(items), [], notes)


# --- CLAP2015 ---


def scan_clap2015(root: str | pathlib.Path, *, bin: int = 1) -> Listing:
    """CLAP2015 (apparent age, ICCV 2015): three sets of faces, three lists of ages.

        {train,val,test}/image_1.jpg, …
        train.csv, val.csv, test.csv          image_1.jpg;20;3.2

    A line has an image, its mean apparent age and the deviation. Faces are expected to
    be aligned. The class is floor(age / bin), counted over bins that occur.

    Args:
        root: The folder with the lists.
        bin: Years per class, 1 to 5.
    """
    if bin not in range(1, 6):
        raise ValueError(f"data.bin is {bin}; use one of 1, 2, 3, 4, 5.")
    wanted = "the folder that holds train, val, test and a list of each (train.csv, …)"
    lists = [f"{split}.csv" for split in SPLITS]
    root = root_folder(root, wanted, [*SPLITS, *lists])
    faces: list[tuple[Item, float]] = []
    for split, name in zip(SPLITS, lists, strict=True):
        for image, age in _ages(root / name):
            file = root / split / image
            faces.append((Item(relative(file, root), file, 0, split), age))
    bins = sorted({math.floor(age / bin) for _, age in faces})
    items = [
        item._replace(label=bins.index(math.floor(age / bin))) for item, age in faces
    ]
    ranks = tuple(
        str(b) if bin == 1 else f"{b * bin}-{b * bin + bin - 1}" for b in bins
    )
    return Listing(ranks, sorted(items), [], [f"{len(ranks)} classes of {bin} years."])


def _ages(path: pathlib.Path) -> list[tuple[str, float]]:
    """Each image a list names, with its age."""
    ages = []
    for row in tables.read_table(path, has_header=False).rows:
        try:
            ages.append((row[0], float(row[1])))
        except (IndexError, ValueError):
            raise ValueError(
                f"{path} line {row.line}: {comma(row)} has no age; each line must be "
                "an image, its mean apparent age and the deviation."
            ) from None
    return ages
