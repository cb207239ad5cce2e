"""Random access to images: the protocol that every source follows, and its wrappers.

A source has names, labels and images by index. The datasets bring `Knees` and
`Records`; everything here wraps another source and passes on what it does not change.
"""

import copy
import os
import pathlib
import zlib
from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

import numpy as np

from cloc_jax.data import augment as augmentation
from cloc_jax.data.images import NetworkInput

# (item, generator) -> one random view of the item
Draw = Callable[[int, np.random.Generator], np.ndarray]


@runtime_checkable
class Source(Protocol):
    """Images by index, with names and labels known without decoding."""

    ids: Sequence[str]
    labels: np.ndarray  # int [item], index of the rank
    paths: Sequence[pathlib.Path] | None = None  # where images are files of their own
    contents: Sequence[str] | None = None  # a digest of each item's file, if there are
    stamps: Sequence[str] = ()  # a fingerprint of each item's pixels: a cache's key
    # How much each item counts in a training loss, float32; None for all alike.
    weights: np.ndarray | None = None

    def __len__(self) -> int:
        return len(self.ids)

    def __getitem__(self, index: int) -> np.ndarray:
        """The image as evaluation sees it."""
        ...

    def whole(self, index: int) -> np.ndarray:
        """The image with the room that a random crop needs."""
        return self[index]

    def original(self) -> "Source":
        """The images as they come, before they are prepared."""
        return self

    def replaced(self, **fields: np.ndarray | None) -> "Source":
        """The same items with other labels or weights."""
        other = copy.copy(self)
        vars(other).update(fields)
        return other


class Wrapper(Source):
    """Other images of the items of a source."""

    def __init__(self, source: Source):
        self.ids, self.labels, self.paths = source.ids, source.labels, source.paths
        self.contents, self.stamps = source.contents, source.stamps
        self.weights, self._source = source.weights, source

    def original(self) -> Source:
        return self._source.original()


class Subset(Source):
    """Some items of a source, in the given order, to be looked at."""

    def __init__(self, source: Source, items: Sequence[int] | np.ndarray):
        self._source, self._items = source, [int(i) for i in items]
        self.ids = [source.ids[i] for i in self._items]
        self.labels = np.asarray(source.labels)[self._items]

    def __getitem__(self, index: int) -> np.ndarray:
        return self._source[self._items[index]]


class Prepared(Wrapper):
    """A source whose images are cropped, equalised and resized, and kept in memory.

    Kept while they fit into `cache_bytes` (decoding costs far more than augmenting);
    a source that would not fit is read anew each time. Where augmentation cuts away a
    random part, the size has room for it: an item is the centre, `whole` is all of it.
    """

    def __init__(self, source: Source, how: NetworkInput, *, cache_bytes: int):
        super().__init__(source)
        self._how = how
        height, width = how.size
        self.is_kept = len(source) * height * width * how.channels <= cache_bytes
        self._kept: dict[int, np.ndarray] = {}

    def __getitem__(self, index: int) -> np.ndarray:
        return self._how.centre(self.whole(index))

    def whole(self, index: int) -> np.ndarray:
        """The image with the room that a random crop needs."""
        if index in self._kept:
            return self._kept[index]
        image = self._how.prepare(self._source[index])
        if self.is_kept:
            # A crop is a view, which would keep the whole image in memory.
            image = np.ascontiguousarray(image)
            self._kept[index] = image
        return image


class KeptFeatures(Wrapper):
    """What frozen parts of an encoder make of a source's images.

    `views[0]` holds the features of the clean images, each further view those of
    images augmented once; all [item, …].
    """

    def __init__(self, source: Source, views: Sequence[Any]):
        super().__init__(source)
        self.views = views

    def __getitem__(self, index: int) -> np.ndarray:
        return self.views[0][index]

    def draw(self, item: int, rng: np.random.Generator) -> np.ndarray:
        """The features of one of the item's views."""
        one = int(rng.integers(len(self.views))) if len(self.views) > 1 else 0
        return self.views[one][item]


class AugmentedOnce(Wrapper):
    """One augmented view of every image, the same each time it is asked for."""

    def __init__(self, source: Source, view: int, augment: augmentation.Augment):
        super().__init__(source)
        self._view = view
        self._draw = augmented(source, augment)

    def __getitem__(self, index: int) -> np.ndarray:
        seed = (self._view, zlib.crc32(os.fsencode(self.ids[index])))
        return self._draw(index, np.random.default_rng(seed))


class InMemory(Source):
    """Arrays that are read already, without known labels."""

    def __init__(self, arrays: Sequence[np.ndarray], ids: Sequence[str]):
        self.ids = ids
        self.labels = np.zeros(len(arrays), np.int32)
        self._arrays = arrays

    def __getitem__(self, index: int) -> np.ndarray:
        return self._arrays[index]


def augmented(source: Source, augment: augmentation.Augment) -> Draw:
    """Views of a source's images: each changed at random."""
    return lambda item, rng: augmentation.apply(augment, source.whole(item), rng)
