"""A trained run's prediction as one program that needs none of our code to run."""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from jax import export
from jaxtyping import Array

from cloc_jax.build import encoder
from cloc_jax.build.trained_run import TrainedRun
from cloc_jax.runtime import model_state
from cloc_jax.runtime.model_state import ModelState

PLATFORMS = ("cpu", "cuda", "tpu")
TRUNK = "trunk"  # before the names of the frozen parts' arrays


class Program(NamedTuple):
    """From images to predictions, with its arrays beside it."""

    artifact: bytes  # of jax.export; takes weights, support and uint8 images
    weights: dict[str, np.ndarray]
    support: dict[str, np.ndarray]  # of methods that `fit`; {} for others
    outputs: tuple[str, ...]  # fields of a Prediction


def build(run: TrainedRun) -> Program:
    """The program of a run, for every platform and any number of images.

    Frozen parts are in it, so that images go in. Arrays are arguments and not part of
    the program: they are stored once, and the compiler sees what it sees in a run.
    """
    of_model = _Arrays(run.state)
    of_trunk = None
    if run.has_trunk:
        used = encoder.frozen_groups(run.config)
        of_trunk = _Arrays(run.trunk.state, TRUNK, used)

    def predict(weights, support, images):
        inputs = images
        if of_trunk:
            inputs = run.trunk.function(of_trunk.filled(weights), images)
            # In a run these are two programs: what one compiler pass makes of both
            # together would round otherwise.
            inputs = jax.lax.optimization_barrier(inputs)
        model = model_state.evaluating(run.graph, of_model.filled(weights))
        found = run.method.predict(model, inputs, support or None)
        return {k: v for k, v in found._asdict().items() if v is not None}

    weights = of_model.named | (of_trunk.named if of_trunk else {})
    support = {k: np.asarray(v) for k, v in (run.support or {}).items()}
    data = run.config.data
    (batch,) = export.symbolic_shape("batch")
    images = jax.ShapeDtypeStruct((batch, *data.size, data.channels), np.uint8)
    shapes = [jax.tree.map(_shape, tree) for tree in (weights, support)]
    exported = export.export(jax.jit(predict), platforms=PLATFORMS)(*shapes, images)
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    return Program(bytes(exported.serialize()), weights, support, tuple(outputs))


class _Arrays:
    """The arrays of a model by name, and the model's state again from them.

    Random keys, of which evaluation uses none, and parts that are not `used` are left
    out of it.
    """

    def __init__(self, state: ModelState, prefix: str = "", used: Sequence[str] = ()):
        self.named: dict[str, np.ndarray] = {}
        self._filling: list[str | Callable[[], Array]] = []
        found, self._tree = jax.tree_util.tree_flatten_with_path(state)
        for path, leaf in found:
            first, *rest = _names(path)
            name = ".".join([prefix] * bool(prefix) + [first, *rest])
            if jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key):
                self._filling.append(functools.partial(_key, leaf.shape))
            elif used and first not in used:
                zeros = functools.partial(jnp.zeros, leaf.shape, leaf.dtype)
                self._filling.append(zeros)
            else:
                self._filling.append(name)
                self.named[name] = np.asarray(leaf)

    def filled(self, arrays: Mapping[str, Array]) -> Any:
        """The state with these arrays."""
        leaves = [arrays[f] if isinstance(f, str) else f() for f in self._filling]
        return jax.tree.unflatten(self._tree, leaves)


def _key(shape: tuple[int, ...]) -> Array:
    key = jax.random.key(0)
    return key if not shape else jnp.broadcast_to(key, shape)


def _names(path: tuple[Any, ...]) -> list[str]:
    """encoder, layer1, …, kernel; without the state's own first and last keys."""
    keys = [str(getattr(k, "key", getattr(k, "name", getattr(k, "idx", k)))) for k in path]
    return [key for key in keys[1:] if key != "value"]


def _shape(array: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
