"""Applying a trained model to images, batch by batch and without missing one."""

import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from cloc_jax.data import pipeline
from cloc_jax.data.source import KeptFeatures, Source
from cloc_jax.methods import Labelled, Method, Support
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState


# Runs of a sweep share their graph: compile once for all of them.
@functools.lru_cache(maxsize=8)
def compiled(graph: nnx.GraphDef, function: Callable, mesh: Mesh) -> Callable:
    """A method's `predict` or `embed` in evaluation mode, of (state, support, images)
    or (state, images)."""

    def apply(state, *given):
        *support, images = given
        return function(checkpoint.evaluating(graph, state), images, *support)

    # Every process receives all results.
    return jax.jit(apply, out_shardings=sharding.copied(mesh))


def over(
    function: Callable[[Any], Any],
    source: Source,
    mesh: Mesh,
    *,
    batch_size: int,
    threads: int,
    between: Callable[[], None] = lambda: None,
    is_padded: bool = False,
) -> Any:
    """`function` of all images of a source, in its order, as numpy arrays.

    It gets a batch of images and returns a pytree of arrays [batch, …]; `between` is
    called after each batch. A source of images smaller than a batch makes a smaller
    one, unless `is_padded`. Each process whose devices the mesh has reads its share of
    a batch, and gets all results.
    """
    is_padded = is_padded or isinstance(source, KeptFeatures)
    size = batch_size if is_padded else min(batch_size, len(source))
    # Rounded up to what divides over the devices; padding is cut off at the end.
    batch_size = -(-size // mesh.size) * mesh.size
    parts, together = [], sharding.processes(mesh)
    for batch in pipeline.evaluation_batches(
        source,
        batch_size,
        threads=threads,
        share=(together.index(jax.process_index()), len(together)),
        place=functools.partial(sharding.place_batch, mesh=mesh),
    ):
        parts.append(jax.tree.map(np.asarray, function(batch["image"])))
        between()
    return jax.tree.map(lambda *rows: np.concatenate(rows)[: len(source)], *parts)


def fit_support(
    method: Method,
    graph: nnx.GraphDef,
    state: ModelState,
    embed: Callable[[str], np.ndarray],
    labels: Mapping[str, np.ndarray],
) -> Support | None:
    """What the method needs besides its model to predict; None where nothing.

    `embed` gives the embeddings of "train" or "val".
    """
    if method.fit is None:
        return None
    train, val = (
        Labelled(embed(s), np.asarray(labels[s])) if s in method.fit_reads else None
        for s in ("train", "val")
    )
    return method.fit(checkpoint.evaluating(graph, state), train, val)
