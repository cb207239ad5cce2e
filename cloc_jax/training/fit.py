"""Training: the one loop for every method and every stage.

`fit` is a function of a method, data and plain settings. It knows no folder: what a
caller keeps, prints or asks for while it trains is the business of its `Callbacks`.
Batches follow from the step number: a resumed run repeats an unbroken one to the bit.
"""

import dataclasses
import functools
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from cloc_jax.data import pipeline, samplers
from cloc_jax.data.samplers import Sampler
from cloc_jax.data.source import Draw, Source
from cloc_jax.methods import Context, Method, Support, interface
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.scoring import inference, metrics, predictions
from cloc_jax.training import batches, train_step
from cloc_jax.training.train_step import Carry, NonFinite

Record = dict[str, Any]  # where training is, as plain data
LONG_STEP = 0.2  # seconds


@dataclasses.dataclass(frozen=True)
class Settings:
    """How to train, whatever the method; `cloc_jax/config.py` says what each means."""

    seed: int  # of batches, augmentation and dropout
    batch_size: int
    sampling: str
    optimizer: Mapping[str, Any]
    eval_batch_size: int
    threads: int
    epoch_steps: int = 1  # at least: items of few data are repeated in an epoch


class Resume(NamedTuple):
    """A checkpoint to go on from."""

    record: Record
    restore: Callable[[Any], Any]  # its arrays, shaped and placed as those given


class Fitted(NamedTuple):
    """What training found."""

    state: ModelState
    support: Support | None  # what the method needs besides the model to predict
    epochs: int  # of all stages that were trained here


class Callbacks:
    """What a caller does while `fit` trains; by default nothing.

    All are given the stage that is trained. Any may raise, which ends training.
    """

    def begin_stage(self, at: "StageFit") -> None:
        """Before the first step of a stage, or the first after a checkpoint."""

    def after_steps(self, at: "StageFit", began: float) -> None:
        """After a step, or several of features; `began` is when, by the clock."""

    def before_evaluation(self, at: "StageFit") -> None:
        """At an epoch's end, before it is evaluated."""

    def between_batches(self, at: "StageFit") -> None:
        """After each batch of an evaluation."""

    def after_epoch(self, at: "StageFit", row: Record) -> None:
        """At an epoch's end; `row` is what the history keeps of it."""

    def after_stage(
        self, at: "StageFit", state: ModelState, support: Support | None
    ) -> None:
        """At a stage's end, with the model that it hands over."""


class Training(NamedTuple):
    """What `fit` trains, on what and how."""

    method: Method
    # "train" and "val": images, or features that `method.init` was made for.
    splits: Mapping[str, Source]
    settings: Settings
    create: Callable[[], nnx.Module]  # the model as it starts
    ranks: Sequence[str]  # their names from lowest to highest
    mesh: Mesh
    # Of each stage, its batches, by default those of `samplers_of`, and how its views
    # of a training item are drawn, by default the item as it is.
    samplers: Sequence[Sampler] = ()
    views: Sequence[Sequence[Draw]] = ()
    callbacks: Callbacks = Callbacks()


def fit(task: Training, resume: Resume | None = None) -> Fitted:
    """Trains all stages; NonFinite where the loss or a gradient is not finite."""
    method, train = task.method, task.splits["train"]
    if not task.samplers:
        made = samplers_of(method, train.labels, task.settings, task.ranks)
        plain = [[lambda i, _: train[i]] * len(s.views) for s in method.stages]
        task = task._replace(samplers=made, views=plain)
    graph, state = checkpoint.split_model(task.create())
    support, epochs = None, 0
    first = resume.record["stage"] if resume else 0
    for index in range(first, len(method.stages)):
        stage = StageFit(task, graph, state, index, resume)
        epochs -= stage.record["epoch"]
        state, support = stage.train()
        epochs += stage.record["epoch"]
        resume = None
    return Fitted(state, support, epochs)


def samplers_of(
    method: Method, labels: np.ndarray, settings: Settings, ranks: Sequence[str]
) -> list[Sampler]:
    """The training batches of each stage, or ValueError where there can be none."""
    copies = _copies(labels, settings)
    made = [
        samplers.make(
            stage.sampler,
            np.tile(labels, copies),
            settings.batch_size,
            mode=settings.sampling,
            seed=(settings.seed, index),
            ranks=ranks,
        )
        for index, stage in enumerate(method.stages)
    ]
    return made if copies == 1 else [_Repeated(one, len(labels)) for one in made]


