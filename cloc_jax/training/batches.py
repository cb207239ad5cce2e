"""Training batches of a stage: images that threads read, or features in memory.

Both give the same batches, a function of the step alone. Features are gathered for
several steps at once, which one compiled program then makes.
"""

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P
from jaxtyping import Array

from cloc_jax.data import pipeline
from cloc_jax.data.samplers import Sampler
from cloc_jax.data.source import InMemory, KeptFeatures, Source
from cloc_jax.methods import Stage
from cloc_jax.runtime import sharding
from cloc_jax.training.train_step import Carry, Program

MOST_BYTES = 2**30  # of features that are trained on in memory
GATHERED_BYTES, MOST_STEPS = 2**26, 32  # gathered at a time, as both allow


class Streamed:
    """Batches of images, read ahead by threads while steps compute."""

    def __init__(self, batches: Iterator[pipeline.Batch]):
        first = next(batches)
        self.shapes = jax.eval_shape(lambda batch: batch, first)  # of a batch
        self._batches = itertools.chain([first], batches)

    def advance(
        self, program: Program, carry: Carry, key: Array, step: int, last: int
    ) -> tuple[Carry, int]:
        """The carry after the next step, and the number of the step after it."""
        return program.step(carry, next(self._batches), key), step + 1


class Gathered:
    """Batches of features that are in memory, several steps at a time."""

    def __init__(
        self, features: "Features", sampler: Sampler, stage: Stage, seed: Sequence[int]
    ):
        self._features, self._sampler = features, sampler
        self._stage, self._seed = stage, tuple(seed)
        one = self._gathered(range(1))
        self.shapes = jax.tree.map(
            lambda rows: jax.ShapeDtypeStruct(rows.shape[1:], rows.dtype), one
        )
        size = sum(rows.nbytes for rows in jax.tree.leaves(one))
        self._most = min(max(GATHERED_BYTES // size, 1), MOST_STEPS)

    def advance(
        self, program: Program, carry: Carry, key: Array, step: int, last: int
    ) -> tuple[Carry, int]:
        """The carry after some steps, at most up to `last`; and the step after them."""
        after = min(step + self._most, last)
        # Always as many, so that one program serves all; the rest is not looked at.
        places = np.minimum(np.arange(step, step + self._most), after - 1)
        count = np.int32(after - step)
        return program.steps(carry, self._gathered(places), key, count), after

    def _gathered(self, steps: Sequence[int] | np.ndarray) -> pipeline.Batch:
        """Batches [step, row, …] in the layout of `pipeline.training_batches`."""
        items = np.stack([self._sampler.batch(int(step)) for step in steps])
        rows = items.reshape(*items.shape[:2], -1)  # [step, row, item of the row]
        views = self._drawn_views(steps, rows)
        images = tuple(
            self._features.take(views[..., n], rows[..., n // len(self._stage.views)])
            for n in range(views.shape[2])
        )
        labels = np.asarray(self._features.labels[items], np.int32)
        mesh, weights = self._features.mesh, self._features.weights
        batch = {
            "id": _place(items.astype(np.int32), mesh),
            "image": images[0] if len(images) == 1 else images,
            "label": _place(labels, mesh),
            "mask": _place(np.ones(items.shape[:2], bool), mesh),
        }
        if weights is not None:
            batch["weight"] = _place(weights[items], mesh)
        return batch

    def _drawn_views(self, steps, rows: np.ndarray) -> np.ndarray:
        """Which kept view each picture is, [step, row, picture]; drawn as streamed."""
        kinds = self._stage.views
        chosen = np.zeros((*rows.shape[:2], rows.shape[2] * len(kinds)), np.int32)
        count = self._features.num_views
        drawn = [
            n for n in range(chosen.shape[2]) if kinds[n % len(kinds)].augment != "none"
        ]
        if count == 1 or not drawn:
            return chosen
        for n, row in np.ndindex(*rows.shape[:2]):
            place = int(steps[n]) * self._sampler.batch_size + row
            rng = pipeline.generator((*self._seed, place))
            for picture in drawn:
                chosen[n, row, picture] = rng.integers(count)
        return chosen


class Features:
    """The features of a split, in memory."""

    def __init__(self, source: KeptFeatures, mesh: Mesh):
        self.labels, self.mesh = np.asarray(source.labels), mesh
        self.weights, self.num_views = source.weights, len(source.views)
        self._views = [np.asarray(view) for view in source.views]

    def __len__(self) -> int:
        return len(self.labels)

    def take(self, views: np.ndarray, items: np.ndarray) -> Array:
        """Features [*places, …] of items as their views show them, on the devices.

        Places are [row] or [step, row], and rows are split over the devices.
        """
        rows = self._views[0][items]
        for number in range(1, self.num_views):
            is_of_view = views == number
            rows[is_of_view] = self._views[number][items[is_of_view]]
        return _place(rows, self.mesh, items.ndim)

    def over(
        self,
        function: Callable[[Array], Any],
        size: int,
        between: Callable[[], None] = lambda: None,
    ) -> Any:
        """`function` of the clean features of all items, `size` at a time, as numpy.

        The last batch is filled up with copies, whose results are cut off.
        """
        size, parts = -(-size // self.mesh.size) * self.mesh.size, []
        for first in range(0, len(self), size):
            items = np.minimum(np.arange(first, first + size), len(self) - 1)
            outputs = function(self.take(np.zeros_like(items), items))
            parts.append(jax.tree.map(np.asarray, outputs))
            between()
        return jax.tree.map(lambda *rows: np.concatenate(rows)[: len(self)], *parts)


def given(features: np.ndarray, labels: np.ndarray | None = None) -> KeptFeatures:
    """Feature vectors [row, feature] as a source; their labels count ranks from 0."""
    rows = InMemory(list(features), [str(i) for i in range(len(features))])
    known = rows.labels if labels is None else labels
    return KeptFeatures(rows.with_labels(known), [features])


def in_memory(source: Source, mesh: Mesh) -> Features | None:
    """The features of a source that holds few enough of them; None for others."""
    if not isinstance(source, KeptFeatures) or not len(source):
        return None
    one = source[0]
    is_small = one.nbytes * len(source) * len(source.views) <= MOST_BYTES
    return Features(source, mesh) if is_small else None


def _split(mesh: Mesh, ndim: int) -> NamedSharding:
    """Sharding of arrays [row, …] or [step, row, …] whose rows are a batch."""
    rows = sharding.split_batch(mesh).spec
    return NamedSharding(mesh, rows if ndim == 1 else P(None, *rows))


def _place(rows: np.ndarray, mesh: Mesh, ndim: int = 2) -> Array:
    return sharding.place_state(rows, _split(mesh, ndim))
