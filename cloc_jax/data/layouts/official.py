"""Official downloads: where their images and grades lie.

KOA, HID and BRACS have one folder per rank, IDRiD, Adience and CLAP2015 tables, and
RetinaMNIST is one file of arrays. Keyword arguments are settings of the dataset.
"""

import collections
import hashlib
import math
import os
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
    is_hidden,
    is_image,
    relative,
    root_folder,
    subfolders,
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
    return _rank_folders(root, wanted, GRADES, "train", group_pattern)


def scan_hid(root: str | pathlib.Path) -> Listing:
    """HID: `decade_database/{1930s, …, 1970s}/*`; which are for testing is drawn."""
    wanted = (
        f"the folder that holds {comma(DECADES)}: "
        "HistoricalColor-ECCV2012/data/imgs/decade_database"
    )
    return _rank_folders(root, wanted, DECADES, "", "")


def scan_bracs(root: str | pathlib.Path) -> Listing:
    """BRACS: `latest_version/{train,val,test}/<class>/BRACS_<slide>_<class>_<n>.png`.

    The regions of one slide are one group.
    """
    wanted = (
        "the folder that holds train, val and test, each with the folders "
        f"{comma(LESIONS)}: BRACS_RoI/latest_version"
    )
    listing = _rank_folders(root, wanted, LESIONS, "train", r"^BRACS_(\d+)_")
    return listing._replace(ranks=tuple(name[2:] for name in LESIONS))


def _rank_folders(
    root: str | pathlib.Path,
    wanted: str,
    ranks: tuple[str, ...],
    below: str,
    group_pattern: str,
) -> Listing:
    """An official layout with folders of these names in root, or in `below` of it."""

    def is_root(path: pathlib.Path) -> bool:
        folder = path / below
        return folder.is_dir() and set(ranks) <= set(subfolders(folder))

    root = root_folder(root, wanted, is_root)
    return rank_folders.scan(root, order=ranks, group_pattern=group_pattern)


# --- IDRiD ---

_IMAGES, _LABELS = "1. Original Images", "2. Groundtruths"
_SETS = {
    "train": ("a. Training Set", "a. IDRiD_Disease Grading_Training Labels.csv"),
    "test": ("b. Testing Set", "b. IDRiD_Disease Grading_Testing Labels.csv"),
}


def scan_idrid(root: str | pathlib.Path) -> Listing:
    """IDRiD's folder "B. Disease Grading": two sets of images and two tables.

        1. Original Images/{a. Training Set,b. Testing Set}/IDRiD_001.jpg, …
        2. Groundtruths/{a. IDRiD_Disease Grading_Training Labels.csv,b. …Testing…}

    File names start again at 001 in the second set.
    """
    wanted = 'the folder "B. Disease Grading" with the images and tables of both sets'
    root = root_folder(root, wanted, _is_idrid)
    items: list[Item] = []
    skipped: list[tuple[str, str]] = []
    for split, (folder, table) in _SETS.items():
        images = root / _IMAGES / folder
        grades = _idrid_grades(root / _LABELS / table)
        for name in image_files(images, skipped, root):
            path = images / name
            grade = grades.pop(pathlib.Path(name).stem.lower(), None)
            id_ = relative(path, root)
            if grade is None:
                skipped.append((id_, "images without a grade in the table"))
            else:
                items.append(Item(id_, path, GRADES.index(grade), split))
        skipped += [
            (f"{folder}/{name}", "grades in the table without an image")
            for name in grades
        ]
    return Listing(GRADES, sorted(items), skipped, [])


def _is_idrid(path: pathlib.Path) -> bool:
    return all(
        (path / _IMAGES / folder).is_dir() and (path / _LABELS / table).is_file()
        for folder, table in _SETS.values()
    )


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
FOLDS = 5
_SUBSETS = {"": "fold_{}_data.txt", "frontal": "fold_frontal_{}_data.txt"}


def scan_adience(root: str | pathlib.Path, *, subset: str = "") -> Listing:
    """Adience: five fold files beside the folder of aligned faces; users are groups.

        fold_0_data.txt … fold_4_data.txt, fold_frontal_0_data.txt …
        aligned/<user_id>/landmark_aligned_face.<face_id>.<original_image>

    Folds share no user. Ages that are not exactly one of the eight classes are
    dropped, as in the lists of Levi and Hassner.

    Args:
        root: The folder with the fold files.
        subset: "frontal" for the lists of near-frontal faces, "" for all.
    """
    if subset not in _SUBSETS:
        raise ValueError(
            f"data.subset is {subset!r}; Adience has 'frontal', or '' for all faces."
        )
    wanted = (
        "the folder that holds aligned (unpacked from aligned.tar.gz) and the files "
        "fold_0_data.txt to fold_4_data.txt"
    )
    root = root_folder(root, wanted, lambda path: _fold_folder(path) is not None)
    if not (root / "aligned").is_dir():
        raise ValueError(
            f"data.root={root} has the fold files but no folder aligned; unpack "
            "aligned.tar.gz there. The faces of faces.tar.gz are not used."
        )
    label_of = {age: label for label, age in enumerate(AGES)}
    items: dict[str, Item] = {}
    skipped: list[tuple[str, str]] = []
    odd: collections.Counter[str] = collections.Counter()
    for fold in range(FOLDS):
        path = (_fold_folder(root) or root) / _SUBSETS[subset].format(fold)
        table = tables.read_table(path)
        user, image, face, age = (
            table.column(name)
            for name in ("user_id", "original_image", "face_id", "age")
        )
        for row in table.rows:
            name = f"landmark_aligned_face.{row[face]}.{row[image]}"
            file = root / "aligned" / row[user] / name
            id_ = relative(file, root)
            if row[age] not in label_of:
                odd[row[age] or "no age"] += 1
                skipped.append((id_, "faces whose age is none of the eight classes"))
            elif id_ in items:
                skipped.append((id_, "faces that the fold files name twice"))
            else:
                label = label_of[row[age]]
                items[id_] = Item(id_, file, label, FOLD.format(fold), row[user])
    notes = []
    if odd:
        most = [f"{age} {count}x" for age, count in odd.most_common(4)]
        notes.append(
            f"{odd.total()} faces with {len(odd)} odd ages were dropped: "
            f"{', '.join(most)}{', …' * (len(odd) > 4)}."
        )
    return Listing(tuple(AGES.values()), sorted(items.values()), skipped, notes)


