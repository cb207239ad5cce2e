"""Random access to prepared images: what the pipeline reads a split from."""

import pathlib
from collections.abc import Sequence

import numpy as np

from cloc_jax.data import images
from cloc_jax.data.prepared import record_store
from cloc_jax.data.prepared.record_store import Preparation
from cloc_jax.data.source import Source
from cloc_jax.runtime.files import Damaged


class Records(Source):
    """Source over some of the records of a preparation.

    Attributes:
        ids: Name of each image.
        labels: Rank of each, int32 [n].
        paths: File of each, or None where images are not files of their own.
    """

    def __init__(
        self,
        preparation: Preparation,
        ids: Sequence[str],
        labels: Sequence[int] | np.ndarray,
        *,
        paths: Sequence[pathlib.Path] | None,
        channels: int,
        max_pixels: int = images.MAX_PIXELS,
    ):
        # Imported late, as it takes a second.
        from cloc_jax.data.prepared import tfds_builder

        self.ids = list(ids)
        self.labels = np.asarray(labels, np.int32)
        self.paths = None if paths is None else list(paths)
        self._folder = preparation.path
        self._contents = [preparation.contents[id_] for id_ in self.ids]
        self._positions = [preparation.positions[id_] for id_ in self.ids]
        try:
            self._records = tfds_builder.read(preparation.path)
        except Exception as error:  # whatever type the reader gives to what it finds
            raise self._damaged("its records", error) from error
        self._decode = {"channels": channels, "max_pixels": max_pixels}

    def __getitem__(self, index: int) -> np.ndarray:
        """Pixels of one image, uint8 [height, width, channels], as stored."""
        try:
            data = self._records[self._positions[index]]["image"]
        except Exception as error:  # whatever type the reader gives to what it finds
            raise self._damaged(f"the record of {self.ids[index]}", error) from error
        return images.decode(data, name=self.ids[index], **self._decode)

    def _damaged(self, what: str, error: Exception) -> Damaged:
        """The error of records that cannot be read; the next start makes all anew."""
        record_store.forget(self._folder)
        lines = str(error).strip().splitlines() or [type(error).__name__]
        return Damaged(
            self._folder,
            f"{what} cannot be read ({lines[0][:200]})",
            "Start again: the images are then prepared anew.",
        )

    def contents(self) -> list[str]:
        return self._contents

    def __repr__(self) -> str:
        return f"Records({len(self)} images)"
