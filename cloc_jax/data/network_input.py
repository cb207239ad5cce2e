"""From an image file or array to what a network sees in evaluation."""

import pathlib
from typing import NamedTuple

import numpy as np

from cloc_jax.data import augment, images


class NetworkInput(NamedTuple):
    """How images are prepared; what each setting does is in `images.prepare`."""

    size: tuple[int, int]  # with the room that a random crop takes away
    channels: int
    crop: tuple[int, int] | None = None
    equalize: bool = False
    random_crop: float = 0.0  # of training; evaluation sees the centre
    max_pixels: int = images.MAX_PIXELS
    max_bytes: int = images.MAX_BYTES  # of a file

    def of_file(self, path: str | pathlib.Path) -> np.ndarray:
        """The image of a file, uint8 [height, width, channels]."""
        return self._prepared(
            images.read(
                path,
                channels=self.channels,
                max_pixels=self.max_pixels,
                max_bytes=self.max_bytes,
            )
        )

    def of_array(self, array: np.ndarray) -> np.ndarray:
        """An image that is an array already, as `of_file` its PNG."""
        return self._prepared(images.from_array(array, channels=self.channels))

    def _prepared(self, image: np.ndarray) -> np.ndarray:
        whole = images.prepare(
            image, size=self.size, crop=self.crop, equalize=self.equalize
        )
        return augment.centre(whole, self.random_crop)
