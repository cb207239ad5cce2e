"""Training: the one loop for every method and every stage.

A run is a list of stages. What a step changes lives on the device in a `Carry`; the
rest (stage, epoch, stop state) is a small record. Both are in every checkpoint, and
batches are a function of the step number, so a resumed run repeats an uninterrupted one
to the bit.
"""

import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from cloc_jax.config import saved_config
from cloc_jax.data import pipeline
from cloc_jax.data.source import Source
from cloc_jax.methods import Context, Stage, Support
from cloc_jax.runtime import checkpoint, errors, files, processes, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.console import Display, ScalarLog, console, print_dataset
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import inference, metrics, predictions
from cloc_jax.training import (
    assembly,
    encoder,
    epoch_end,
    time_estimate,
    train_step,
    trained_run,
)
from cloc_jax.training.dataset import build_dataset

Record = dict[str, Any]  # where a run is, as plain data
LONG_STEP = 0.2  # seconds


class NonFinite(ArithmeticError):
    """The loss or a gradient became infinite or not a number."""


class Run(NamedTuple):
    """What stays the same while a run trains."""

    config: ConfigDict
    parts: assembly.Parts
    folder: RunFolder
    checkpoints: checkpoint.Checkpoints
    requests: errors.StopRequest
    scalars: ScalarLog
    estimate: time_estimate.Estimate


def train(config: ConfigDict, folder: RunFolder, *, resume: bool) -> bool:
    """Trains all stages of a run, from the start or from its newest good checkpoint.

    The caller holds the run's folder. Returns False where the run was finished
    already, which leaves it as it is.
    """
    # First the images: nobody should download weights and then have none.
    dataset = build_dataset(config)
    print_dataset(dataset)  # before minutes of work on features
    config = encoder.resolve(config)
    parts = assembly.build(config, folder if resume else None, dataset=dataset)
    sharding.check_batch(config.train.batch_size, parts.mesh)
    description = parts.describe()
    if resume:
        saved = saved_config(folder.read_config())
        folder.check_same(config.to_dict(), description, saved.to_dict())
        if _is_finished(folder):
            return False
    elif processes.is_first():
        folder.create(config.to_dict(), description)
    processes.wait("run folder")
    encoder.keep_trunk(parts.trunk, folder)
    _announce(config, parts, parts.dataset.notes[len(dataset.notes) :])
    had_checkpoints = folder.checkpoints.is_dir()
    checkpoints = checkpoint.Checkpoints(
        folder.checkpoints,
        say=lambda text: console.print(text, soft_wrap=True),
    )
    record = _first_record(parts)
    if checkpoints.latest():
        record = checkpoints.record()
        where = parts.method.stages[record["stage"]].name
        console.print(f"going on in stage {where} at step {record['step']}")
    elif had_checkpoints and parts.method.stages[-1].name in folder.has_stages():
        checkpoints.close()
        return True  # all is trained, and only results are to be made again
    else:
        _check_beginning(folder, had_checkpoints)
    if processes.is_first():
        folder.clear_parts()
        rows = folder.cut_history(record["rows"])
        if rows < record["rows"]:
            console.print(
                f"{folder.history} has {rows} of the {record['rows']} epochs so far; "
                "the curves will lack the others",
                soft_wrap=True,
            )
            record = record | {"rows": rows}
    scalars = ScalarLog(
        folder.tensorboard,
        record["total_steps"] + 1,
        is_written=processes.is_first(),
    )
    with errors.stop_requests() as requests, scalars:
        estimate = time_estimate.Estimate(config, parts)
        run = Run(config, parts, folder, checkpoints, requests, scalars, estimate)
        while record["stage"] < len(parts.method.stages):
            name = parts.method.stages[record["stage"]].name
            record = StageRun(run, record).train()
            # A request that came while the stage handed over its model.
            if number := processes.largest(requests.number):
                raise errors.Interrupted(
                    number,
                    f"stopped after stage {name}; everything is saved in "
                    f"{folder.checkpoints}. Continue with the same command and "
                    "--resume.",
                )
    checkpoints.close()
    return True


