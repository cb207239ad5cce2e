"""Arrays by item on disk, written in parts so that an interruption loses one at most.

A store is a folder of `<part>.npy` with `<part>.json`: the names of its rows and the
array's checksum. The list is written last, and whole or not at all: an array without
one is not part of the store. A part that is damaged is removed, and its items count as
not known, so that they are computed again.
"""

import pathlib
import uuid
from collections.abc import Callable, Sequence

import numpy as np

from cloc_jax.runtime import errors, files
from cloc_jax.runtime.console import console


def _say(text: str) -> None:
    console.print(text, soft_wrap=True)


class FeatureStore:
    """What is known of each item, by the item's name.

    `say` is told, in a line, of parts that are damaged.
    """

    def __init__(self, folder: pathlib.Path, say: Callable[[str], None] = _say):
        self._folder, self._say = folder, say
        self._rows: dict[str, tuple[pathlib.Path, int]] = {}
        self._parts: set[pathlib.Path] = set()
        self.look_again()

    def look_again(self) -> None:
        """Finds what others have added since."""
        for listed in sorted(set(self._folder.glob("*.json")) - self._parts):
            try:
                self._index(listed, _checked(listed))
            except FileNotFoundError:
                continue  # damaged, and another process removed it just now
            except ValueError as error:
                self._say(f"{error} It is computed again.")
                listed.unlink(missing_ok=True)
                listed.with_suffix(".npy").unlink(missing_ok=True)

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def add(self, names: Sequence[str], rows: np.ndarray) -> None:
        """Writes a part: a row for each name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / uuid.uuid4().hex
        array = part.with_suffix(".npy")
        # An array that was cut short never gets a list, and is not read.
        with errors.naming(array):
            np.save(array, rows, allow_pickle=False)
        about = {"names": list(names), "sha256": files.sha256(array)}
        files.write_sealed(part.with_suffix(".json"), about)
        self._index(part.with_suffix(".json"), list(names))

    def read(self, names: Sequence[str], *, in_memory: bool) -> "Rows":
        """The rows of these names, in their order."""
        return Rows([self._rows[name] for name in names], in_memory=in_memory)

    def _index(self, listed: pathlib.Path, names: Sequence[str]) -> None:
        self._parts.add(listed)
        array = listed.with_suffix(".npy")
        for row, name in enumerate(names):
            self._rows[name] = (array, row)


def _checked(listed: pathlib.Path) -> list[str]:
    """The names of a part's rows, once its array was found to be as it was written."""
    array, text = listed.with_suffix(".npy"), listed.read_bytes()
    try:
        about = files.unsealed(text)
        names = list(about["names"])
        if not all(isinstance(name, str) for name in names):
            raise ValueError("its names are no list of texts")
    except (ValueError, KeyError, TypeError) as error:
        raise files.Damaged(listed, str(error), "") from None
    if "sha256" in about:
        files.check_digest(array, about["sha256"], remedy="")
    try:
        rows = np.load(array, mmap_mode="r", allow_pickle=False)
    except (OSError, ValueError) as error:
        raise files.Damaged(array, str(error), "") from None
    if len(rows) != len(names):
        raise files.Damaged(array, f"{len(rows)} rows, not {len(names)}", "")
    return names


class Rows:
    """Rows of several arrays as one, in memory or read from disk when asked for."""

    def __init__(self, places: Sequence[tuple[pathlib.Path, int]], *, in_memory: bool):
        arrays = {path: np.load(path, mmap_mode="r") for path, _ in places}
        self._places = [(arrays[path], row) for path, row in places]
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
