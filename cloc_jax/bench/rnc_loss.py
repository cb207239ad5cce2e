"""Benchmark of the Rank-N-Contrast loss: value and gradient, against a loop.

Beside every time stands the floor: value and gradient of the sum of all distances,
which any loss on distances between features has to pay.
"""

from collections.abc import Sequence
from importlib import util
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from cloc_jax import losses
from cloc_jax.bench.cells import FLOOR, RELEASED, SORTED, Cell, measure
from cloc_jax.bench.stopwatch import Program, compiled
from cloc_jax.losses import distances

VIEWS = 2
TEMPERATURE = 2.0
RELEASED_UP_TO = 512  # images; beyond, one call takes gigabytes
FORMS = (SORTED, RELEASED)


def bench_rnc(
    *,
    batches: Sequence[int],
    dims: Sequence[int],
    algorithms: Sequence[str],
    ranks: int,
    rounds: int,
) -> list[Cell]:
    """Value and gradient for two views of every batch, on one device in float32.

    Args:
      batches: numbers of images; there are twice as many features.
      dims: widths of the features.
      algorithms: some of FORMS.
      ranks: of the labels.
      rounds: timed calls of each program.
    """
    unknown = [name for name in algorithms if name not in FORMS]
    if unknown:
        raise ValueError(
            f"--algorithms has {', '.join(unknown)}; with --loss=rnc use some of "
            f"{', '.join(FORMS)}."
        )
    cells = []
    for dim in dims:
        for batch in batches:
            programs = _programs(batch, dim, algorithms, ranks)
            common = {"batch": batch, "views": VIEWS, "dim": dim, "dtype": "float32"}
            common |= {"devices": 1, "ranks": ranks}
            cells += measure(programs, common, rounds, 0)
    return cells


def _programs(
    batch: int, dim: int, algorithms: Sequence[str], ranks: int
) -> dict[str, Program]:
    rng = np.random.default_rng(0)
    features = rng.normal(size=(batch, VIEWS, dim)).astype(np.float32)
    labels = rng.integers(0, ranks, batch).astype(np.int32)
    placed = jnp.asarray(features), jnp.asarray(labels)
    programs = {FLOOR: compiled(jax.value_and_grad(_distances), placed[0])}
    if SORTED in algorithms:
        programs[SORTED] = compiled(jax.value_and_grad(_ours), *placed)
    is_possible = batch <= RELEASED_UP_TO and util.find_spec("torch")
    if RELEASED in algorithms and is_possible:
        programs[RELEASED] = _released(features, labels)
    return programs


def _distances(features: jax.Array) -> jax.Array:
    joined = features.reshape(-1, features.shape[2])
    return jnp.sum(distances.euclidean(joined, joined))


def _ours(features: jax.Array, labels: jax.Array) -> jax.Array:
    return losses.rnc(features, labels, temperature=TEMPERATURE)


def _released(features: np.ndarray, labels: np.ndarray) -> Program:
    import torch

    from cloc_jax.bench import released_loop

    y = torch.tensor(labels).long()
    z: Any = torch.tensor(features, requires_grad=True)

    def call():
        z.grad = None
        released_loop.rnc_by_columns(z, y, TEMPERATURE).backward()

    return Program(call, most_calls=4)
