"""Training: the one loop for every method and every stage.

A run is a list of stages. What a step changes lives on the device in a `Carry`; the
rest (stage, epoch, stop state) is a small record. Both are in every checkpoint, and
batches are a function of the step number, so a resumed run repeats an uninterrupted one
to the bit.
"""

import math
import time
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from cloc_jax.build import assembly
from cloc_jax.data import pipeline
from cloc_jax.methods import Stage
from cloc_jax.runtime import (
    checkpoint,
    interrupts,
    light_imports,
    model_state,
    processes,
    sharding,
)
from cloc_jax.runtime.console import Display, console, print_dataset
from cloc_jax.runtime.run_folder import RunFolder, history_row
from cloc_jax.scoring import inference, metrics
from cloc_jax.training import train_step

Record = dict[str, Any]  # where a run is, as plain data


class NonFinite(ArithmeticError):
    """The loss or a gradient became infinite or not a number."""


class Run(NamedTuple):
    """What stays the same while a run trains."""

    config: ConfigDict
    parts: assembly.Parts
    folder: RunFolder
    checkpoints: checkpoint.Checkpoints
    requests: interrupts.Requests
    scalars: Any  # tensorboardX.SummaryWriter


def train(config: ConfigDict, folder: RunFolder, *, resume: bool) -> None:
    """Trains all stages of a run, from the start or from its newest checkpoint."""
    # First the images: nobody should download weights and then have none.
    dataset = assembly.build_dataset(config)
    config = assembly.resolve(config)
    parts = assembly.build(config, folder if resume else None, dataset=dataset)
    sharding.check_batch(config.train.batch_size, parts.mesh)
    description = assembly.describe(parts)
    if resume:
        folder.check_same(config.to_dict(), description)
    elif processes.is_first():
        folder.create(config.to_dict(), description)
    assembly.encoder.keep_trunk(parts.trunk, folder)
    processes.wait("run folder")
    _announce(config, parts)
    checkpoints = checkpoint.Checkpoints(folder.checkpoints)
    record = _first_record(parts)
    if checkpoints.latest():
        record = checkpoints.record()
        where = parts.method.stages[record["stage"]].name
        console.print(f"going on in stage {where} at step {record['step']}")
    if processes.is_first():
        folder.cut_history(record["rows"])
    # Where PyTorch is installed, tensorboardX imports it to name its types.
    tensorboard = light_imports.import_without("tensorboardX", "torch")
    scalars = tensorboard.SummaryWriter(
        str(folder.tensorboard),
        purge_step=record["total_steps"] + 1,
        write_to_disk=processes.is_first(),
    )
    with interrupts.requests() as requests, scalars:
        run = Run(config, parts, folder, checkpoints, requests, scalars)
        while record["stage"] < len(parts.method.stages):
            record = StageRun(run, record).train()
    checkpoints.close()


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
        self.stage = parts.method.stages[record["stage"]]
        self.plan = assembly.plan(config, parts.dataset, self.stage, record["stage"])
        self.step = record["step"]
        optimizer = assembly.build_optimizer(config, self.stage)
        key = train_step.stage_key(config.seed, record["stage"])
        self.graph, model = model_state.split(self._entered())
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
            self.graph, self.stage, optimizer, key, shardings
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
        self.best = self.copy(self.carry.model)
        if self.step:
            restored = run.checkpoints.arrays((self.carry, self.best))
            self.carry, self.best = restored
        self.predict = inference.predictor(self.graph, parts.method, parts.mesh)
        self.started = time.monotonic() - record["seconds"]

    def train(self) -> Record:
        """Trains the stage to its end and returns the record that starts the next."""
        steps, cap = self.plan.steps_per_epoch, self.run.config.train.max_epochs
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
        last = (self.record["epoch"] + 1) * self.plan.steps_per_epoch
        while self.step < last:
            self.carry = self.step_fn(self.carry, next(batches))
            self.step += 1
            if self.step % every.log_steps == 0:
                means = self._read()
                display.step(self.step, means["loss"], means["accuracy"])
            if self.step % every.checkpoint_steps == 0 and self.step < last:
                self._save()
            # Several processes must agree, which is not free.
            if jax.process_count() == 1 or self.step % every.log_steps == 0:
                self._stop_if_asked()
        return self._read()

    def _evaluate(self) -> dict[str, dict[str, Any]]:
        """Metrics of the splits that decide when the stage ends."""
        config, dataset = self.run.config, self.run.parts.dataset
        alone = jax.process_count() == 1
        scores = {}
        for split in self.stage.stop.reads:
            source = dataset.splits[split]
            outputs = inference.over(
                self.predict,
                self.carry.model,
                source,
                self.run.parts.mesh,
                batch_size=min(config.train.eval_batch_size, len(source)),
                threads=config.data.threads,
                between=self._stop_if_asked if alone else lambda: None,
            )
            scores[split] = metrics.ordinal_metrics(
                source.labels,
                outputs["label"],
                dataset.ranks,
                outputs.get("probabilities"),
            )
        return scores

    def _end_epoch(self, means: dict[str, float], scores, display: Display) -> None:
        record, epoch = self.record, self.record["epoch"] + 1
        verdict = self.stage.stop.update(record["stop"], epoch, scores)
        row = history_row(
            self.stage.name,
            epoch=epoch,
            step=self.step,
            means=means,
            scores=scores,
            margins=self._margins(),
            seconds=time.monotonic() - self.started,
        )
        total_steps = record["total_steps"] + self.plan.steps_per_epoch
        if processes.is_first():
            self.run.folder.append_history(row)
        _log(self.run.scalars, row, total_steps)
        display.epoch(row)
        if verdict.improved:
            self.best = self.copy(self.carry.model)
        self.carry = self.begin_epoch(self.carry)
        self.record = record | {
            "epoch": epoch,
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
        record, name = self.record, self.stage.name
        console.print(f"{name} ended after epoch {record['epoch']}: {record['reason']}")
        path = self.run.folder.stage(name)
        is_best = self.stage.hand_over == "best"
        checkpoint.save_model(path, self.best if is_best else self.carry.model)
        if processes.is_first():
            self.run.folder.write_stage(
                name,
                epochs=record["epoch"],
                steps=self.step,
                rule=record["rule"],
                reason=record["reason"],
                seconds=record["seconds"],
            )
        return record | _stage_record(self.run.parts, record["stage"] + 1)

    def _entered(self) -> nnx.Module:
        """The model with which the stage starts."""
        parts, index = self.run.parts, self.record["stage"]
        if not index:
            return parts.create()
        graph, like = model_state.split(nnx.eval_shape(parts.create.random))
        before = self.run.folder.stage(parts.method.stages[index - 1].name)
        state = checkpoint.load_model(before, like, sharding.copied(parts.mesh))
        model = model_state.merge(graph, state)
        enter(self.stage, index, model, parts.create, self.run.config.seed)
        return model

    def _batches(self, first_step: int) -> Iterator[pipeline.Batch]:
        config = self.run.config
        return pipeline.training_batches(
            self.run.parts.dataset.splits["train"],
            self.plan,
            draw=self.run.parts.draw,
            views=self.stage.views,
            seed=(config.seed, self.record["stage"]),
            first_step=first_step,
            threads=config.data.threads,
            share=pipeline.Share(jax.process_index(), jax.process_count()),
            place=lambda batch: sharding.place_batch(batch, self.run.parts.mesh),
        )

    def _read(self) -> dict[str, float]:
        """Mean scalars since the epoch began: the only look at the device within it.

        Raises NonFinite where a step went wrong since the last look.
        """
        bad_step, totals = jax.device_get((self.carry.bad_step, self.carry.totals))
        if bad_step >= 0:
            ids = self.run.parts.dataset.splits["train"].ids
            items = [ids[i] for i in self.plan.batch(int(bad_step))]
            newest = self.run.checkpoints.latest()
            good = self.run.folder.checkpoints / str(newest) if newest else "none yet"
            raise NonFinite(
                f"the loss or a gradient was not finite at step {int(bad_step)} of "
                f"stage {self.stage.name}. Last good checkpoint: {good}. Start another "
                "run with a smaller optimizer.learning_rate. The batch held: "
                f"{', '.join(items)}"
            )
        done = (self.step - 1) % self.plan.steps_per_epoch + 1
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
            raise interrupts.Interrupted(
                number,
                f"stopped in stage {self.stage.name} at step {self.step}; everything "
                f"is saved in {path}. Continue with the same command and --resume.",
            )

    def _margins(self) -> dict[str, float]:
        parts = self.run.parts
        view = parts.method.margins(model_state.merge(self.graph, self.carry.model))
        if view is None:
            return {}
        names = metrics.boundary_names(parts.dataset.ranks)
        return dict(zip(names, map(float, np.asarray(view.values)), strict=True))


def enter(stage: Stage, index: int, model: nnx.Module, create, seed: int) -> None:
    """Changes the model that the stage before handed over as this stage asks for."""
    # Far from the stages' own keys, which are folded in by their index.
    key = jax.random.fold_in(jax.random.key(seed), 1_000_000 + index)
    stage.enter(model, {"initial": create}, nnx.Rngs(key))


def _log(writer: Any, row: Record, total_steps: int) -> None:
    for group in ("train", "train_eval", "val", "margins"):
        for name, value in row[group].items():
            if value is not None and math.isfinite(value):
                writer.add_scalar(f"{group}/{name}", value, total_steps)
    writer.flush()


def _announce(config: ConfigDict, parts: assembly.Parts) -> None:
    """What is about to be trained on, before it starts."""
    print_dataset(parts.dataset)
    devices = parts.mesh.devices
    line = f"  {config.method.name} on {devices.size} x {devices.flat[0].device_kind}"
    if config.method.name == "cloc":
        line += f", MMNP by the {assembly.algorithm(config)} form"
    console.print(line)
    first = parts.method.stages[0]
    left_out = assembly.plan(config, parts.dataset, first, 0).left_out
    if left_out > config.train.batch_size + len(parts.dataset.ranks):
        console.print(
            f"  {left_out} training images are left out of each epoch (others each "
            "time), because one rank is so common that batches would hold nothing "
            "else; train.sampling='balanced' avoids that"
        )