def _copies(labels: np.ndarray, settings: Settings) -> int:
    """How often items are repeated in an epoch, so that it has enough steps.

    Batches are made of pairs of one rank, and some pair in each is of another: so a
    rank with one item needs two copies, and few items of other ranks need more.
    """
    if settings.epoch_steps == 1:
        return 1
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    others = len(labels) - counts.max()  # not of the most common rank
    for_rows = -(-settings.epoch_steps * settings.batch_size // len(labels))
    for_pairs = -(-2 * settings.epoch_steps // max(others, 1))
    # An odd item of each rank is left out, hence one more.
    copies = int(max(for_rows, for_pairs, 1))
    return copies + 1 if copies > 1 or counts.min() < 2 else 1


class _Repeated(Sampler):
    """Batches of items that a sampler knows several copies of."""

    def __init__(self, sampler: Sampler, count: int):
        self._sampler, self._count = sampler, count
        self.batch_size, self.left_out = sampler.batch_size, sampler.left_out
        self.steps_per_epoch = sampler.steps_per_epoch

    def batch(self, step: int) -> np.ndarray:
        return self._sampler.batch(step) % self._count


class StageFit:
    """One stage of training, from its start or from a checkpoint within it.

    Attributes:
      step: steps of the stage that are done.
      carry: the model and all else that steps change.
      best: the model of the best epoch so far.
      record: where the stage is at this moment, as plain data; a checkpoint has it.
    """

    def __init__(
        self,
        task: Training,
        graph: nnx.GraphDef,
        state: ModelState,
        index: int,
        resume: Resume | None,
    ):
        self._task, self._graph = task, graph
        self.stage, self.sampler = task.method.stages[index], task.samplers[index]
        settings, train = task.settings, task.splits["train"]
        self.record: Record = {
            "stage": index,
            "step": 0,
            "epoch": 0,  # epochs that are done and evaluated
            "stop": dict(interface.START),
            "rule": "",  # the stop rule that fired
            "reason": "",
            "seconds": 0.0,
            "shares": {},  # in the last epoch
        }
        if resume:
            self.record |= {name: resume.record[name] for name in self.record}
        else:
            state = self._entered(state)
        self.step = self.record["step"]
        seed = (settings.seed, index)
        self._batches: batches.Streamed | batches.Gathered
        if batches.fit_memory(train):
            self._batches = batches.Gathered(
                train, task.mesh, self.sampler, self.stage, seed
            )
        else:
            streamed = pipeline.training_batches(
                train,
                self.sampler,
                draws=task.views[index],
                seed=seed,
                first_step=self.step,
                threads=settings.threads,
                share=(jax.process_index(), jax.process_count()),
                place=functools.partial(sharding.place_batch, mesh=task.mesh),
            )
            self._batches = batches.Streamed(streamed)
        self._program = train_step.program(
            graph,
            self.stage,
            settings.optimizer,
            task.mesh,
            steps_per_epoch=self.sampler.steps_per_epoch,
            model=state,
            batch=self._batches.shapes,
        )
        self.carry: Carry = self._program.first_carry(state)
        self.best = self._program.copy(self.carry.model)
        if resume:
            self.carry, self.best = resume.restore((self.carry, self.best))
        self._key = train_step.stage_key(settings.seed, index)
        # Steps are queued ahead of the device; long ones are waited for, since a
        # request to stop can only be answered once all in the queue are done.
        self._waits = True
        self._started = time.monotonic() - self.record["seconds"]

    def train(self) -> tuple[ModelState, Support | None]:
        """Trains the stage to its end; the model handed over, and its support."""
        callbacks = self._task.callbacks
        callbacks.begin_stage(self)
        try:
            while not self.record["rule"]:
                means = self._train_epoch()
                callbacks.before_evaluation(self)
                row = self._end_epoch(means, self._evaluate())
                callbacks.after_epoch(self, row)
        except NonFinite as error:
            ids = self._task.splits["train"].ids
            items = [ids[i] for i in self.sampler.batch(error.step).ravel()]
            raise NonFinite(
                f"{error} of stage {self.stage.name}, whose batch held "
                f"{', '.join(items)}.",
                error.step,
            ) from None
        state = self.best if self.stage.hand_over == "best" else self.carry.model
        support = self._fit_support(state) if self.stage.is_scored else None
        callbacks.after_stage(self, state, support)
        return jax.device_put(state, sharding.copied(self._task.mesh)), support

    def _train_epoch(self) -> dict[str, float]:
        """Steps to the end of the epoch; the means of its scalars."""
        length = self.sampler.steps_per_epoch
        last = (self.record["epoch"] + 1) * length
        while self.step < last:
            began = time.monotonic()
            self.carry, self.step = self._batches.advance(
                self._program, self.carry, self._key, self.step, last
            )
            if self._waits:
                jax.block_until_ready(self.carry.step)
                self._waits = time.monotonic() - began > LONG_STEP
            seconds = time.monotonic() - self._started
            self.record = self.record | {"step": self.step, "seconds": seconds}
            self._task.callbacks.after_steps(self, began)
        return train_step.means(self.carry, length)

    def _evaluate(self) -> dict[str, dict[str, Any]]:
        """Metrics of the splits that decide when the stage ends."""
        if not self.stage.is_scored:
            return {}
        task, model = self._task, self.carry.model
        support = self._fit_support(model)
        predictor = inference.compiled(self._graph, task.method.predict, task.mesh)
        scores = {}
        for split in self.stage.stop.reads:
            predict = functools.partial(predictor, model, support)
            prediction = self._over(predict, split)
            scores[split] = predictions.score(
                prediction, task.splits[split].labels, task.ranks
            )
        return scores

    def _fit_support(self, model: ModelState) -> Support | None:
        """What the method needs besides a model to predict."""
        labels = {name: source.labels for name, source in self._task.splits.items()}
        method, mesh = self._task.method, self._task.mesh
        embedder = inference.compiled(self._graph, method.embed, mesh)
        embed = functools.partial(self._over, functools.partial(embedder, model))
        return inference.fit_support(method, self._graph, model, embed, labels)

    def _over(self, function: Callable, split: str) -> Any:
        task = self._task
        return inference.over(
            function,
            task.splits[split],
            task.mesh,
            batch_size=task.settings.eval_batch_size,
            threads=task.settings.threads,
            between=functools.partial(task.callbacks.between_batches, self),
        )

    def _end_epoch(self, means: dict[str, float], scores: dict[str, Any]) -> Record:
        """Asks the stop rule; what the history keeps of the epoch."""
        epoch = self.record["epoch"] + 1
        seen = {**scores, "batches": means}
        verdict = self.stage.stop.update(self.record["stop"], epoch, seen)
        if verdict.improved:
            self.best = self._program.copy(self.carry.model)
        boundaries = metrics.boundary_names(self._task.ranks)
        shares = {
            name: dict(zip(boundaries, values, strict=True))
            for name, values in train_step.shares(self.carry).items()
        }
        row = {
            "stage": self.stage.name,
            "epoch": epoch,
            "step": self.step,
            "train": means,
            "train_eval": _scalars(scores.get("train", {})),
            "val": _scalars(scores.get("val", {})),
            "readouts": self._readouts() | shares,
        }
        self.carry = self._program.begin_epoch(self.carry)
        self.record = self.record | {
            "epoch": epoch,
            "stop": verdict.state,
            "rule": verdict.rule,
            "reason": verdict.reason,
            "seconds": time.monotonic() - self._started,
            "shares": shares,
        }
        return row | {"seconds": self.record["seconds"]}

    def _readouts(self) -> dict[str, dict[str, float]]:
        model = checkpoint.merge_model(self._graph, self.carry.model)
        return {
            name: metrics.named_values(readout.values, readout.per, self._task.ranks)
            for name, readout in self._task.method.readouts(model).items()
        }

    def _entered(self, state: ModelState) -> ModelState:
        """The model that the stage before handed over, as this one asks for it."""
        task, index = self._task, self.record["stage"]
        num_steps = self.sampler.steps_per_epoch * self.stage.stop.max_epochs
        context = Context(task.create, num_steps)
        # Far from the stages' own keys, which are folded in by their index.
        key = jax.random.key(task.settings.seed)
        rngs = nnx.Rngs(jax.random.fold_in(key, 1_000_000 + index))
        model = checkpoint.merge_model(self._graph, state)
        self.stage.enter(model, context, rngs)
        return checkpoint.split_model(model)[1]


def _scalars(scores: Mapping[str, Any]) -> dict[str, float | None]:
    return {k: v for k, v in scores.items() if v is None or isinstance(v, float)}
