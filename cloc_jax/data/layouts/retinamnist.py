"""RetinaMNIST as downloaded: one file of arrays, `retinamnist.npz`."""

import hashlib
import pathlib
import zipfile
import zlib

import numpy as np

from cloc_jax.data.layouts.listing import Item, Listing
from cloc_jax.runtime import files

RANKS = ("0", "1", "2", "3", "4")
FILE = "retinamnist.npz"
MD5 = "bd4c0672f1bba3e3a89f0e4e876791e4"  # as published by MedMNIST
SPLITS = ("train", "val", "test")
KINDS = ("images", "labels")
WANTED = f"{FILE}, or the folder that holds it"


def scan(root: str | pathlib.Path) -> Listing:
    """Lists RetinaMNIST with its own splits."""
    path = _find(root)
    try:
        files.check_unpacked_zip(path, path)
        # Without pickle: arrays only, nothing in the file is ever run.
        with np.load(path, allow_pickle=False) as arrays:
            names = {f"{split}_{kind}" for split in SPLITS for kind in KINDS}
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
            id=f"{split}/{row:05d}",
            path=path,
            label=int(label),
            split=split,
            row=(f"{split}_images", row),
        )
        for split in SPLITS
        for row, label in enumerate(labels[split].reshape(-1))
    ]
    if any(not 0 <= item.label < len(RANKS) for item in items):
        raise ValueError(f"{path} has labels beyond {RANKS[0]} to {RANKS[-1]}.")
    notes = []
    found = hashlib.md5(path.read_bytes(), usedforsecurity=False).hexdigest()
    if path.name == FILE and found != MD5:
        notes.append(f"Warning: the MD5 of {path} is {found}; published is {MD5}.")
    return Listing(RANKS, sorted(items), [], notes)


def _find(root: str | pathlib.Path) -> pathlib.Path:
    if not str(root):
        raise ValueError(f"data.root is empty; give {WANTED}.")
    path = pathlib.Path(root).expanduser()
    if path.is_dir():
        inside = path / FILE
        below = sorted(path.glob(f"*/{FILE}"))
        if not inside.is_file() and below:
            raise ValueError(
                f"data.root={root} does not hold {FILE}; did you mean "
                f"data.root={below[0].parent}?"
            )
        path = inside
    if not path.is_file():
        raise FileNotFoundError(
            f"data.root={root}: there is no {path}; it should be {WANTED}."
        )
    return path
