"""Training on feature vectors that are in memory, without a run folder.

Stages, steps, samplers, stop rules and support are those of the loop; what it writes
and what can be resumed is left out. Programs are compiled once for a configuration, a
number of features and a number of ranks, whatever the number of rows.
"""

import functools
import json
import time
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from cloc_jax import methods
from cloc_jax.data import samplers
from cloc_jax.encoders.identity import Identity
from cloc_jax.methods import Context, Prediction, Readout, Stage, Support
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.scoring import inference, predictions
from cloc_jax.training import assembly, epoch_end, train_step
from cloc_jax.training import optimizer as optimizers
from cloc_jax.training.loop import NonFinite, enter

ROWS = 256  # evaluated at a time, always as many, so that one program serves all
EPOCH_STEPS = 20  # at least; items of small data are repeated within an epoch


class Rows(NamedTuple):
    """Labelled feature vectors."""

    features: np.ndarray  # float32 [row, feature]
    labels: np.ndarray  # int32 [row], index of the rank


class Learned(NamedTuple):
    """What training found, as plain arrays."""

    leaves: list[np.ndarray]  # of the model
    support: Support | None
    epochs: int  # of all stages


def check(config: ConfigDict) -> None:
    """ValueError where the method cannot work on feature vectors."""
    name = config.method.name
    if name not in methods.METHODS:
        raise ValueError(
            f"method is {name!r}; this version has {', '.join(methods.METHODS)}."
        )
    if config.optimizer.schedule != "constant" or config.optimizer.warmup_epochs:
        raise ValueError("training in memory has a constant learning rate only.")


@functools.lru_cache(maxsize=64)
def _cached(text: str, num_features: int, ranks: int) -> "Trainer":
    return Trainer(ConfigDict(_with_tuples(json.loads(text))), num_features, ranks)


def _with_tuples(value: Any) -> Any:
    """JSON's lists as the tuples that configurations have."""
    if isinstance(value, dict):
        return {key: _with_tuples(below) for key, below in value.items()}
    return tuple(value) if isinstance(value, list) else value


def trainer(config: ConfigDict, num_features: int, num_ranks: int) -> "Trainer":
    """The trainer of a configuration, with what it has compiled already."""
    check(config)
    plain = config.to_dict() | {"seed": 0}  # given when it trains
    return _cached(json.dumps(plain, sort_keys=True), num_features, num_ranks)


class Trainer:
    """A method on feature vectors, with its compiled programs."""

    def __init__(self, config: ConfigDict, num_features: int, num_ranks: int):
        self.config = config
        self._mesh = sharding.make_mesh(1)
        self._ranks = [str(i) for i in range(num_ranks)]
        self._method = assembly.build_method(config, num_ranks, self._mesh)
        for stage in self._method.stages:
            if any(view != methods.View() for view in stage.views):
                raise ValueError(
                    f"method {config.method.name} compares augmented images, which "
                    "feature vectors do not have; use another one, such as cloc."
                )

        def make(seed: Any = 0) -> nnx.Module:
            rngs = nnx.Rngs(jax.random.key(seed))
            return self._method.init(Identity(num_features, is_signed=True), rngs)

        self._make = checkpoint.compiled_model(make)
        self.graph, self._like = checkpoint.split_model(nnx.eval_shape(make))
        self._stages = [self._compiled(stage) for stage in self._method.stages]

    def _compiled(self, stage: Stage) -> "_Steps":
        settings = self.config.optimizer.to_dict()
        settings.pop("encoder_learning_rate")  # there is no encoder
        optimizer = optimizers.build(
            stage.trains,
            methods.group_of,
            # Of schedules, which are constant here: any number of rows is the same
            # program.
            steps_per_epoch=1,
            epochs=1,
            **(settings | dict(stage.optimizer)),
        )
        step = train_step.step_function(self.graph, stage, optimizer, num_steps=1)
        return _Steps(stage, optimizer, jax.jit(step, donate_argnums=0))

    def train(self, train: Rows, val: Rows, *, seed: int) -> Learned:
        """The model after all stages."""
        initial = functools.partial(self._make, np.uint32(seed))
        state = checkpoint.split_model(initial())[1]
        epochs, support = 0, None
        for index, steps in enumerate(self._stages):
            run = _StageRun(self, steps, index, train, val, seed)
            state = run.train(state, initial)
            epochs += run.epochs
            support = self.fit(state, train, val) if steps.stage.is_scored else None
        leaves = [np.asarray(leaf) for leaf in jax.tree.leaves(state)]
        return Learned(leaves, support, epochs)

    def state(self, learned: Learned) -> ModelState:
        """The model's arrays."""
        return jax.tree.unflatten(jax.tree.structure(self._like), learned.leaves)

    def predict(
        self, state: ModelState, support: Support | None, features: np.ndarray
    ) -> Prediction:
        """Predictions of rows, as numpy arrays."""
        predictor = inference.predictor(self.graph, self._method, self._mesh)
        return _over(lambda rows: predictor(state, rows, support), features)

    def embed(self, state: ModelState, features: np.ndarray) -> np.ndarray:
        """Embeddings [row, dim]."""
        embedder = inference.embedder(self.graph, self._method, self._mesh)
        return _over(lambda rows: embedder(state, rows), features)

    def fit(self, state: ModelState, train: Rows, val: Rows) -> Support | None:
        """What the method needs besides a model to predict."""
        splits = {"train": train, "val": val}
        return inference.fit_support(
            self._method,
            self.graph,
            state,
            lambda split: self.embed(state, splits[split].features),
            {name: rows.labels for name, rows in splits.items()},
        )

    def readouts(self, state: ModelState) -> dict[str, Readout]:
        """The method's values for people."""
        arrays = jax.tree.map(jnp.asarray, state)  # it may have been unpickled
        return self._method.readouts(checkpoint.merge_model(self.graph, arrays))

    def score(self, state: ModelState, support: Support | None, rows: Rows) -> dict:
        """Metrics of labelled rows."""
        found = self.predict(state, support, rows.features)
        return predictions.score(found, rows.labels, self._ranks)


