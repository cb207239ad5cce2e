"""What reads each kind of input, as the jobs do.

Each function writes one damaged input below a folder, reads it, and returns "read",
"refused" where reading says in its own way what is wrong, or a word for a result that
must not be. What it raises is judged by its caller.
"""

import functools
import itertools
import json
import pathlib
import random
import re
import shutil
from collections.abc import Mapping
from typing import Any

import hostile_runs
import jax
import mutations
import numpy as np
import seeds

from cloc_jax import losses
from cloc_jax.config import saved_config
from cloc_jax.data import images, records
from cloc_jax.data.layouts import tables
from cloc_jax.data.layouts.listing import Item
from cloc_jax.encoders.weights import filling
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import read_results

WANTED = images.NetworkInput((16, 16), 3, max_pixels=10**7)
SILENT = "damage not noticed"


def damage(
    place: pathlib.Path, whole: Mapping[Any, bytes], rng: random.Random
) -> pathlib.Path:
    """Writes one of the files, damaged; they are by name below a place or by path."""
    chosen = rng.choice(sorted(whole))
    path = place / chosen
    others = list(whole.values())
    path.write_bytes(mutations.of_file(path.name, whole[chosen], rng, others))
    return path


def image(path: pathlib.Path, rng: random.Random) -> str:
    """An image file: prepared, and read by `predict`."""
    stored = records.store_image(Item(path.name, path, 0), wanted=WANTED)
    if stored.error:
        return "refused"
    for data in (stored.data, path.read_bytes()):
        found = WANTED.decode(data, path.name)
        WANTED._replace(equalize=True).prepare(found)
    return "read"


def table(path: pathlib.Path, rng: random.Random) -> str:
    """A table of graded images."""
    pattern = rng.choice(("", r"(\d+)"))
    tables.scan(path.parent, csv=str(path), columns={}, group_pattern=pattern)
    return "read"


def weights(path: pathlib.Path, rng: random.Random) -> str:
    """A file of weights, of any format."""
    filling.load(str(path))
    return "read"


class Single:
    """Files that are made by one function and read, each by itself, by another."""

    def __init__(self, make, use, place: pathlib.Path):
        self._place, self._seeds, self._use = place, make(), use

    def read(self, rng: random.Random) -> str:
        return self._use(damage(self._place, self._seeds, rng), rng)


class Run:
    """A file of a run; one that reads must read as before."""

    def __init__(self, place: pathlib.Path):
        self._folder = RunFolder(place / "run")
        seeds.write_run(self._folder.path)
        written = [p for p in self._folder.path.rglob("*") if p.is_file()]
        self._seeds = {path: path.read_bytes() for path in written if path.suffix}
        self._before = self._all()

    def read(self, rng: random.Random) -> str:
        path = damage(pathlib.Path(), self._seeds, rng)
        try:
            is_same = self._all() == self._before
            return "read" if is_same else f"{SILENT}: {path.name}"
        finally:
            path.write_bytes(self._seeds[path])

    def _all(self) -> str:
        run = self._folder
        results = read_results(run)
        table = predictions.read(run.path, results)
        support = run.read_support("fit") or {}
        found: list[Any] = [
            saved_config(run.read_config()).to_json_best_effort(),
            run.read_dataset(),
            results.to_json(),
            run.read_history(),
            run.read_stage("fit"),
            {name: array.tolist() for name, array in support.items()},
            [repr(split) for split in table.items()],
            Decision.read(run.decision, seeds.RANKS).to_json(),
        ]
        return json.dumps(found)


class Shape(Run):
    """A file of a run whose JSON is of another shape, with the checksum that fits."""

    def read(self, rng: random.Random) -> str:
        kinds = (".json", ".jsonl")
        path = rng.choice([p for p in sorted(self._seeds) if p.suffix in kinds])
        lines = self._seeds[path].splitlines() if path.suffix == ".jsonl" else []
        value = json.loads(lines[0] if lines else self._seeds[path])
        odd = mutations.odd_value(value, rng)
        if isinstance(odd, dict):
            odd = files.sealed(odd, self._folder.mark)
        text = b"\n".join([json.dumps(odd).encode(), *lines[1:]])
        path.write_bytes(text)
        try:
            self._all()
            return "read"
        finally:
            path.write_bytes(self._seeds[path])


