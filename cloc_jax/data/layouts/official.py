"""Official downloads: where their images and grades lie.

Keyword arguments of a scan are settings of the dataset.
"""

import math
import pathlib
from collections.abc import Sequence

from cloc_jax.config import check_range
from cloc_jax.data.layouts import rank_folders, tables
from cloc_jax.data.layouts.listing import (
    SPLITS,
    Item,
    Listing,
    comma,
    image_files,
    place_by_hash,
    relative,
    root_folder,
)
from cloc_jax.runtime import files

GRADES = ("0", "1", "2", "3", "4")  # of KOA (Kellgren-Lawrence), IDRiD, RetinaMNIST
FOLDS = 5  # of Adience and HID, each of which is the test part once

# --- one folder per rank ---

DECADES = ("1930s", "1940s", "1950s", "1960s", "1970s")
DRAWN = 50  # test images of each decade
LESIONS = ("0_N", "1_PB", "2_UDH", "3_FEA", "4_ADH", "5_DCIS", "6_IC")


def scan_koa(root: str | pathlib.Path, *, group_pattern: str = r"^(\d+)") -> Listing:
    """KOA: `kneeKL224/{train,val,test}/{0,1,2,3,4}/<patient><L or R>.png`.

    The letter is the side: both knees of a patient are one group.
    """
    wanted = "the folder kneeKL224, which holds train, val and test with 0 to 4 in each"
    root = root_folder(root, wanted, [f"train/{grade}" for grade in GRADES])
    return rank_folders.scan(root, order=GRADES, group_pattern=group_pattern)


def scan_hid(root: str | pathlib.Path, *, fold: int = 0) -> Listing:
    """HID: `decade_database/{1930s, …, 1970s}/*`; `draw_test` chooses the test part."""
    wanted = f"the folder decade_database, which holds {comma(DECADES)}"
    check_range("data", 0, FOLDS - 1, fold=fold)
    listing = rank_folders.scan(root_folder(root, wanted, DECADES), order=DECADES)
    return listing._replace(drawn=fold)


def draw_test(items: Sequence[Item], fold: int) -> list[Item]:
    """Items with the first 50 of each rank, by the hash of fold and id, as test.

    The paper's own draws are not published.
    """
    items = sorted(items, key=lambda item: place_by_hash(f"{fold}/{item.id}"))
    divided = []
    for label in sorted({item.label for item in items}):
        ordered = [item for item in items if item.label == label]
        divided += [item._replace(split="test") for item in ordered[:DRAWN]]
        divided += [item._replace(split="train") for item in ordered[DRAWN:]]
    return sorted(divided)


def scan_bracs(root: str | pathlib.Path) -> Listing:
    """BRACS: `latest_version/{train,val,test}/<class>/BRACS_<slide>_<class>_<n>.png`.

    The regions of one slide are one group.
    """
    wanted = f"the folder latest_version, with {comma(LESIONS)} in train, val and test"
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
    for split, (folder, name) in _IDRID.items():
        table = tables.read_table(root / name)
        table.check("image name", "retinopathy grade")
        grades = {}
        for place, row in table.rows:
            grade = row["retinopathy grade"].strip()
            if grade not in GRADES:
                raise ValueError(
                    f"{place}: the grade is {grade!r}; use one of {comma(GRADES)}."
                )
            grades[row["image name"].strip().lower()] = GRADES.index(grade)
        for path in image_files(root / folder, skipped, root):
            label, id_ = grades.get(path.stem.lower()), relative(path, root)
            if label is None:
                skipped.append((id_, "without a grade in the table"))
            else:
                items.append(Item(id_, path, label, split))
    return Listing(GRADES, sorted(items), skipped, [])


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


