"""Benchmark of the data: images per second, stage by stage, and whether memory grows.

Every stage has those before it inside. All are timed in turn on the same images, read
anew each time, except in the last: there prepared images are kept in memory, as they
are from the second epoch of a run on, if they fit. What all is measured against is the
least that any pipeline does: decode and resize, on one thread.
"""

import functools
import gc
import pathlib
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax.bench import cells
from cloc_jax.bench import step as training_step
from cloc_jax.bench.cells import Cell
from cloc_jax.bench.stopwatch import Program, interleaved, resident_bytes
from cloc_jax.data import pipeline, samplers
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.samplers import Sampler
from cloc_jax.data.source import Draw, Prepared, Source, augmented
from cloc_jax.runtime import sharding
from cloc_jax.runtime.console import console, print_dataset
from cloc_jax.training import assembly, encoder
from cloc_jax.training.dataset import augmentation, build_dataset

IMAGES = 256  # read a call, at least
BARE = "decode, resize"
FULL = "+ batch on device"
KEPT = "the same, images kept"
WANTED = 2.0  # times what decoding and resizing take, at most
# Stages that read one, two and ten views of an image, by the method they are of.
VIEWS = {"ce": "one view", "simclr": "two views", "dino": "ten views"}
LOCAL = 3 / 7  # side of DINO's small crops, as a share of the large ones'


def bench_data(
    config: ConfigDict, folder: pathlib.Path, *, rounds: int, steps: bool = False
) -> list[Cell]:
    """Times the stages, reads epochs, prints what it found and adds to bench.jsonl.

    With `steps`, the training steps that read one, two and ten views are timed too.
    """
    where = cells.announce()
    dataset = build_dataset(config)
    print_dataset(dataset)
    mesh = sharding.make_mesh(config.mesh.devices)
    sharding.check_batch(config.train.batch_size, mesh)
    plan = samplers.make(
        "rank_pairs",
        dataset.splits["train"].labels,
        config.train.batch_size,
        mode=config.train.sampling,
        seed=(config.seed, 0),
        ranks=dataset.ranks,
    )
    kept: Any = dataset.splits["train"]
    read_kept = Stream(config, kept, plan, mesh)
    found = _time(config, plan, mesh, read_kept if kept.is_kept else None, rounds)
    console.print(cells.table(found))
    for line in _conclusions(config, found):
        console.print(line, soft_wrap=True)
    if not encoder.entrance(config):
        seen = _views(config, dataset, mesh, rounds, steps)
        console.print(cells.table(seen))
        for line in _needs(config, seen):
            console.print(line, soft_wrap=True)
        found += seen
    memory = _memory(read_kept, plan.steps_per_epoch, rounds, config.data.threads)
    console.print(
        f"memory: {memory['before_mib']:.0f} MiB after an epoch, "
        f"{memory['after_mib']:.0f} MiB after {rounds} more"
    )
    cells.record(folder, "data", [*found, memory], where)
    return [*found, memory]


class Stream:
    """Reads batches from the very pipeline that training reads from; call it."""

    def __init__(
        self,
        config: ConfigDict,
        source: Source,
        plan: Sampler,
        mesh: Mesh,
        draws: Sequence[Draw] = (),
    ):
        self._batches = functools.partial(
            pipeline.training_batches,
            source,
            plan,
            draws=draws or [augmented(source, augmentation(config))],
            seed=(config.seed, 0),
            first_step=0,
            place=lambda rows: sharding.place_batch(rows, mesh),
        )

    def __call__(self, *, threads: int, steps: int) -> None:
        for batch in self._batches(threads=threads, steps=steps):
            jax.block_until_ready(batch)


