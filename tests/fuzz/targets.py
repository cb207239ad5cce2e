"""What reads each kind of input, as the jobs do.

Each function writes one damaged input below a folder, reads it, and returns "read",
"refused" where reading says in its own way what is wrong, or a word for a result that
must not be. What it raises is judged by its caller.
"""

import hashlib
import json
import pathlib
import random
from collections.abc import Mapping
from typing import Any

import mutations
import numpy as np
import seeds

from cloc_jax.config import saved_config
from cloc_jax.data import datasets, images, records
from cloc_jax.data.layouts import graded_table
from cloc_jax.data.layouts.listing import Item
from cloc_jax.encoders.weights import filling
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import read_results
from cloc_jax.training.kept_features import FeatureStore
from configs import folder as folder_config

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


class Image:
    """An image file: prepared, and read by `predict`."""

    def __init__(self, place: pathlib.Path):
        self._place, self._seeds = place, seeds.images()

    def read(self, rng: random.Random) -> str:
        path = damage(self._place, self._seeds, rng)
        stored = records.store_image(Item(path.name, path, 0), wanted=WANTED)
        if stored.error:
            return "refused"
        for data in (stored.data, path.read_bytes()):
            image = images.decode(data, name=path.name, channels=3, max_pixels=10**7)
            images.prepare(image, size=(16, 16), equalize=True)
        return "read"


class Table:
    """A table of graded images."""

    def __init__(self, place: pathlib.Path):
        self._place, self._seeds = place, seeds.tables()

    def read(self, rng: random.Random) -> str:
        path = damage(self._place, self._seeds, rng)
        pattern = rng.choice(("", r"(\d+)"))
        graded_table.scan(self._place, csv=str(path), columns={}, group_pattern=pattern)
        return "read"


class Weights:
    """A file of weights, of any format."""

    def __init__(self, place: pathlib.Path):
        self._place, self._seeds = place, seeds.weights()

    def read(self, rng: random.Random) -> str:
        filling.load(str(damage(self._place, self._seeds, rng)))
        return "read"


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


class Prepared:
    """A file that preparation left; images must be as before, made anew if need be."""

    def __init__(self, place: pathlib.Path):
        self._place = place
        root = place / "images"
        for rank in "012":
            (root / rank).mkdir(parents=True)
        for i, (name, data) in enumerate(sorted(seeds.images().items()) * 3):
            (root / str(i % 3) / f"{i}-{name}").write_bytes(data)
        self._before = self._all()
        home = next((place / "prepared").iterdir())
        found = [p for p in home.rglob("*") if p.is_file() and p.stat().st_size]
        self._seeds = {path: path.read_bytes() for path in found}

    def read(self, rng: random.Random) -> str:
        path = damage(pathlib.Path(), self._seeds, rng)
        try:
            return "read" if self._all() == self._before else f"{SILENT}: {path.name}"
        finally:
            for kept, data in self._seeds.items():
                kept.parent.mkdir(parents=True, exist_ok=True)
                kept.write_bytes(data)

    def _all(self) -> dict[str, str]:
        """A digest of every image's pixels."""
        settings = folder_config.get_config().data.to_dict()
        settings |= {"root": str(self._place / "images"), "size": (16, 16)}
        dataset = datasets.load(
            "folder", settings, prepared=self._place / "prepared", say=id
        )
        return {
            f"{split} {source.ids[i]}": hashlib.sha256(source[i].tobytes()).hexdigest()
            for split, source in dataset.splits.items()
            for i in range(len(source))
        }


class Features:
    """A file of kept features; a row that is known must be as it was."""

    def __init__(self, place: pathlib.Path):
        self._place = place / "features"
        store = FeatureStore(self._place, say=id)
        self._names = [f"{i}.png" for i in range(20)]
        rows = np.random.default_rng(0).normal(size=(20, 8)).astype(np.float32)
        store.add(self._names[:10], rows[:10])
        store.add(self._names[10:], rows[10:])
        self._rows = rows
        self._seeds = {path: path.read_bytes() for path in self._place.iterdir()}

    def read(self, rng: random.Random) -> str:
        path = damage(pathlib.Path(), self._seeds, rng)
        try:
            store = FeatureStore(self._place, say=id)
            known = [i for i, name in enumerate(self._names) if name in store]
            if known:
                found = store.read([self._names[i] for i in known], in_memory=True)
                if not np.array_equal(found.all(), self._rows[known]):
                    return f"{SILENT}: {path.suffix}"
            return "read" if len(known) == 20 else "refused"
        finally:
            for kept, data in self._seeds.items():
                kept.write_bytes(data)


KINDS = {
    "image": Image,
    "table": Table,
    "weights": Weights,
    "run": Run,
    "prepared": Prepared,
    "features": Features,
}
# Errors whose message is a sentence for the user; others end in a traceback.
OURS = (ValueError, OSError)
assert issubclass(files.Damaged, OURS)