def _is_finished(folder: RunFolder) -> bool:
    """Whether a run to be resumed has its results already; says what is the case."""
    try:
        if not folder.is_finished():
            return False
    except files.Damaged as error:
        console.print(f"{error.path} is damaged and made again", soft_wrap=True)
        return False
    is_left = any(folder.checkpoints.glob("*"))
    gone = "" if is_left else "; its checkpoints were removed"
    console.print(
        f"{folder.path} is finished, nothing is left to train{gone}. `launch.py "
        f"evaluate --run={folder.path}` makes its results again.",
        soft_wrap=True,
    )
    return True


def _check_beginning(folder: RunFolder, had_checkpoints: bool) -> None:
    """FileNotFoundError where a run would start anew though it had got further."""
    ended = folder.has_stages()
    # A kill within the first epoch's end may leave one row and no checkpoint.
    history = folder.history.read_bytes() if folder.history.exists() else b""
    rows = history.count(b"\n")
    if not ended and (rows <= 1 if had_checkpoints else not rows):
        return
    done = f"stage {', '.join(ended)}" if ended else f"{rows} epochs"
    raise FileNotFoundError(
        f"{folder.path} has trained {done}, but {folder.checkpoints} holds no "
        "checkpoint to go on from. Put them back, or start another run with another "
        f"--run folder; `launch.py evaluate --run={folder.path}` makes the results "
        "where the last stage had ended."
    )


def _first_record(parts: assembly.Parts) -> Record:
    return _stage_record(parts, 0) | {
        "rows": 0,  # of the history
        "total_steps": 0,  # over all stages, for TensorBoard
    }


def _stage_record(parts: assembly.Parts, index: int) -> Record:
    """The part of the record that starts anew with each stage."""
    stages = parts.method.stages
    return {
        "stage": index,
        "step": 0,
        "epoch": 0,  # epochs that are done and evaluated
        "stop": stages[index].stop.init() if index < len(stages) else {},
        "rule": "",  # the stop rule that fired
        "reason": "",
        "seconds": 0.0,
    }