def _fold_folder(path: pathlib.Path) -> pathlib.Path | None:
    """Where the fold files of a root lie: in it, or in a folder folds."""
    for folder in (path, path / "folds"):
        if (folder / _SUBSETS[""].format(0)).is_file():
            return folder
    return None


# --- RetinaMNIST ---

_FILE = "retinamnist.npz"
RETINAMNIST_MD5 = "bd4c0672f1bba3e3a89f0e4e876791e4"  # as published by MedMNIST


def scan_retinamnist(root: str | pathlib.Path) -> Listing:
    """RetinaMNIST, `retinamnist.npz` or the folder that holds it."""
    path = _retinamnist_file(root)
    try:
        files.check_unpacked_zip(path, path)
        # Without pickle: arrays only, nothing in the file is ever run.
        with np.load(path, allow_pickle=False) as arrays:
            names = {f"{split}_{k}" for split in SPLITS for k in ("images", "labels")}
            if missing := sorted(names - set(arrays.files)):
                raise ValueError(f"it has no {', '.join(missing)}")
            labels = {split: arrays[f"{split}_labels"] for split in SPLITS}
    except files.TooLarge:
        raise
    except (
        OSError,
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
        Item(
            f"{split}/{row:05d}", path, int(label), split, row=(f"{split}_images", row)
        )
        for split in SPLITS
        for row, label in enumerate(labels[split].reshape(-1))
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


def _retinamnist_file(root: str | pathlib.Path) -> pathlib.Path:
    path = pathlib.Path(root).expanduser()
    if path.is_file():
        return path
    wanted = f"{_FILE}, or the folder that holds it"
    return root_folder(root, wanted, lambda path: (path / _FILE).is_file()) / _FILE


# --- CLAP2015 ---

_CLAP_WANTED = (
    "the folder that holds the images and the lists of the three sets, "
    "{train,val,test}/ and {train,val,test}.csv"
)
_IMAGE = ("image", "filename", "file", "name", "image name")
_AGE = ("age", "mean", "mean age", "mean_age", "apparent age", "apparent_age")
_EYES = ("left_x", "left_y", "right_x", "right_y")


def scan_clap2015(
    root: str | pathlib.Path, *, bin: int = 1, landmarks: str = ""
) -> Listing:
    """CLAP2015 (apparent age, ICCV 2015): three sets of faces, three lists of ages.

        {train,val,test}/image_1.jpg, …       folders whose names hold these words
        train.csv, val.csv, test.csv          lists whose names, or folders, do
        image_1.jpg;20;3.2                    image, mean apparent age, deviation

    Lists may have a header and commas, semicolons or tabs. Faces are expected to be
    aligned; where they are not, a table of eye positions aligns them here. The class
    is floor(age / bin), counted over bins that occur.

    Args:
        root: The folder with the lists.
        bin: Years per class, 1 to 5.
        landmarks: Table with columns image, left_x, left_y, right_x and right_y, to
            align faces by their eyes; "" for faces that are aligned already.
    """
    if bin not in range(1, 6):
        raise ValueError(f"data.bin is {bin}; use one of 1, 2, 3, 4, 5.")
    root = root_folder(
        root, _CLAP_WANTED, lambda path: {"train", "test"} <= set(_lists(path))
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
            f"be {_CLAP_WANTED}."
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


def _split_of(*names: str) -> str | None:
    """The split that the first telling one of some names tells."""
    told = (s for name in names for s in SPLITS if s in name.lower())
    return next(told, None)


def _lists(root: pathlib.Path) -> dict[str, pathlib.Path]:
    """List of each split, in root or in the folder of a split."""
    found: dict[str, pathlib.Path] = {}
    below = [root / name for name in subfolders(root) if _split_of(name)]
    for folder in (root, *below):
        for path in sorted(folder.iterdir()):
            if path.suffix.lower() not in (".csv", ".txt") or is_hidden(path.name):
                continue
            split = _split_of(path.stem, folder.name if folder != root else "")
            if split:
                found.setdefault(split, path)
    return {split: found[split] for split in SPLITS if split in found}


def _images(root: pathlib.Path, split: str) -> dict[str, pathlib.Path]:
    """Image files of a split by name: in its folder, or anywhere below root."""
    folders = [name for name in subfolders(root) if _split_of(name) == split]
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
    known = [
        item._replace(eyes=eyes.get(item.id) or eyes.get(item.path.name))
        for item in items
    ]
    kept = [item for item in known if item.eyes]
    skipped += [(i.id, "images without eye positions") for i in known if not i.eyes]
    if not kept:
        raise ValueError(
            f"data.landmarks={landmarks} names none of the images, such as "
            f"{items[0].id}; its column image must hold their paths or names."
        )
    return kept
