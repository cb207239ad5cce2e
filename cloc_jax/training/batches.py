"""Training batches of a stage: images that threads read, or features in memory.

Both give the same batches, a function of the step alone. Features are gathered for
several steps at once, which one compiled program then makes.
"""

import itertools
from collections.abc import Iterator, Sequence
from typing import TypeGuard

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
        self,
        features: KeptFeatures,
        mesh: Mesh,
        sampler: Sampler,
        stage: Stage,
        seed: Sequence[int],
    ):
        self._features, self._sampler = features, sampler
        self._stage, self._seed = stage, tuple(seed)
        self._views = [np.asarray(view) for view in features.views]
        rows_split = P(None, *sharding.split_batch(mesh).spec)
        self._sharding = NamedSharding(mesh, rows_split)  # of [step, row, …]
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
            self._take(views[..., n], rows[..., n // len(self._stage.views)])
            for n in range(views.shape[2])
        )
        batch = {
            "id": items.astype(np.int32),
            "image": images[0] if len(images) == 1 else images,
            "label": np.asarray(self._features.labels[items], np.int32),
            "mask": np.ones(items.shape[:2], bool),
        }
        if self._features.weights is not None:
            batch["weight"] = self._features.weights[items]
        return jax.tree.map(
            lambda rows: sharding.place_state(rows, self._sharding), batch
        )

    def _drawn_views(self, steps, rows: np.ndarray) -> np.ndarray:
        """Which kept view each picture is, [step, row, picture]; drawn as streamed."""
        kinds = self._stage.views
        chosen = np.zeros((*rows.shape[:2], rows.shape[2] * len(kinds)), np.int32)
        count = len(self._views)
        drawn = [
            n for n in range(chosen.shape[2]) if kinds[n % len(kinds)].augment != "none"
        ]
        if count == 1 or not drawn:
            return chosen
        for n, row in np.ndindex(*rows.shape[:2]):
            place = int(steps[n]) * self._sampler.batch_size + row
            rng = np.random.default_rng((*self._seed, place))
            for picture in drawn:
                chosen[n, row, picture] = rng.integers(count)
        return chosen

    def _take(self, views: np.ndarray, items: np.ndarray) -> np.ndarray:
        """Features [step, row, …] of items as their views show them."""
        rows = self._views[0][items]
        for number in range(1, len(self._views)):
            is_of_view = views == number
            rows[is_of_view] = self._views[number][items[is_of_view]]
        return rows


def given(features: np.ndarray, labels: np.ndarray | None = None) -> KeptFeatures:
    """Feature vectors [row, feature] as a source; their labels count ranks from 0."""
    rows = InMemory(list(features), [str(i) for i in range(len(features))])
    known = rows.labels if labels is None else labels
    return KeptFeatures(rows.replaced(labels=known), [features])


def fit_memory(source: Source) -> TypeGuard[KeptFeatures]:
    """Whether a source holds features, and few enough of them."""
    if not isinstance(source, KeptFeatures):
        return False
    return source[0].nbytes * len(source) * len(source.views) <= MOST_BYTES