def _time(
    config: ConfigDict,
    plan: Sampler,
    mesh: Mesh,
    read_kept: Stream | None,
    rounds: int,
) -> list[Cell]:
    """One cell a stage and number of threads."""
    config = config.copy_and_resolve_references()
    config.data.cache_gib = 0.0
    anew: Any = build_dataset(config).splits["train"]
    streams = {FULL: Stream(config, anew, plan, mesh)}
    if read_kept:
        streams[KEPT] = read_kept
    steps = -(-IMAGES // plan.batch_size)
    items = np.concatenate([plan.batch(step) for step in range(steps)]).tolist()
    programs, keys = {}, []
    for threads in sorted({1, config.data.threads}):
        calls = {
            name: functools.partial(_over, function, items, threads)
            for name, function in _stages(config, anew).items()
        }
        for name, stream in streams.items():
            calls[name] = functools.partial(stream, threads=threads, steps=steps)
        for name, call in calls.items():
            programs[f"{name}, {threads}"] = Program(call)
            keys.append((name, threads))
    timings = list(interleaved(programs, rounds=rounds).values())
    bare = timings[keys.index((BARE, 1))].median
    return [
        {
            "stage": name,
            "threads": threads,
            "images": len(items),
            "milliseconds": timing.median * 1e3,
            "quartiles": [timing.low * 1e3, timing.high * 1e3],
            "images_per_second": len(items) / timing.median,
            "times_bare": timing.median / bare,
        }
        for (name, threads), timing in zip(keys, timings, strict=True)
    ]


def _views(
    config: ConfigDict, dataset: Dataset, mesh: Mesh, rounds: int, steps: bool
) -> list[Cell]:
    """Whole pipelines with one, two and ten views per image, and what steps use."""
    threads, count = config.data.threads, -(-IMAGES // config.train.batch_size)
    programs, found = {}, []
    for method, name in VIEWS.items():
        own = with_method(config, method)
        stage = assembly.build_method(own, len(dataset.ranks), mesh).stages[0]
        draws = assembly.draws(own, dataset, stage)
        plan = assembly.sampler(own, dataset, stage, 0)
        read = Stream(own, dataset.splits["train"], plan, mesh, draws)
        programs[name] = Program(functools.partial(read, threads=threads, steps=count))
        if steps:
            made, _ = training_step.step_programs(own, plan.batch_size, mesh.size)
            programs[f"step of {method}"] = made["step"]
        found.append((method, name, len(draws)))
    timings = interleaved(programs, rounds=rounds)
    images = count * config.train.batch_size
    listed = []
    for method, name, views in found:
        timing = timings[name]
        cell = {
            "stage": f"{name}, as for {method}",
            "threads": threads,
            "images": images,
            "milliseconds": timing.median * 1e3,
            "quartiles": [timing.low * 1e3, timing.high * 1e3],
            "images_per_second": images / timing.median,
            "views_per_second": views * images / timing.median,
        }
        if steps:
            seconds = timings[f"step of {method}"].median
            cell["step_needs_per_second"] = config.train.batch_size / seconds
        listed.append(cell)
    return listed


def with_method(config: ConfigDict, name: str) -> ConfigDict:
    """The configuration with another method, and DINO's small crops as they should
    be."""
    own = config.copy_and_resolve_references()
    if name == "dino" and config.method.name != "dino":
        local = tuple(max(round(side * LOCAL), 1) for side in config.data.size)
        own.method.dino.local_size = local
    own.method.name = name
    return own


def _needs(config: ConfigDict, cells: Sequence[Cell]) -> list[str]:
    """Whether the pipeline keeps up with the steps, in words."""
    if not all("step_needs_per_second" in cell for cell in cells):
        return ["--steps times the training steps that read these views as well"]
    said = []
    for cell in cells:
        ratio = cell["images_per_second"] / cell["step_needs_per_second"]
        said.append(
            f"{cell['stage']}: {cell['images_per_second']:.0f} images per second, "
            f"{ratio:.1f} times what the step uses with encoder {config.encoder.name}"
        )
    return said


def _stages(config: ConfigDict, train: Any) -> dict[str, Callable[[int], Any]]:
    """What is done to an item, from the least to all but making batches of it."""
    bare = Prepared(
        train.original(),
        size=tuple(config.data.size),
        crop=None,
        equalize=False,
        channels=config.data.channels,
        cache_bytes=0,
    )
    draw = augmented(train, augmentation(config))

    def augment(item: int) -> np.ndarray:
        return draw(item, pipeline.generator((config.seed, 0, item)))

    return {
        "decode": train.original().__getitem__,
        BARE: bare.__getitem__,
        "decode, prepare": train.whole,
        "+ augment": augment,
    }


def _over(function: Callable[[int], Any], items: Sequence[int], threads: int) -> None:
    if threads == 1:
        for item in items:
            function(item)
        return
    with futures.ThreadPoolExecutor(threads) as pool:
        for _ in pool.map(function, items):
            pass


def _conclusions(config: ConfigDict, cells: Sequence[Cell]) -> list[str]:
    of = {(cell["stage"], cell["threads"]): cell for cell in cells}
    threads, size = config.data.threads, config.train.batch_size
    first = of[FULL, threads]["images_per_second"]
    said = [
        f"one thread: all of it takes {of[FULL, 1]['times_bare']:.2f} times what "
        f"decoding and resizing take alone (wanted: at most {WANTED:g})"
    ]
    if (KEPT, threads) in of:
        later = of[KEPT, threads]["images_per_second"]
        rates = f"{first:.0f} images per second in its first epoch, {later:.0f} later"
    else:
        rates = f"{first:.0f} images per second, as data.cache_gib does not hold them"
    said.append(
        f"data.threads={threads}: training can have {rates}; bench --what=step "
        f"--batches={size} tells the samples per second that it uses"
    )
    return said


def _memory(stream: Stream, steps: int, epochs: int, threads: int) -> Cell:
    """Memory that the process holds after one epoch and after many."""
    stream(threads=threads, steps=steps)
    gc.collect()
    before = resident_bytes()
    stream(threads=threads, steps=epochs * steps)
    gc.collect()
    return {
        "stage": "memory",
        "threads": threads,
        "epochs": epochs,
        "before_mib": before / 2**20,
        "after_mib": resident_bytes() / 2**20,
    }
