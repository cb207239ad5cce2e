"""KOA as downloaded: `kneeKL224/{train,val,test}/{0,1,2,3,4}/<patient><L or R>.png`."""

import pathlib

from cloc_jax.data.layouts import folder
from cloc_jax.data.layouts.listing import Listing, official_root, subfolders

RANKS = ("0", "1", "2", "3", "4")  # Kellgren-Lawrence grades
WANTED = (
    "the folder that holds train, val and test, each with the folders 0 to 4, such as "
    "KneeXrayData/ClsKLData/kneeKL224"
)


def scan(root: str | pathlib.Path, *, group_pattern: str = r"^(\d+)") -> Listing:
    """Lists KOA; both knees of a patient are one group.

    Args:
        root: The folder with the three splits.
        group_pattern: Finds the patient in a file name: its digits; the letter is the
            side.
    """
    root = official_root(root, WANTED, _is_root)
    return folder.scan(root, order=RANKS, group_pattern=group_pattern)


def _is_root(path: pathlib.Path) -> bool:
    train = path / "train"
    return train.is_dir() and set(RANKS) <= set(subfolders(train))