class _Steps(NamedTuple):
    stage: Stage
    optimizer: Any
    step: Callable


class _StageRun:
    """One stage, trained to its end."""

    def __init__(
        self,
        trainer: Trainer,
        steps: _Steps,
        index: int,
        train: Rows,
        val: Rows,
        seed: int,
    ):
        self._trainer, self._steps, self._index = trainer, steps, index
        self._splits, self._seed = {"train": train, "val": val}, seed
        self._copies = copies(train.labels, trainer.config.train.batch_size)
        self._batches = samplers.make(
            steps.stage.sampler,
            np.tile(train.labels, self._copies),
            trainer.config.train.batch_size,
            mode=trainer.config.train.sampling,
            seed=(seed, index),
            ranks=(),
        )
        self.epochs = 0

    def train(self, state: ModelState, initial: Callable) -> ModelState:
        """The model that the stage hands over."""
        trainer, steps, stage = self._trainer, self._steps, self._steps.stage
        train = self._splits["train"]
        per_epoch = self._batches.steps_per_epoch
        context = Context(
            initial,
            functools.partial(trainer.embed, state, train.features),
            train.labels,
            per_epoch * stage.stop.max_epochs,
        )
        state = enter(stage, self._index, trainer.graph, state, context, self._seed)
        names = train_step.scalar_names(trainer.graph, stage, state, self._batch(0))
        carry = train_step.first_carry(state, steps.optimizer, names)
        key = train_step.stage_key(self._seed, self._index)
        best, stop, rule = _copy(carry.model), stage.stop.init(), ""
        started = time.monotonic()
        while not rule:
            carry = carry._replace(totals=jax.tree.map(jnp.zeros_like, carry.totals))
            first = self.epochs * per_epoch
            for step in range(first, first + per_epoch):
                carry = steps.step(carry, self._batch(step), key)
            self.epochs += 1
            verdict, _ = epoch_end.end_epoch(
                stage,
                stop,
                epoch=self.epochs,
                step=first + per_epoch,
                means=self._means(carry),
                scores=self._scores(carry.model),
                readouts={},
                seconds=time.monotonic() - started,
            )
            stop, rule = verdict.state, verdict.rule
            if verdict.improved:
                best = _copy(carry.model)
        return best if stage.hand_over == "best" else carry.model

    def _batch(self, step: int) -> dict[str, Any]:
        train = self._splits["train"]
        items = self._batches.batch(step) % len(train.labels)
        rows = train.features[items]  # [row, feature] or [row, item of it, feature]
        images = rows if items.ndim == 1 else tuple(np.moveaxis(rows, 1, 0))
        return {
            "id": items.astype(np.int32),
            "image": images,
            "label": train.labels[items],
            "mask": np.ones(len(items), bool),
        }

    def _scores(self, state: ModelState) -> dict[str, dict[str, Any]]:
        stage, trainer = self._steps.stage, self._trainer
        if not stage.is_scored:
            return {}
        support = trainer.fit(state, self._splits["train"], self._splits["val"])
        return {
            split: trainer.score(state, support, self._splits[split])
            for split in stage.stop.reads
        }

    def _means(self, carry: train_step.Carry) -> dict[str, float]:
        bad_step, totals = jax.device_get((carry.bad_step, carry.totals))
        if bad_step >= 0:
            raise NonFinite(
                "the loss or a gradient was not finite. Scale the features, such as by "
                "StandardScaler in a pipeline, or use a smaller learning_rate."
            )
        per_epoch = self._batches.steps_per_epoch
        return {name: float(total) / per_epoch for name, total in totals.items()}


def copies(labels: np.ndarray, batch_size: int) -> int:
    """How often items are repeated in an epoch, so that it has EPOCH_STEPS steps.

    Batches are made of pairs of one rank, and some pair in each is of another: so a
    rank with one item needs two copies, and few items of other ranks need more.
    """
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    others = len(labels) - counts.max()  # not of the most common rank
    for_rows = -(-EPOCH_STEPS * batch_size // len(labels))
    for_pairs = -(-2 * EPOCH_STEPS // max(others, 1))
    # An odd item of each rank is left out, hence one more.
    found = int(max(for_rows, for_pairs, 1))
    return found + 1 if found > 1 or counts.min() < 2 else 1


def _copy(model: ModelState) -> ModelState:
    return jax.tree.map(jnp.copy, model)


def _over(function: Callable[[np.ndarray], Any], features: np.ndarray) -> Any:
    """`function` of all rows, as numpy arrays, ROWS at a time."""
    parts = []
    for first in range(0, len(features), ROWS):
        some = features[first : first + ROWS]
        padded = np.zeros((ROWS, features.shape[1]), np.float32)
        padded[: len(some)] = some
        parts.append(jax.tree.map(np.asarray, function(padded)))
    return jax.tree.map(lambda *rows: np.concatenate(rows)[: len(features)], *parts)