class StageRun:
    """One stage of a run, from its start or from a checkpoint within it."""

    def __init__(self, run: Run, record: Record):
        config, parts = run.config, run.parts
        self.run, self.record = run, record
        index = record["stage"]
        self.stage = parts.method.stages[index]
        self.batches = assembly.sampler(config, parts.dataset, self.stage, index)
        self.num_steps = self.batches.steps_per_epoch * self.stage.stop.max_epochs
        self.step = record["step"]
        optimizer = assembly.build_optimizer(config, self.stage, self.batches)
        key = train_step.stage_key(config.seed, index)
        self.graph, model = self._entered()
        names = train_step.scalar_names(
            self.graph, self.stage, model, next(self._batches(0))
        )
        self.carry = train_step.place_carry(
            train_step.first_carry(model, optimizer, names),
            parts.mesh,
            shard_params=config.mesh.shard_params,
        )
        shardings = jax.tree.map(lambda x: x.sharding, self.carry)
        self.step_fn = train_step.make_step(
            self.graph, self.stage, optimizer, key, shardings, self.num_steps
        )
        self.copy = jax.jit(
            lambda model: jax.tree.map(jnp.copy, model), out_shardings=shardings.model
        )
        self.begin_epoch = jax.jit(
            lambda carry: carry._replace(
                totals=jax.tree.map(jnp.zeros_like, carry.totals)
            ),
            donate_argnums=0,
            out_shardings=shardings,
        )
        # Steps are queued ahead of the device; long ones are waited for, since a
        # request to stop can only be answered once all in the queue are done.
        self.waits = True
        self.best = self.copy(self.carry.model)
        if self.step:
            restored = run.checkpoints.arrays((self.carry, self.best))
            self.carry, self.best = restored
        self.started = time.monotonic() - record["seconds"]

    def train(self) -> Record:
        """Trains the stage to its end and returns the record that starts the next."""
        steps, cap = self.batches.steps_per_epoch, self.stage.stop.max_epochs
        with Display(self.stage.name, steps, cap, self.step) as display:
            batches = self._batches(self.step)
            while not self.record["rule"]:
                means = self._train_epoch(batches, display)
                display.text("evaluating")
                self._end_epoch(means, self._evaluate(), display)
        return self._hand_over()

    def _train_epoch(self, batches: Iterator[pipeline.Batch], display: Display):
        """Steps to the end of the epoch; the means of its scalars."""
        every = self.run.config.train
        last = (self.record["epoch"] + 1) * self.batches.steps_per_epoch
        while self.step < last:
            began = time.monotonic()
            batch, started = next(batches), time.monotonic()
            self.carry = self.step_fn(self.carry, batch)
            self.step += 1
            if self.waits:
                jax.block_until_ready(self.carry.step)
                self.waits = time.monotonic() - started > LONG_STEP
            self.run.estimate.after_step(self.carry, began, is_last=self.step == last)
            if self.step % every.log_steps == 0:
                display.step(self.step, self._read())
            if self.step % every.checkpoint_steps == 0 and self.step < last:
                self._save()
            # Several processes must agree, which is not free.
            if jax.process_count() == 1 or self.step % every.log_steps == 0:
                self._stop_if_asked()
        return self._read()

    def _evaluate(self) -> dict[str, dict[str, Any]]:
        """Metrics of the splits that decide when the stage ends."""
        if not self.stage.is_scored:
            return {}
        parts, model = self.run.parts, self.carry.model
        support = self._fit(model)
        predictor = inference.predictor(self.graph, parts.method, parts.mesh)
        scores = {}
        for split in self.stage.stop.reads:
            source = parts.dataset.splits[split]
            found = self._over(lambda x: predictor(model, x, support), source)
            scores[split] = predictions.score(found, source.labels, parts.dataset.ranks)
        return scores

    def _fit(self, model: ModelState) -> Support | None:
        """What the method needs besides a model to predict."""
        parts = self.run.parts
        splits = parts.dataset.splits
        return inference.fit_support(
            parts.method,
            self.graph,
            model,
            lambda split: self._embed(model, splits[split]),
            {name: source.labels for name, source in splits.items()},
        )

    def _embed(self, model: ModelState, source: Source) -> np.ndarray:
        parts = self.run.parts
        embedder = inference.embedder(self.graph, parts.method, parts.mesh)
        return self._over(lambda images: embedder(model, images), source)

    def _over(self, function: Callable, source: Source) -> Any:
        config, alone = self.run.config, jax.process_count() == 1
        return inference.over(
            function,
            source,
            self.run.parts.mesh,
            batch_size=config.train.eval_batch_size,
            threads=config.data.threads,
            between=self._stop_if_asked if alone and self.started else lambda: None,
        )

    def _end_epoch(self, means: dict[str, float], scores, display: Display) -> None:
        record = self.record
        verdict, row = epoch_end.end_epoch(
            self.stage,
            record["stop"],
            epoch=record["epoch"] + 1,
            step=self.step,
            means=means,
            scores=scores,
            readouts=self._readouts(),
            seconds=time.monotonic() - self.started,
        )
        total_steps = record["total_steps"] + self.batches.steps_per_epoch
        if processes.is_first():
            self.run.folder.append_history(row)
        self.run.scalars.write(_scalars(row), total_steps)
        display.epoch(row)
        if verdict.improved:
            self.best = self.copy(self.carry.model)
        self.carry = self.begin_epoch(self.carry)
        self.record = record | {
            "epoch": row["epoch"],
            "stop": verdict.state,
            "rule": verdict.rule,
            "reason": verdict.reason,
            "rows": record["rows"] + 1,
            "total_steps": total_steps,
        }
        self._save()
        self._stop_if_asked()

    def _hand_over(self) -> Record:
        """Writes the stage's model and what became of the stage."""
        record, stage = self.record, self.stage
        console.print(
            f"{stage.name} ended after epoch {record['epoch']}: {record['reason']}"
        )
        state = self.best if stage.hand_over == "best" else self.carry.model
        epoch_end.hand_over(
            self.run.folder,
            stage,
            state,
            self._fit(state) if stage.is_scored else None,
            epochs=record["epoch"],
            steps=self.step,
            rule=record["rule"],
            reason=record["reason"],
            seconds=record["seconds"],
        )
        return record | _stage_record(self.run.parts, record["stage"] + 1)

    def _entered(self) -> tuple[nnx.GraphDef, ModelState]:
        """The model with which the stage starts."""
        parts, index = self.run.parts, self.record["stage"]
        if not index:
            graph, state = checkpoint.split_model(parts.create())
        else:
            before = parts.method.stages[index - 1].name
            graph, state = trained_run.load_stage(
                self.run.folder, before, parts.create, parts.mesh
            )
        self.graph, self.started = graph, 0.0  # not yet to be interrupted
        train = parts.dataset.splits["train"]
        context = Context(
            parts.create,
            lambda: self._embed(state, train),
            np.asarray(train.labels),
            self.num_steps,
        )
        return graph, enter(
            self.stage, index, graph, state, context, self.run.config.seed
        )

    def _batches(self, first_step: int) -> Iterator[pipeline.Batch]:
        config, parts = self.run.config, self.run.parts
        return pipeline.training_batches(
            parts.dataset.splits["train"],
            self.batches,
            draws=assembly.draws(config, parts.dataset, self.stage),
            seed=(config.seed, self.record["stage"]),
            first_step=first_step,
            threads=config.data.threads,
            share=pipeline.Share(jax.process_index(), jax.process_count()),
            place=lambda batch: sharding.place_batch(batch, parts.mesh),
        )

    def _read(self) -> dict[str, float]:
        """Mean scalars since the epoch began: the only look at the device within it.

        Raises NonFinite where a step went wrong since the last look.
        """
        bad_step, totals = jax.device_get((self.carry.bad_step, self.carry.totals))
        if bad_step >= 0:
            ids = self.run.parts.dataset.splits["train"].ids
            items = [ids[i] for i in self.batches.batch(int(bad_step)).ravel()]
            newest = self.run.checkpoints.latest()
            good = self.run.folder.checkpoints / str(newest) if newest else "none yet"
            raise NonFinite(
                f"the loss or a gradient was not finite at step {int(bad_step)} of "
                f"stage {self.stage.name}. Last good checkpoint: {good}. Start another "
                "run with a smaller optimizer.learning_rate. The batch held: "
                f"{', '.join(items)}"
            )
        done = (self.step - 1) % self.batches.steps_per_epoch + 1
        return {name: float(total) / done for name, total in totals.items()}

    def _save(self) -> str:
        """Writes a checkpoint of where the stage is now and returns its path."""
        self._read()  # never a checkpoint of a state that went wrong
        self.record = self.record | {
            "step": self.step,
            "seconds": time.monotonic() - self.started,
        }
        number = self.run.checkpoints.save((self.carry, self.best), self.record)
        return str(self.run.folder.checkpoints / str(number))

    def _stop_if_asked(self) -> None:
        number = processes.largest(self.run.requests.number)
        if number:
            path = self._save()
            raise errors.Interrupted(
                number,
                f"stopped in stage {self.stage.name} at step {self.step}; everything "
                f"is saved in {path}. Continue with the same command and --resume.",
            )

    def _readouts(self) -> dict[str, dict[str, float]]:
        model = checkpoint.merge_model(self.graph, self.carry.model)
        ranks = self.run.parts.dataset.ranks
        return {
            name: metrics.named_values(readout.values, readout.per, ranks)
            for name, readout in self.run.parts.method.readouts(model).items()
        }


