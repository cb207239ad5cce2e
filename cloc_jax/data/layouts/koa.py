"""KOA as downloaded: `kneeKL224/{train,val,test}/{0,1,2,3,4}/<patient><L or R>.png`."""

import pathlib

from cloc_jax.data.layouts import folder
from cloc_jax.data.layouts.listing import Listing, official_root, subfolders

RANKS = ("0", "1", "2", "3", "4")  # Kellgren-Lawrence grades
WANTED = (
    "the folder that holds train, val and test, each with the folders 0 to 4, such as "
    "KneeXrayData/ClsKLData/kneeKL224"
)


def scan(root: str | pathlib.Path) -> Listing:
    """Lists KOA; both knees of a patient are one group."""
    root = official_root(root, WANTED, _is_root)
    # The digits of a file name are the patient, the letter is the side.
    return folder.scan(root, order=RANKS, group_pattern=r"^(\d+)")


def _is_root(path: pathlib.Path) -> bool:
    train = path / "train"
    return train.is_dir() and set(RANKS) <= set(subfolders(train))