class Page:
    """The report of a run whose names are anything but text."""

    def __init__(self, place: pathlib.Path):
        self._place = place / "page"

    def read(self, rng: random.Random) -> str:
        words = [
            "".join(rng.sample(hostile_runs.NAMES, 1 + rng.randrange(2)))
            for _ in range(11)
        ]
        found = []
        for change in (hostile_runs.tame, str):
            try:
                path = hostile_runs.hostile_run(self._place, words, change)
            except OURS as error:  # no name is a reason to have no report
                return f"no page: {error}"
            text = path.read_text(encoding="utf-8")
            found.append(hostile_runs.Outline(text).found)
            json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
            shutil.rmtree(self._place)
        return "read" if found[0] == found[1] else "a name is more than text"


LOSSES = {
    "mmnp": lambda z, y, where: losses.mmnp(z, y, np.full(4, 0.2, "f4"), where=where),
    "supcon": lambda z, y, where: losses.supcon(
        z[:, None], y, temperature=0.1, base_temperature=0.1, where=where
    ),
    "rnc": lambda z, y, where: losses.rnc(z[:, None], y, temperature=1.0, where=where),
    "coral": lambda z, y, where: losses.coral(z[:, :4], y, where=where),
    "corn": lambda z, y, where: losses.corn(z[:, :4], y, where=where),
    "slace": lambda z, y, where: losses.slace(z, y, alpha=1.0, where=where),
    "link": lambda z, y, where: losses.cumulative_link(
        z[:, 0], np.arange(4, dtype="f4"), y, where=where
    ),
    "poe": lambda z, y, where: sum(
        losses.poe_terms(z[None], z, z, y, margin=1.0, distance="j", where=where)
    ),
}


# There are many losses, sizes and types to compile.
QUICKLY = {"xla_backend_optimization_level": 0}
SIZES = (4, 130)


class Labels:
    """A loss of labels of any type and padding that holds anything."""

    def __init__(self, place: pathlib.Path):
        self._losses = {
            name: jax.jit(jax.value_and_grad(loss), compiler_options=QUICKLY)
            for name, loss in LOSSES.items()
        }
        for loss, size in itertools.product(self._losses.values(), SIZES):
            # What others are compared with is compiled before seconds count.
            loss(np.ones((size, 5), "f4"), np.zeros(size, "i4"), np.ones(size, bool))

    def read(self, rng: random.Random) -> str:
        name = rng.choice(sorted(LOSSES))
        size = rng.choice(SIZES)
        kind = rng.choice(
            ("bool", *(f"{u}int{b}" for u in ("", "u") for b in (8, 16, 32, 64)))
        )
        draw = np.random.default_rng(rng.randrange(2**32))
        y = draw.integers(0, 2 if kind == "bool" else 5, size)
        z = draw.normal(size=(size, 5)).astype(np.float32)
        where = draw.random(size) < rng.choice((0.0, 0.7, 1.0))
        junk = rng.choice((np.nan, np.inf, -np.inf, 3e38, 0.0))
        odd = np.where(
            where, y, rng.choice((0, 1) if kind == "bool" else (0, 100, 127))
        )
        rows = np.where(where[:, None], z, np.float32(junk))
        want = self._losses[name](
            np.where(where[:, None], z, 0), y.astype(np.int32), where
        )
        found = self._losses[name](rows, odd.astype(kind), where)
        is_same = all(
            np.allclose(a, b, rtol=1e-5, atol=1e-6)
            for a, b in zip(*map(jax.tree.leaves, (found, want)), strict=True)
        )
        return "read" if is_same else f"{name}: another value for {kind}, batch {size}"


KINDS = {
    "image": functools.partial(Single, seeds.images, image),
    "table": functools.partial(Single, seeds.tables, table),
    "weights": functools.partial(Single, seeds.weights, weights),
    "run": Run,
    "shape": Shape,
    "page": Page,
    "labels": Labels,
}
# Errors whose message is a sentence for the user; others end in a traceback.
OURS = (ValueError, OSError)
assert issubclass(files.Damaged, OURS)
