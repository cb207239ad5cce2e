"""Functions of one run's model, for the stacked models of many runs at once."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P

from cloc_jax import methods
from cloc_jax.methods import Prediction
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.training.train_step import Carry

CHUNK = 1024  # items evaluated at a time


def one_of(models: ModelState, i: int) -> ModelState:
    """One run's model, on the first device."""
    one = jax.tree.map(lambda leaf: leaf[i], models)
    return jax.device_put(one, jax.local_devices()[0])


def _zeros(like: jax.ShapeDtypeStruct) -> jax.Array:
    if jax.dtypes.issubdtype(like.dtype, jax.dtypes.prng_key):
        return jax.random.clone(jnp.broadcast_to(jax.random.key(0), like.shape))
    return jnp.zeros(like.shape, like.dtype)


def over_runs(
    function: Callable, mesh: Mesh, goes_on: jax.Array, shared: Any, *stacked: Any
) -> Any:
    """`function(shared, *arguments)` of every run that goes on, each device its share.

    Zeros, or anything, for the others.
    """

    def one(shared, alive, arguments):
        def going_on(arguments):
            return function(shared, *arguments)

        shapes = jax.eval_shape(going_on, arguments)
        ended = jax.tree.map(_zeros, shapes)
        return jax.lax.cond(alive, going_on, lambda _: ended, arguments)

    def of_device(shared, goes_on, stacked):
        if jax.default_backend() == "cpu":
            return jax.lax.map(lambda runs: one(shared, *runs), (goes_on, stacked))
        return jax.vmap(lambda arguments: function(shared, *arguments))(stacked)

    split = P(sharding.AXIS)
    return jax.shard_map(
        of_device,
        mesh=mesh,
        in_specs=(P(), split, split),
        out_specs=split,
        check_vma=False,  # runs have nothing to say to each other
    )(shared, goes_on, stacked)


def epoch_function(step: Callable, make_batch: Callable, mesh: Mesh) -> Callable:
    """Compiled epoch of all runs.

    (carry, inputs [view, item, …], labels [run, item], rows [run, step, …], keys,
    goes_on [run]) -> carry
    """

    def run_epoch(carry: Carry, inputs, labels, rows, keys, goes_on) -> Carry:
        def one_run(inputs, carry: Carry, labels, rows, key) -> Carry:
            def one_step(carry, rows):
                return step(carry, make_batch(inputs, labels, rows), key), None

            zeros = jax.tree.map(jnp.zeros_like, carry.totals)
            return jax.lax.scan(one_step, carry._replace(totals=zeros), rows)[0]

        return over_runs(one_run, mesh, goes_on, inputs, carry, labels, rows, keys)

    return jax.jit(run_epoch, donate_argnums=0)


class Functions:
    """What a method makes of all runs' models at once."""

    def __init__(self, graph: nnx.GraphDef, method: methods.Method, mesh: Mesh):
        self._per: dict[str, str] = {}  # of each readout, known once it is traced

        def predict(images, state: ModelState, support) -> Prediction:
            return method.predict(checkpoint.evaluating(graph, state), images, support)

        def embed(images, state: ModelState) -> jax.Array:
            return method.embed(checkpoint.evaluating(graph, state), images)

        def readouts(state: ModelState) -> dict[str, jax.Array]:
            found = method.readouts(checkpoint.merge_model(graph, state))
            self._per |= {name: readout.per for name, readout in found.items()}
            return {name: readout.values for name, readout in found.items()}

        def compiled(function: Callable) -> Callable:
            return jax.jit(
                lambda images, goes_on, *stacked: over_runs(
                    function, mesh, goes_on, images, *stacked
                )
            )

        self._predict, self._embed = compiled(predict), compiled(embed)
        self._readouts = jax.jit(jax.vmap(readouts))

    def predict(
        self, models: ModelState, images: jax.Array, goes_on: np.ndarray, support: Any
    ) -> Prediction:
        """Predictions [run, item, …]."""
        return _in_chunks(lambda x: self._predict(x, goes_on, models, support), images)

    def embed(
        self, models: ModelState, images: jax.Array, goes_on: np.ndarray
    ) -> np.ndarray:
        """Embeddings [run, item, dim]."""
        return _in_chunks(lambda x: self._embed(x, goes_on, models), images)

    def readouts(self, models: ModelState) -> dict[str, tuple[np.ndarray, str]]:
        """Values [run, value] by name, and what there is one of."""
        values = jax.device_get(self._readouts(models))
        return {name: (array, self._per[name]) for name, array in values.items()}


def _in_chunks(function: Callable, images: jax.Array) -> Any:
    parts = [
        jax.device_get(function(images[start : start + CHUNK]))
        for start in range(0, len(images), CHUNK)
    ]
    return jax.tree.map(lambda *chunks: np.concatenate(chunks, axis=1), *parts)


@jax.jit
def choose(which: jax.Array, new: Any, old: Any) -> Any:
    """`new` for the runs that `which` marks, `old` for the others."""

    def one(a, b):
        return jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(one, new, old)
