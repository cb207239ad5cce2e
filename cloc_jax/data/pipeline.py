"""From a source of images to batches on the device, read by Grain's threads.

A source has `ids`, `labels` and images by index. A batch is a dict of arrays: "id" (the
item's index in its split), "image" (uint8, a tuple of them with several views), "label"
and "mask" (False for padding).
"""

import itertools
import os
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Protocol, runtime_checkable

import grain
import jax
import numpy as np

from cloc_jax.data import augment as augmentation
from cloc_jax.data import images
from cloc_jax.data.samplers import BatchPlan

Batch = dict[str, Any]
# (item, generator) -> one random view of the item
Draw = Callable[[int, np.random.Generator], np.ndarray]
PREFETCH = 2  # batches on their way to the device while a step computes


@runtime_checkable
class Source(Protocol):
    """Random access to images, with their labels known without decoding."""

    @property
    def ids(self) -> Sequence[str]: ...
    @property
    def labels(self) -> np.ndarray: ...
    def __len__(self) -> int: ...
    def __getitem__(self, index: int) -> np.ndarray: ...


def stamps(source: Any) -> list[str]:
    """A mark of each item's pixels, without reading them: what a cache goes by.

    A file is known by its name, size and time of change; a source without files has
    `stamps` of its own.
    """
    source = getattr(source, "source", source)  # as it comes, not as prepared
    own = getattr(source, "stamps", None)
    if own is not None:
        return list(own)
    marks = []
    for item, path in zip(source.ids, source.paths, strict=True):
        known = os.stat(path)
        marks.append(f"{item} {known.st_size} {known.st_mtime_ns}")
    return marks


class Share(NamedTuple):
    """The rows of every batch that this process reads: one of several equal parts."""

    part: int
    parts: int


WHOLE = Share(0, 1)


class Prepared:
    """A source whose images are cropped, equalised and resized, and kept in memory.

    Kept while they fit into `cache_bytes` (decoding costs far more than augmenting);
    a source that would not fit is read anew each time. Where augmentation cuts away a
    random part, `size` has room for it: an item is the centre, `whole` is all of it.
    """

    def __init__(
        self,
        source: Source,
        *,
        size: tuple[int, int],
        crop: tuple[int, int] | None,
        equalize: bool,
        channels: int,
        cache_bytes: int,
        random_crop: float = 0.0,
    ):
        self.ids, self.labels = source.ids, source.labels
        self.paths = getattr(source, "paths", None)  # where the images are files
        self.source = source
        self._prepare: dict[str, Any] = {
            "size": size,
            "crop": crop,
            "equalize": equalize,
        }
        self._random_crop = random_crop
        fits = len(source) * size[0] * size[1] * channels <= cache_bytes
        self._kept: dict[int, np.ndarray] | None = {} if fits else None

    def __len__(self) -> int:
        return len(self.source)

    def __getitem__(self, index: int) -> np.ndarray:
        return augmentation.centre(self.whole(index), self._random_crop)

    @property
    def is_kept(self) -> bool:
        """Whether images are kept in memory once they were read."""
        return self._kept is not None

    def whole(self, index: int) -> np.ndarray:
        """The image with the room that a random crop needs."""
        if self._kept is not None and index in self._kept:
            return self._kept[index]
        image = images.prepare(self.source[index], **self._prepare)
        if self._kept is not None:
            # A crop is a view, which would keep the whole image in memory.
            image = np.ascontiguousarray(image)
            self._kept[index] = image
        return image


def augmented(source: Source, augment: augmentation.Augment) -> Draw:
    """Views of a source's images: each changed at random."""
    whole = getattr(source, "whole", source.__getitem__)
    return lambda item, rng: augmentation.apply(augment, whole(item), rng)


def generator(place: Sequence[int]) -> np.random.Generator:
    """Random numbers for one place in a run: seed, stage, and number of the row."""
    return np.random.default_rng(tuple(place))


def training_batches(
    source: Source,
    plan: BatchPlan,
    *,
    draw: Draw,
    views: int,
    seed: Sequence[int],
    first_step: int,
    threads: int,
    steps: int | None = None,
    share: Share = WHOLE,
    place: Callable[[Batch], Batch] = jax.device_put,
) -> Iterator[Batch]:
    """Batches `first_step`, `first_step` + 1, … on the device, `steps` or without end.

    `draw` makes a view of an item. Only this process's share of the rows is read;
    `place` makes whole batches of them.
    """
    rows = plan.batch_size // share.parts

    def element(position: int) -> Batch:
        step, row = divmod(position, rows)
        row += share.part * rows
        item = int(plan.batch(step)[row])
        # Seeded by its place in the run, so that neither threads nor processes
        # change an image.
        rng = generator((*seed, step * plan.batch_size + row))
        drawn = tuple(draw(item, rng) for _ in range(views))
        return _element(source, item, drawn[0] if views == 1 else drawn)

    # Longer than any run; Grain wants a length.
    endless = grain.MapDataset.range(2**62 // rows * rows)
    batches = endless.map(element).batch(rows)
    last = None if steps is None else first_step + steps
    return _on_device(batches.slice(slice(first_step, last)), threads, place)


def evaluation_batches(
    source: Source,
    batch_size: int,
    *,
    threads: int,
    share: Share = WHOLE,
    place: Callable[[Batch], Batch] = jax.device_put,
) -> Iterator[Batch]:
    """Every item once, in order; the last batch is filled up with masked copies."""
    rows = batch_size // share.parts
    num_batches = -(-len(source) // batch_size)

    def element(position: int) -> Batch:
        batch, row = divmod(position, rows)
        position = batch * batch_size + share.part * rows + row
        item = min(position, len(source) - 1)
        return _element(source, item, source[item], position < len(source))

    batches = grain.MapDataset.range(num_batches * rows).map(element).batch(rows)
    return _on_device(batches, threads, place)


def _element(source: Source, item: int, image, is_real: bool = True) -> Batch:
    return {
        "id": np.int32(item),
        "image": image,
        "label": np.int32(source.labels[item]),
        "mask": np.bool_(is_real),
    }


def _on_device(batches: grain.MapDataset, threads: int, place) -> Iterator[Batch]:
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    placed = map(place, batches.to_iter_dataset(options))
    ahead = list(itertools.islice(placed, PREFETCH))
    while ahead:
        yield ahead.pop(0)
        ahead.extend(itertools.islice(placed, 1))