def enter(
    stage: Stage,
    index: int,
    graph: nnx.GraphDef,
    state: ModelState,
    context: Context,
    seed: int,
) -> ModelState:
    """The model that the stage before handed over, changed as this stage asks for."""
    # Far from the stages' own keys, which are folded in by their index.
    key = jax.random.fold_in(jax.random.key(seed), 1_000_000 + index)
    model = checkpoint.merge_model(graph, state)
    stage.enter(model, context, nnx.Rngs(key))
    return checkpoint.split_model(model)[1]


def _scalars(row: Record) -> dict[str, float]:
    """The numbers of a history row by name."""
    groups = {name: row[name] for name in ("train", "train_eval", "val")}
    return {
        f"{group}/{name}": value
        for group, values in (groups | row["readouts"]).items()
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


def _announce(config: ConfigDict, parts: assembly.Parts, notes: list[str]) -> None:
    """What is about to be trained, before it starts; `notes` are those since then."""
    for note in notes:
        console.print(f"  {note}", soft_wrap=True)
    devices = parts.mesh.devices
    line = f"  {config.method.name} on {devices.size} x {devices.flat[0].device_kind}"
    if config.method.name == "cloc":
        line += f", MMNP by the {assembly.loss_form(config, parts.mesh)} form"
    console.print(line)
    first = parts.method.stages[0]
    left_out = assembly.sampler(config, parts.dataset, first, 0).left_out
    if left_out > config.train.batch_size + len(parts.dataset.ranks):
        console.print(
            f"  {left_out} training images are left out of each epoch (others each "
            "time), because one rank is so common that batches would hold nothing "
            "else; train.sampling='balanced' avoids that"
        )
