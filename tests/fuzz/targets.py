"""What reads each kind of input, as the jobs do.

Each function writes one damaged input below a folder, reads it, and returns "read",
"refused" where reading says in its own way what is wrong, or a word for a result that
must not be. What it raises is judged by its caller.
"""

import functools
import json
import pathlib
import random
from collections.abc import Mapping
from typing import Any

import mutations
import seeds

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


KINDS = {
    "image": functools.partial(Single, seeds.images, image),
    "table": functools.partial(Single, seeds.tables, table),
    "weights": functools.partial(Single, seeds.weights, weights),
    "run": Run,
    "shape": Shape,
}
# Errors whose message is a sentence for the user; others end in a traceback.
OURS = (ValueError, OSError)
assert issubclass(files.Damaged, OURS)
