"""Arrays by item on disk, written in parts so that an interruption loses one at most.

A store is a folder of `<part>.npy` with `<part>.json`, the names of its rows. The list
is written last, and whole or not at all: an array without one is not part of the store.
"""

import json
import pathlib
import uuid
from collections.abc import Sequence

import numpy as np

from cloc_jax.runtime.atomic_files import write_text


class FeatureStore:
    """What is known of each item, by the item's name."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._rows: dict[str, tuple[pathlib.Path, int]] = {}
        for listed in sorted(folder.glob("*.json")):
            self._index(listed)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def add(self, names: Sequence[str], rows: np.ndarray) -> None:
        """Writes a part: a row for each name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / uuid.uuid4().hex
        # An array that was cut short never gets a list, and is not read.
        np.save(part.with_suffix(".npy"), rows, allow_pickle=False)
        write_text(part.with_suffix(".json"), json.dumps(list(names)))
        self._index(part.with_suffix(".json"))

    def read(self, names: Sequence[str], *, in_memory: bool) -> "Rows":
        """The rows of these names, in their order."""
        return Rows([self._rows[name] for name in names], in_memory=in_memory)

    def _index(self, listed: pathlib.Path) -> None:
        array = listed.with_suffix(".npy")
        for row, name in enumerate(json.loads(listed.read_text())):
            self._rows[name] = (array, row)


class Rows:
    """Rows of several arrays as one, in memory or read from disk when asked for."""

    def __init__(self, places: Sequence[tuple[pathlib.Path, int]], *, in_memory: bool):
        files = {path: np.load(path, mmap_mode="r") for path, _ in places}
        self._places = [(files[path], row) for path, row in places]
        self._array = self._gather() if in_memory else None

    def __len__(self) -> int:
        return len(self._places)

    def __getitem__(self, index: int) -> np.ndarray:
        if self._array is not None:
            return self._array[index]
        array, row = self._places[index]
        return np.asarray(array[row])

    def all(self) -> np.ndarray:
        """Every row, [row, …]."""
        return self._gather() if self._array is None else self._array

    def _gather(self) -> np.ndarray:
        return np.stack([array[row] for array, row in self._places])
