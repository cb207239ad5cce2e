"""A trained run's prediction as one program that needs none of our code to run."""

import functools
import json
import pathlib
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax import export
from jaxtyping import Array
from ml_collections import ConfigDict
from safetensors.numpy import load_file

from cloc_jax.config import saved_config
from cloc_jax.encoders import convolution
from cloc_jax.methods import Method
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.scoring import exported_model
from cloc_jax.training import assembly, encoder
from cloc_jax.training.trained_run import TrainedRun

Outputs = dict[str, Array]  # fields of a Prediction

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
    model = _Part(run.graph, run.state)
    weights = model.named(run.state)
    trunk = None
    if run.has_trunk:
        used = encoder.frozen_groups(run.config)
        trunk = _Part(run.trunk.graph, run.trunk.state, TRUNK, used)
        weights |= trunk.named(run.trunk.state)
    predict = _function(run.config, run.method, model, trunk)
    support = {k: np.asarray(v) for k, v in (run.support or {}).items()}
    data = run.config.data
    (batch,) = export.symbolic_shape("batch")
    images = jax.ShapeDtypeStruct((batch, *data.size, data.channels), np.uint8)
    shapes = [jax.tree.map(_shape, tree) for tree in (weights, support)]
    exported = export.export(jax.jit(predict), platforms=PLATFORMS)(*shapes, images)
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    return Program(bytes(exported.serialize()), weights, support, tuple(outputs))


def rebuild(folder: pathlib.Path) -> Callable[[Array], Outputs]:
    """Predictions of images as a function that other tools can trace, ONNX's for one.

    It is built from the configuration and the weights of an exported folder; the
    program in there cannot be looked into.
    """
    exported_model.check(folder)
    values = json.loads((folder / exported_model.CONFIG).read_text())
    ranks = json.loads((folder / exported_model.ABOUT).read_text())["ranks"]
    config = saved_config(values)
    method = assembly.build_method(config, len(ranks), sharding.make_mesh(1))
    create = encoder.Creator(config, method)
    model = _Part(*checkpoint.split_model(nnx.eval_shape(create.random)))
    trunk = None
    if encoder.entrance(config):
        whole = nnx.eval_shape(lambda: encoder.build(config, nnx.Rngs(0)))
        used = encoder.frozen_groups(config)
        trunk = _Part(*checkpoint.split_model(whole), TRUNK, used)
    weights = load_file(folder / exported_model.WEIGHTS)
    kept = folder / exported_model.SUPPORT
    support = load_file(kept) if kept.exists() else {}
    predict = _function(config, method, model, trunk)

    def traceable(images):
        with convolution.for_cpu():
            return predict(weights, support, images)

    return traceable


def _function(
    config: ConfigDict, method: Method, model: "_Part", trunk: "_Part | None"
) -> Callable[..., Outputs]:
    """(weights, support, images) -> the fields of a Prediction that there are."""
    until = encoder.entrance(config)

    def predict(weights, support, images):
        inputs = images
        if trunk:
            whole = checkpoint.evaluating(trunk.graph, trunk.filled(weights))
            inputs = whole.before(images, None if until == encoder.FEATURES else until)
            inputs = inputs.astype(encoder.kept_dtype(config))
            # In a run these are two programs: what one compiler pass makes of both
            # together would round otherwise.
            inputs = jax.lax.optimization_barrier(inputs)
        whole = checkpoint.evaluating(model.graph, model.filled(weights))
        found = method.predict(whole, inputs, support or None)
        return {k: v for k, v in found._asdict().items() if v is not None}

    return predict


class _Part:
    """A module whose arrays go by names.

    Random keys, of which evaluation uses none, and parts of it that are not `used` are
    left out.
    """

    def __init__(
        self,
        graph: nnx.GraphDef,
        like: ModelState,
        prefix: str = "",
        used: Sequence[str] = (),
    ):
        self.graph = graph
        self._filling: list[str | Callable[[], Array]] = []
        found, self._tree = jax.tree_util.tree_flatten_with_path(like)
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

    def named(self, state: ModelState) -> dict[str, np.ndarray]:
        """The arrays of a state by name."""
        pairs = zip(self._filling, jax.tree.leaves(state), strict=True)
        return {f: np.asarray(leaf) for f, leaf in pairs if isinstance(f, str)}

    def filled(self, arrays: Mapping[str, Array | np.ndarray]) -> Any:
        """The state with these arrays."""
        leaves = [
            jnp.asarray(arrays[f]) if isinstance(f, str) else f() for f in self._filling
        ]
        return jax.tree.unflatten(self._tree, leaves)


def _key(shape: tuple[int, ...]) -> Array:
    key = jax.random.key(0)
    return key if not shape else jnp.broadcast_to(key, shape)


def _names(path: tuple[Any, ...]) -> list[str]:
    """encoder, layer1, …, kernel; without the state's own first and last keys."""
    text = jax.tree_util.keystr(path, simple=True, separator=".")
    return text.removesuffix(".value").split(".")[1:]


def _shape(array: np.ndarray) -> jax.ShapeDtypeStruct:
    return jax.ShapeDtypeStruct(array.shape, array.dtype)
