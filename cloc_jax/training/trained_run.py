"""A run whose stages are trained: loaded to predict, or made one program for others."""

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
from cloc_jax.data.source import InMemory, Source
from cloc_jax.encoders import convolution
from cloc_jax.methods import Method, Prediction
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import exported_model, inference, predictions
from cloc_jax.training import assembly, encoder, kept_features

Outputs = dict[str, Array]  # fields of a Prediction
Structure = tuple[nnx.GraphDef, ModelState]  # of a module, with arrays of its shapes

PLATFORMS = ("cpu", "cuda", "tpu")
TRUNK = "trunk."  # before the names of the frozen parts' arrays


class TrainedRun:
    """One stage's model of a run, by default the last one's, with its support.

    Sources are given as the run's dataset has them: images, or kept features where
    its encoder is frozen. `prepared` makes the latter of images.
    """

    def __init__(
        self,
        config: ConfigDict,
        folder: RunFolder,
        parts: assembly.Parts | None = None,
        *,
        stage: str = "",
    ):
        self.config, self.folder, self._parts = config, folder, parts
        self.ranks: list[str] = list(folder.read_dataset()["ranks"])
        if parts is None:
            self.mesh = sharding.make_mesh(config.mesh.devices)
            self.method = assembly.build_method(config, len(self.ranks), self.mesh)
            create = encoder.Creator(config, self.method)
        else:
            folder.check_images(parts.describe())
            self.mesh, self.method, create = parts.mesh, parts.method, parts.create
        self.stage = stage or self.method.stages[-1].name
        folder.read_stage(self.stage)  # a stage that has not finished says so
        self.graph, like = checkpoint.split_model(nnx.eval_shape(create.random))
        copied = sharding.copied(self.mesh)
        self.state = checkpoint.load_model(folder.stage(self.stage), like, copied)
        self.support = jax.device_put(folder.read_support(self.stage), copied)

    def at(self, stage: str) -> "TrainedRun":
        """The same run as another of its stages left it."""
        return TrainedRun(self.config, self.folder, self._parts, stage=stage)

    def predict(self, source: Source, *, batch_size: int = 0) -> Prediction:
        """Predictions for all items, as numpy arrays."""
        predictor = inference.compiled(self.graph, self.method.predict, self.mesh)
        predict = functools.partial(predictor, self.state, self.support)
        return self._over(predict, source, batch_size)

    @property
    def prediction_batch(self) -> int:
        """The most images that `predict` looks at in one go, frozen parts included."""
        most = self.config.train.eval_batch_size
        return min(most, kept_features.BATCH) if self.has_trunk else most

    @property
    def has_trunk(self) -> bool:
        """Whether the model takes the output of frozen parts in place of images."""
        return bool(encoder.entrance(self.config))

    def embed(self, source: Source) -> np.ndarray:
        """Embeddings [item, dim]."""
        embedder = inference.compiled(self.graph, self.method.embed, self.mesh)
        return self._over(functools.partial(embedder, self.state), source, 0)

    def model(self) -> Any:
        """The model as an object, in evaluation mode."""
        return checkpoint.evaluating(self.graph, self.state)

    def predict_images(
        self,
        arrays: Sequence[np.ndarray],
        batch_size: int,
        names: Sequence[str] = (),
    ) -> Prediction:
        """Predictions for images that `network_input` prepared, in batches of a size.

        `names` are for messages.
        """
        ids = names or [f"image {i}" for i in range(len(arrays))]
        images = self.prepared(InMemory(arrays, ids), batch_size=batch_size)
        return self.predict(images, batch_size=batch_size)

    def prepared(self, images: Source, *, batch_size: int) -> Source:
        """Images as the model takes them: themselves, or what frozen parts make."""
        if not self.has_trunk:
            return images
        features = self.trunk.over(
            images,
            batch_size=min(batch_size, kept_features.BATCH),
            threads=self.config.data.threads,
        )
        return InMemory(list(features), images.ids)

    @functools.cached_property
    def trunk(self) -> kept_features.Trunk:
        """The frozen parts that the model's inputs come from, where there are any."""
        return encoder.build_trunk(self.config, self.mesh, self.folder)

    def _over(self, function: Callable, source: Source, batch_size: int) -> Any:
        outputs = inference.over(
            function,
            source,
            self.mesh,
            batch_size=batch_size or self.config.train.eval_batch_size,
            threads=self.config.data.threads,
            is_padded=bool(batch_size),
        )
        predictions.check_finite(
            jax.tree.leaves(outputs),
            source.ids,
            f"the model {self.folder.stage(self.stage)}",
            "The model is damaged or its training diverged: put back a copy of it, or "
            "train the run again.",
        )
        return outputs


