"""Applying a trained model to images, batch by batch and without missing one."""

from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx

from cloc_jax import model_state
from cloc_jax.data import pipeline
from cloc_jax.methods import Method
from cloc_jax.model_state import ModelState


def predictor(graph: nnx.GraphDef, method: Method) -> Callable[..., dict[str, Any]]:
    """Compiled (state, images) -> what `method.predict` returns, in evaluation mode."""

    @jax.jit
    def predict(state, images):
        return method.predict(_evaluating(graph, state), images, None)

    return predict


def embedder(graph: nnx.GraphDef, method: Method) -> Callable[..., dict[str, Any]]:
    """Compiled (state, images) -> {"embedding"}, in evaluation mode."""

    @jax.jit
    def embed(state, images):
        return {"embedding": method.embed(_evaluating(graph, state), images)}

    return embed


def _evaluating(graph: nnx.GraphDef, state: ModelState) -> nnx.Module:
    return nnx.view(model_state.merge(graph, state), use_running_average=True)


def over(
    function: Callable[..., dict[str, Any]],
    state: ModelState,
    source: pipeline.Source,
    *,
    batch_size: int,
    threads: int,
    between: Callable[[], None] = lambda: None,
) -> dict[str, np.ndarray]:
    """`function` on every image of a source, in its order; `between` batches."""
    batch_size = min(batch_size, len(source))
    parts = []
    for batch in pipeline.evaluation_batches(source, batch_size, threads=threads):
        outputs = function(state, batch["image"])
        parts.append({k: np.asarray(v) for k, v in outputs.items() if v is not None})
        between()
    return {k: np.concatenate([p[k] for p in parts])[: len(source)] for k in parts[0]}
