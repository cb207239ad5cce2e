"""Benchmark of the data: images per second, beside the least that any pipeline does.

That is to decode and resize on one thread. All are timed in turn on the same images,
read anew each time: none is kept in memory, as they are in a run if they fit.
"""

import functools
from collections.abc import Sequence

import jax
import numpy as np
from ml_collections import ConfigDict

from cloc_jax.bench.measurement import Cell, Program, interleaved
from cloc_jax.data import pipeline
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.source import Prepared, Source
from cloc_jax.runtime import sharding
from cloc_jax.runtime.console import print_dataset
from cloc_jax.training import assembly

IMAGES = 256  # read per call, at least
BARE = "decode, resize"
FULL = "batches on device"


def bench_data(config: ConfigDict, *, rounds: int) -> list[Cell]:
    """One cell per stage and number of threads, for the first stage of the method."""
    config = config.copy_and_resolve_references()
    config.data.cache_gib = 0.0
    dataset = assembly.build_dataset(config)
    print_dataset(dataset)
    parts = assembly.check(config, dataset)
    plan = parts.samplers[0]
    steps = -(-IMAGES // plan.batch(0).size)
    items = np.concatenate([plan.batch(step).ravel() for step in range(steps)]).tolist()
    how = NetworkInput(tuple(config.data.size), config.data.channels)
    bare = Prepared(dataset.splits["train"].original(), how, cache_bytes=0)
    calls = {(BARE, 1): functools.partial(decode, bare, items)}
    for threads in sorted({1, config.data.threads}):
        calls[FULL, threads] = functools.partial(read, config, parts, steps, threads)
    programs = {f"{name}, {n}": Program(call) for (name, n), call in calls.items()}
    timings = list(interleaved(programs, rounds=rounds).values())
    cells: list[Cell] = []
    for (name, threads), timing in zip(calls, timings, strict=True):
        cell = {"stage": name, "threads": threads, "images": len(items)}
        cell["images_per_second"] = len(items) / timing["milliseconds"] * 1e3
        cell["times_bare"] = timing["milliseconds"] / timings[0]["milliseconds"]
        cells.append(cell | timing)
    return cells


def decode(source: Source, items: Sequence[int]) -> None:
    """Reads items one after the other."""
    for item in items:
        source[item]


def read(config: ConfigDict, parts: assembly.Parts, steps: int, threads: int) -> None:
    """Reads the first batches of a run onto the devices."""
    for batch in pipeline.training_batches(
        parts.dataset.splits["train"],
        parts.samplers[0],
        draws=assembly.draws(config, parts.dataset, parts.method.stages[0]),
        seed=(config.seed, 0),
        first_step=0,
        steps=steps,
        threads=threads,
        place=lambda rows: sharding.place_batch(rows, parts.mesh),
    ):
        jax.block_until_ready(batch)
