"""Historical colour images as downloaded: `decade_database/{1930s, …, 1970s}/*`."""

import pathlib

from cloc_jax.data.layouts import folder
from cloc_jax.data.layouts.listing import Listing, official_root, subfolders

RANKS = ("1930s", "1940s", "1950s", "1960s", "1970s")
WANTED = (
    f"the folder that holds {', '.join(RANKS)}: "
    "HistoricalColor-ECCV2012/data/imgs/decade_database"
)


def scan(root: str | pathlib.Path) -> Listing:
    """Lists HID. It ships no splits: which images are for testing is drawn."""
    root = official_root(root, WANTED, lambda path: set(RANKS) <= set(subfolders(path)))
    return folder.scan(root, order=RANKS)
