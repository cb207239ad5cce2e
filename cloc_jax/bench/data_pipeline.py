"""Benchmark of the data: images per second, stage by stage.

Every stage has those before it inside. All are timed in turn on the same images, read
anew each time, except in the last: there prepared images are kept in memory, as they
are from the second epoch of a run on, if they fit. What all is measured against is the
least that any pipeline does: decode and resize, on one thread.
"""

import functools
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from ml_collections import ConfigDict

from cloc_jax.bench import step
from cloc_jax.bench.measurement import Cell, Program, interleaved
from cloc_jax.data import pipeline
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.source import Prepared
from cloc_jax.runtime import sharding
from cloc_jax.runtime.console import print_dataset
from cloc_jax.training import assembly, fit
from cloc_jax.training.assembly import build_dataset

IMAGES = 256  # read per call, at least
BARE = "decode, resize"
FULL = "+ batch on device"
KEPT = "the same, images kept"
STEP = "training step"


def bench_data(config: ConfigDict, *, rounds: int, steps: bool = False) -> list[Cell]:
    """One cell per stage and number of threads, for the first stage of the method.

    With `steps`, the training step that reads these batches is timed beside them.
    """
    dataset = build_dataset(config)
    print_dataset(dataset)
    config = config.copy_and_resolve_references()
    config.data.cache_gib = 0.0
    anew = Reader(config, build_dataset(config))
    readers = {FULL: anew}
    if getattr(dataset.splits["train"], "is_kept", False):
        readers[KEPT] = Reader(config, dataset)
    programs, keys = {}, []
    for threads in sorted({1, config.data.threads}):
        calls = {
            name: functools.partial(_over, function, anew.items, threads)
            for name, function in _item_stages(config, anew).items()
        }
        for name, reader in readers.items():
            calls[name] = functools.partial(reader.read, threads)
        for name, call in calls.items():
            programs[f"{name}, {threads}"] = Program(call)
            keys.append((name, threads))
    if steps:
        programs[STEP] = step.first_step(config, len(dataset.ranks), anew.mesh)
    timings = interleaved(programs, rounds=rounds)
    bare = timings[f"{BARE}, 1"].median
    cells: list[Cell] = []
    for name, threads in keys:
        timing = timings[f"{name}, {threads}"]
        rate = len(anew.items) / timing.median
        cell = {"stage": name, "threads": threads, "images": len(anew.items)}
        cell |= {"images_per_second": rate, "times_bare": timing.median / bare}
        if name in readers:
            cell["views_per_second"] = rate * len(anew.draws)
        cells.append(cell | timing.cell())
    if steps:
        rate = anew.images_per_step / timings[STEP].median
        cells.append({"stage": STEP, "images_per_second": rate} | timings[STEP].cell())
    return cells


class Reader:
    """The very batches that the first stage of a run is trained with."""

    def __init__(self, config: ConfigDict, dataset: Dataset):
        self.mesh = sharding.make_mesh(config.mesh.devices, config.mesh.shape)
        sharding.check_batch(config.train.batch_size, self.mesh)
        method = assembly.build_method(config, len(dataset.ranks), self.mesh)
        stage = method.stages[0]
        self.train: Any = dataset.splits["train"]
        self.draws = assembly.draws(config, dataset, stage)
        settings, labels = assembly.fit_settings(config), self.train.labels
        self._plan = fit.samplers_of(method, labels, settings, dataset.ranks)[0]
        self._seed = (config.seed, 0)
        first = self._plan.batch(0)
        self.images_per_step = first.size
        self._steps = -(-IMAGES // first.size)
        batches = [self._plan.batch(step).ravel() for step in range(self._steps)]
        self.items: list[int] = np.concatenate(batches).tolist()

    def read(self, threads: int) -> None:
        """Reads the batches of `items` onto the devices."""
        for batch in pipeline.training_batches(
            self.train,
            self._plan,
            draws=self.draws,
            seed=self._seed,
            first_step=0,
            steps=self._steps,
            threads=threads,
            place=lambda rows: sharding.place_batch(rows, self.mesh),
        ):
            jax.block_until_ready(batch)

    def draw(self, item: int) -> None:
        """Draws all views of an item."""
        for view, draw in enumerate(self.draws):
            draw(item, pipeline.generator((*self._seed, view, item)))


def _item_stages(config: ConfigDict, reader: Reader) -> dict[str, Callable[[int], Any]]:
    """What is done to an item, from the least to all but making batches of it."""
    how = NetworkInput(tuple(config.data.size), config.data.channels)
    bare = Prepared(reader.train.original(), how, cache_bytes=0)
    return {
        "decode": reader.train.original().__getitem__,
        BARE: bare.__getitem__,
        "decode, prepare": reader.train.whole,
        "+ augment": reader.draw,
    }


def _over(function: Callable[[int], Any], items: Sequence[int], threads: int) -> None:
    if threads == 1:
        for item in items:
            function(item)
        return
    with futures.ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(function, items):
            pass


def conclusions(config: ConfigDict, cells: Sequence[Cell]) -> list[str]:
    """What the cells mean for training, in words."""
    rates = {
        cell["stage"]: cell["images_per_second"]
        for cell in cells
        if cell.get("threads") in (None, config.data.threads)
    }
    alone = next(cell["times_bare"] for cell in cells if cell["stage"] == FULL)
    said = f"data.threads={config.data.threads}: training can have {rates[FULL]:.0f} "
    if KEPT in rates:
        said += f"images per second in its first epoch, {rates[KEPT]:.0f} later"
    else:
        said += "images per second, as data.cache_gib does not hold them"
    if STEP in rates:
        said += f"; its step uses {rates[STEP]:.0f}"
    else:
        said += "; --steps tells how many its step uses"
    return [
        f"one thread: all of it takes {alone:.2f} times what decoding and resizing "
        "take alone",
        said,
    ]