class Program(NamedTuple):
    """Prediction as one program that needs none of our code, its arrays beside it."""

    artifact: bytes  # of jax.export; takes weights, support and uint8 images
    weights: dict[str, np.ndarray]
    support: dict[str, np.ndarray]  # of methods that `fit`; {} for others
    outputs: tuple[str, ...]  # fields of a Prediction


def export_program(run: TrainedRun) -> Program:
    """The program of a run, for every platform and any number of images.

    Frozen parts are in it. Arrays are arguments, so it is compiled as in a run.
    """
    weights, trunk = _named(run.state), None
    if run.has_trunk:
        trunk = run.trunk.graph, run.trunk.state
        weights |= _named(trunk[1], TRUNK, encoder.frozen_groups(run.config))
    predict = _function(run.config, run.method, (run.graph, run.state), trunk)
    support = {k: np.asarray(v) for k, v in (run.support or {}).items()}
    data = run.config.data
    (batch,) = export.symbolic_shape("batch")
    images = jax.ShapeDtypeStruct((batch, *data.size, data.channels), np.uint8)
    shapes = jax.eval_shape(lambda *trees: trees, weights, support)
    exported = export.export(jax.jit(predict), platforms=PLATFORMS)(*shapes, images)
    outputs = jax.tree.unflatten(exported.out_tree, exported.out_avals)
    return Program(bytes(exported.serialize()), weights, support, tuple(outputs))


def rebuild_program(folder: pathlib.Path) -> Callable[[Array], Outputs]:
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
    model, trunk = checkpoint.split_model(nnx.eval_shape(create.random)), None
    if encoder.entrance(config):
        whole = nnx.eval_shape(lambda: encoder.build(config, nnx.Rngs(0)))
        trunk = checkpoint.split_model(whole)
    weights = load_file(folder / exported_model.WEIGHTS)
    kept = folder / exported_model.SUPPORT
    support = load_file(kept) if kept.exists() else {}
    predict = _function(config, method, model, trunk)

    def traceable(images):
        with convolution.for_cpu():
            return predict(weights, support, images)

    return traceable


def _function(
    config: ConfigDict, method: Method, model: Structure, trunk: Structure | None
) -> Callable[..., Outputs]:
    """(weights, support, images) -> the fields of a Prediction that there are."""
    until = encoder.entrance(config)

    def predict(weights, support, images):
        inputs = images
        if trunk:
            graph, like = trunk
            whole = checkpoint.evaluating(graph, _filled(like, weights, TRUNK))
            inputs = whole.before(images, None if until == encoder.FEATURES else until)
            inputs = inputs.astype(encoder.kept_dtype(config))
            # Two programs in a run: one compiler pass over both would round otherwise.
            inputs = jax.lax.optimization_barrier(inputs)
        graph, like = model
        whole = checkpoint.evaluating(graph, _filled(like, weights))
        prediction = method.predict(whole, inputs, support or None)
        return {k: v for k, v in prediction._asdict().items() if v is not None}

    return predict


def _named(
    state: ModelState, prefix: str = "", used: Sequence[str] = ()
) -> dict[str, np.ndarray]:
    """The arrays of a state by name.

    Without random keys, which evaluation does not use, and parts that are not `used`.
    """
    return {
        prefix + name: np.asarray(leaf)
        for path, leaf in jax.tree_util.tree_leaves_with_path(state)
        for name in [_name(path)]
        if not checkpoint.is_key(leaf) and (not used or name.split(".")[0] in used)
    }


def _filled(
    like: ModelState, arrays: Mapping[str, Array | np.ndarray], prefix: str = ""
) -> Any:
    """The state with the arrays that `_named` gave; what it left out is not used."""

    def one(path: tuple[Any, ...], leaf: Any) -> Array:
        name = prefix + _name(path)
        if name in arrays:
            return jnp.asarray(arrays[name])
        if checkpoint.is_key(leaf):
            return jnp.broadcast_to(jax.random.key(0), leaf.shape)
        return jnp.zeros(leaf.shape, leaf.dtype)

    return jax.tree_util.tree_map_with_path(one, like)


def _name(path: tuple[Any, ...]) -> str:
    """encoder.layer1.….kernel, without the state's own first and last keys."""
    text = jax.tree_util.keystr(path, simple=True, separator=".")
    return text.removesuffix(".value").partition(".")[2]
