"""BRACS regions as downloaded: `latest_version/{train,val,test}/<class>/*.png`."""

import pathlib

from cloc_jax.data.layouts import folder
from cloc_jax.data.layouts.listing import Listing, official_root, subfolders

FOLDERS = ("0_N", "1_PB", "2_UDH", "3_FEA", "4_ADH", "5_DCIS", "6_IC")
WANTED = (
    "the folder that holds train, val and test, each with the folders "
    f"{', '.join(FOLDERS)}: BRACS_RoI/latest_version"
)


def scan(root: str | pathlib.Path) -> Listing:
    """Lists BRACS; the regions of one slide are one group."""
    root = official_root(root, WANTED, _is_root)
    # BRACS_<slide>_<class>_<number>.png
    found = folder.scan(root, order=FOLDERS, group_pattern=r"^BRACS_(\d+)_")
    return found._replace(ranks=tuple(name[2:] for name in FOLDERS))


def _is_root(path: pathlib.Path) -> bool:
    train = path / "train"
    return train.is_dir() and set(FOLDERS) <= set(subfolders(train))
