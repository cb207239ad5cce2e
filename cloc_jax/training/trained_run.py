"""A run whose stages are trained, loaded to be used: the only way to do so."""

import functools
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax.data.source import InMemory, Source
from cloc_jax.methods import Prediction
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import inference
from cloc_jax.training import assembly, encoder, kept_features


def load_stage(
    folder: RunFolder, name: str, create: encoder.Creator, mesh: Mesh
) -> tuple[nnx.GraphDef, ModelState]:
    """The model that a finished stage handed over."""
    graph, like = checkpoint.split_model(nnx.eval_shape(create.random))
    path = folder.stage(name)
    return graph, checkpoint.load_model(path, like, sharding.copied(mesh))


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
        self.graph, self.state = load_stage(folder, self.stage, create, self.mesh)
        self.support = jax.device_put(
            folder.read_support(self.stage), sharding.copied(self.mesh)
        )
        if self.method.fit and self.support is None and self._is_scored():
            raise FileNotFoundError(
                f"{folder.stage(self.stage).with_suffix('.npz')} is missing, without "
                f"which {config.method.name} cannot predict. Train the run again."
            )

    def at(self, stage: str) -> "TrainedRun":
        """The same run as another of its stages left it."""
        return TrainedRun(self.config, self.folder, self._parts, stage=stage)

    def about(self) -> dict[str, str]:
        """What was trained, for its results."""
        return {
            "method": self.config.method.name,
            "dataset": self.config.data.name,
            "expect": self.config.expect,
        }

    def predict(self, source: Source, *, batch_size: int = 0) -> Prediction:
        """Predictions for all items, as numpy arrays."""
        predictor = inference.predictor(self.graph, self.method, self.mesh)
        found = self._over(
            lambda images: predictor(self.state, images, self.support),
            source,
            batch_size,
        )
        return self._finite(found, source)

    @property
    def prediction_batch(self) -> int:
        """The most images that `predict` looks at in one go, frozen parts included."""
        most = self.config.train.eval_batch_size
        return min(most, encoder.EXTRACTION_BATCH) if self.has_trunk else most

    @property
    def has_trunk(self) -> bool:
        """Whether the model takes the output of frozen parts in place of images."""
        return bool(encoder.entrance(self.config))

    def embed(self, source: Source) -> np.ndarray:
        """Embeddings [item, dim]."""
        embedder = inference.embedder(self.graph, self.method, self.mesh)
        found = self._over(functools.partial(embedder, self.state), source, 0)
        return self._finite(found, source)

    def model(self) -> Any:
        """The model as an object, in evaluation mode."""
        return checkpoint.evaluating(self.graph, self.state)

    def prepared(self, images: Source, *, batch_size: int) -> Source:
        """Images as the model takes them: themselves, or what frozen parts make."""
        if not self.has_trunk:
            return images
        features = self.trunk.over(
            images,
            batch_size=min(batch_size, encoder.EXTRACTION_BATCH),
            threads=self.config.data.threads,
        )
        return InMemory(list(features), images.ids)

    @functools.cached_property
    def trunk(self) -> kept_features.Trunk:
        """The frozen parts that the model's inputs come from, where there are any."""
        return encoder.build_trunk(self.config, self.mesh, self.folder)

    def _finite(self, found: Any, source: Source) -> Any:
        """What was found, or ValueError where some of it is no number."""
        item = inference.first_not_finite(found)
        if item is None:
            return found
        raise ValueError(
            f"the model {self.folder.stage(self.stage)} gives numbers that are not "
            f"finite, such as for {source.ids[item]}, so there is no result. "
            "The model is damaged or its training diverged: put back a copy of it, or "
            "train the run again."
        )

    def _is_scored(self) -> bool:
        return next(s for s in self.method.stages if s.name == self.stage).is_scored

    def _over(self, function: Callable, source: Source, batch_size: int) -> Any:
        return inference.over(
            function,
            source,
            self.mesh,
            batch_size=batch_size or self.config.train.eval_batch_size,
            threads=self.config.data.threads,
            is_padded=bool(batch_size),
        )