def scan_adience(root: str | pathlib.Path, *, fold: int = 0) -> Listing:
    """Adience: five fold files beside the folder of aligned faces; users are groups.

        fold_0_data.txt … fold_4_data.txt
        aligned/<user_id>/landmark_aligned_face.<face_id>.<original_image>

    Folds share no user, and one of them is the test part. Ages that are not exactly one
    of the eight classes are skipped, as in the lists of Levi and Hassner.
    """
    lists = [f"fold_{number}_data.txt" for number in range(FOLDS)]
    wanted = "the folder that holds aligned (unpacked) and the fold files"
    check_range("data", 0, FOLDS - 1, fold=fold)
    root = root_folder(root, wanted, ["aligned", *lists])
    label_of = {age: label for label, age in enumerate(AGES)}
    items: dict[str, Item] = {}
    skipped: list[tuple[str, str]] = []
    for number, name in enumerate(lists):
        split = "test" if number == fold else "train"
        table = tables.read_table(root / name)
        table.check("user_id", "original_image", "face_id", "age")
        for _, row in table.rows:
            user, age = row["user_id"], row["age"]
            aligned = f"landmark_aligned_face.{row['face_id']}.{row['original_image']}"
            file = root / "aligned" / user / aligned
            id_ = relative(file, root)
            if age in label_of:  # a few faces are named twice
                items[id_] = Item(id_, file, label_of[age], split, user)
            else:
                skipped.append((id_, "whose age is none of the eight classes"))
    return Listing(tuple(AGES.values()), sorted(items.values()), skipped, [])


# --- RetinaMNIST ---

_FILE = "retinamnist.npz"


def scan_retinamnist(root: str | pathlib.Path) -> Listing:
    """RetinaMNIST, `retinamnist.npz` or the folder that holds it."""
    path = pathlib.Path(root).expanduser()
    if not path.is_file():
        path = root_folder(root, f"{_FILE}, or the folder that holds it", [_FILE])
        path /= _FILE
    arrays = files.read_arrays(path, remedy="Download it again.")
    wanted = [f"{split}_{kind}" for split in SPLITS for kind in ("images", "labels")]
    if missing := [name for name in wanted if name not in arrays]:
        raise ValueError(
            f"{path} is not RetinaMNIST as MedMNIST ships it: it has no "
            f"{comma(missing)}; download it again."
        )
    items = [
        Item(f"{split}/{row:05d}", path, label, split, row=(f"{split}_images", row))
        for split in SPLITS
        for row, label in enumerate(map(int, arrays[f"{split}_labels"].reshape(-1)))
    ]
    return Listing(GRADES, sorted(items), [], [])


# --- CLAP2015 ---


def scan_clap2015(root: str | pathlib.Path, *, bin: int = 1) -> Listing:
    """CLAP2015 (apparent age, ICCV 2015): three sets of faces, three lists of ages.

        {train,val,test}/image_1.jpg, …
        train.csv, val.csv, test.csv          image_1.jpg;20;3.2

    A line has an image, its mean apparent age and the deviation. Faces are expected to
    be aligned. The class is floor(age / bin), counted over bins that occur.
    """
    if bin not in range(1, 6):
        raise ValueError(f"data.bin is {bin}; use one of 1, 2, 3, 4, 5.")
    wanted = "the folder that holds train, val, test and a list of each (train.csv, …)"
    root = root_folder(root, wanted, [*SPLITS, *(f"{split}.csv" for split in SPLITS)])
    items: list[Item] = []  # labelled by the number of the bin
    for split in SPLITS:
        columns = ("image", "age", "deviation")
        table = tables.read_table(root / f"{split}.csv", columns=columns)
        for place, row in table.rows:
            file = root / split / row["image"]
            if not rank_folders.NUMBER.fullmatch(row["age"].strip()):
                raise ValueError(
                    f"{place}: the age is {row['age']!r}; each line must be an image, "
                    "its mean apparent age and the deviation."
                )
            label = math.floor(float(row["age"]) / bin)
            items.append(Item(relative(file, root), file, label, split))
    bins = sorted({item.label for item in items})
    items = [item._replace(label=bins.index(item.label)) for item in items]
    ranks = tuple(
        str(b) if bin == 1 else f"{b * bin}-{b * bin + bin - 1}" for b in bins
    )
    return Listing(ranks, sorted(items), [], [f"{len(ranks)} classes of {bin} years."])
