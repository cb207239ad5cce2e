"""Applying a trained model to images, batch by batch and without missing one."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from cloc_jax.data import pipeline
from cloc_jax.methods import Method
from cloc_jax.runtime import model_state, sharding
from cloc_jax.runtime.model_state import ModelState

Function = Callable[[ModelState, jax.Array], dict[str, Any]]


def predictor(graph: nnx.GraphDef, method: Method, mesh: Mesh) -> Function:
    """Compiled (state, images) -> what `method.predict` returns, in evaluation mode."""
    return _predictor(graph, method.predict, mesh)


def embedder(graph: nnx.GraphDef, method: Method, mesh: Mesh) -> Function:
    """Compiled (state, images) -> {"embedding"}, in evaluation mode."""
    return _embedder(graph, method.embed, mesh)


# Runs of a sweep share their graph: compile once for all of them.
@functools.lru_cache(maxsize=4)
def _predictor(graph: nnx.GraphDef, predict: Callable, mesh: Mesh) -> Function:
    return _compiled(lambda model, x: predict(model, x, None), graph, mesh)


@functools.lru_cache(maxsize=4)
def _embedder(graph: nnx.GraphDef, embed: Callable, mesh: Mesh) -> Function:
    return _compiled(lambda model, x: {"embedding": embed(model, x)}, graph, mesh)


def _compiled(function, graph: nnx.GraphDef, mesh: Mesh) -> Function:
    def apply(state, images):
        model = model_state.evaluating(graph, state)
        return function(model, images)

    # Every process receives all results.
    return jax.jit(apply, out_shardings=sharding.copied(mesh))


def over(
    function: Function,
    state: ModelState,
    source: pipeline.Source,
    mesh: Mesh,
    *,
    batch_size: int,
    threads: int,
    between: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """`function` on every image of a source, in its order; `between` batches."""
    # Rounded up to what divides over the devices; padding is cut off at the end.
    batch_size = -(-batch_size // mesh.size) * mesh.size
    parts = []
    for batch in pipeline.evaluation_batches(
        source,
        batch_size,
        threads=threads,
        share=pipeline.Share(jax.process_index(), jax.process_count()),
        place=lambda batch: sharding.place_batch(batch, mesh),
    ):
        outputs = function(state, batch["image"])
        parts.append({k: np.asarray(v) for k, v in outputs.items() if v is not None})
        between()
    return {k: np.concatenate([p[k] for p in parts])[: len(source)] for k in parts[0]}
