"""From a source of images to batches on the device, read by Grain's threads.

A batch is a dict of arrays: "id" (the item's index in its split), "image" (uint8, a
tuple of them with several views), "label", "mask" (False for padding), and "weight"
where items differ in it. Where a sampler's rows hold several items, "id", "label" and
"weight" are [row, item], and "image" is a tuple of every item's views.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import grain
import jax
import numpy as np

from cloc_jax.data.samplers import Sampler
from cloc_jax.data.source import Draw, KeptFeatures, Source

Batch = dict[str, Any]
PREFETCH = 2  # batches on their way to the device while a step computes


def training_batches(
    source: Source,
    sampler: Sampler,
    *,
    draws: Sequence[Draw],
    seed: Sequence[int],
    first_step: int,
    threads: int,
    steps: int | None = None,
    share: tuple[int, int] = (0, 1),
    place: Callable[[Batch], Batch] = jax.device_put,
) -> Iterator[Batch]:
    """Batches `first_step`, `first_step` + 1, … on the device, `steps` or without end.

    `draws` makes the views of an item, one function per view. Only this process's
    share of the rows is read, as (part, number of parts); `place` makes whole batches.
    """
    part, parts = share
    rows = sampler.batch_size // parts

    def element(position: int) -> Batch:
        step, row = divmod(position, rows)
        row += part * rows
        items = sampler.batch(step)[row]
        # Seeded by its place in the run, whatever the threads and processes.
        rng = np.random.default_rng((*seed, step * sampler.batch_size + row))
        drawn = tuple(
            draw(int(item), rng) for item in np.atleast_1d(items) for draw in draws
        )
        return _element(source, items, drawn[0] if len(drawn) == 1 else drawn)

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
    share: tuple[int, int] = (0, 1),
    place: Callable[[Batch], Batch] = jax.device_put,
) -> Iterator[Batch]:
    """Every item once, in order; the last batch is filled up with masked copies."""
    part, parts = share
    rows = batch_size // parts
    num_batches = -(-len(source) // batch_size)

    def gathered(start: int) -> Batch:
        places = np.arange(start, start + rows)
        items = np.minimum(places, len(source) - 1)
        features = np.stack([source[item] for item in items.tolist()])
        return _element(source, items, features, places < len(source))

    def element(position: int) -> Batch:
        batch, row = divmod(position, rows)
        position = batch * batch_size + part * rows + row
        item = min(position, len(source) - 1)
        return _element(source, item, source[item], position < len(source))

    if isinstance(source, KeptFeatures):  # faster without threads
        starts = range(part * rows, num_batches * batch_size, batch_size)
        return (place(gathered(start)) for start in starts)

    batches = grain.MapDataset.range(num_batches * rows).map(element).batch(rows)
    return _on_device(batches, threads, place)


def _element(source: Source, items: Any, image: Any, is_real: Any = True) -> Batch:
    element = {
        "id": np.asarray(items, np.int32),
        "image": image,
        "label": np.asarray(source.labels[items], np.int32),
        "mask": np.bool_(is_real),
    }
    if source.weights is not None:
        element["weight"] = source.weights[items]
    return element


def _on_device(batches: grain.MapDataset, threads: int, place) -> Iterator[Batch]:
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    placed = map(place, batches.to_iter_dataset(options))
    ahead = list(itertools.islice(placed, PREFETCH))
    while ahead:
        yield ahead.pop(0)
        ahead.extend(itertools.islice(placed, 1))
