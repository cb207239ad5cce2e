"""Adience as downloaded: five fold files beside the folder of aligned faces.

    fold_0_data.txt … fold_4_data.txt, fold_frontal_0_data.txt …
    aligned/<user_id>/landmark_aligned_face.<face_id>.<original_image>

Folds share no user. Ages that are not exactly one of the eight classes are dropped, as
in the lists of Levi and Hassner.
"""

import collections
import pathlib

from cloc_jax.data.layouts import table_files
from cloc_jax.data.layouts.listing import FOLD, Item, Listing, official_root, relative

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
SUBSETS = {"": "fold_{}_data.txt", "frontal": "fold_frontal_{}_data.txt"}
WANTED = (
    "the folder that holds aligned (unpacked from aligned.tar.gz) and the files "
    "fold_0_data.txt to fold_4_data.txt"
)


def scan(root: str | pathlib.Path, *, subset: str = "") -> Listing:
    """Lists Adience; each user is a group.

    Args:
        root: The folder with the fold files.
        subset: "frontal" for the lists of near-frontal faces, "" for all.
    """
    if subset not in SUBSETS:
        raise ValueError(
            f"data.subset is {subset!r}; Adience has 'frontal', or '' for all faces."
        )
    root = official_root(root, WANTED, lambda path: _fold_folder(path) is not None)
    lists = _fold_folder(root) or root
    if not (root / "aligned").is_dir():
        raise ValueError(
            f"data.root={root} has the fold files but no folder aligned; unpack "
            "aligned.tar.gz there. The faces of faces.tar.gz are not used."
        )
    ranks = tuple(AGES.values())
    label_of = {age: label for label, age in enumerate(AGES)}
    items: dict[str, Item] = {}
    skipped: list[tuple[str, str]] = []
    odd: collections.Counter[str] = collections.Counter()
    for fold in range(FOLDS):
        path = lists / SUBSETS[subset].format(fold)
        table = table_files.read(path)
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
    return Listing(ranks, sorted(items.values()), skipped, notes)


def _fold_folder(path: pathlib.Path) -> pathlib.Path | None:
    """Where the fold files of a root lie: in it, or in a folder folds."""
    for folder in (path, path / "folds"):
        if (folder / SUBSETS[""].format(0)).is_file():
            return folder
    return None
