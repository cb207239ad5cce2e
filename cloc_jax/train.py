"""Training: the one loop for every method and every stage.

A run is a list of stages. What a step changes lives on the device in a `Carry`; the
rest (stage, epoch, stop state) is a small record. Both are in every checkpoint, and
batches are a function of the step number, so a resumed run repeats an uninterrupted one
to the bit.
"""

import hashlib
import itertools
import json
import math
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
import tensorboardX
from flax import nnx
from jaxtyping import Array, Int
from ml_collections import ConfigDict

from cloc_jax import assemble, checkpoint, inference, interrupts, metrics, run_folder
from cloc_jax.data import pipeline
from cloc_jax.methods import Stage
from cloc_jax.progress import Display, console


class Carry(NamedTuple):
    """All that a training step changes, on the device."""

    params: nnx.State
    rest: nnx.State  # batch statistics and other variables that are not trained
    optimizer: optax.OptState
    step: Int[Array, ""]  # of the stage
    bad_step: Int[Array, ""]  # the first with a non-finite loss or gradient, or -1
    totals: dict[str, Array]  # sums of the scalars since the epoch began


class NonFinite(ArithmeticError):
    """The loss or a gradient became infinite or not a number."""


class Run(NamedTuple):
    """What stays the same while a run trains."""

    config: ConfigDict
    parts: assemble.Parts
    folder: run_folder.RunFolder
    checkpoints: checkpoint.Checkpoints
    requests: interrupts.Requests
    scalars: tensorboardX.SummaryWriter


def train(config: ConfigDict, folder: run_folder.RunFolder, *, resume: bool) -> None:
    """Trains all stages of a run, from the start or from its newest checkpoint."""
    parts = assemble.build(config)
    _announce(config, parts)
    if resume:
        folder.check_same(config.to_dict(), _description(parts))
    else:
        folder.create(config.to_dict(), _description(parts))
    checkpoints = checkpoint.Checkpoints(folder.checkpoints)
    record = checkpoints.record() if checkpoints.latest() else _first_record(parts)
    if resume:
        folder.cut_history(record["rows"])
        where = parts.method.stages[record["stage"]].name
        console.print(f"resuming in stage {where} at step {record['step']}")
    scalars = tensorboardX.SummaryWriter(
        str(folder.tensorboard), purge_step=record["total_steps"] + 1
    )
    with interrupts.requests() as requests, scalars:
        run = Run(config, parts, folder, checkpoints, requests, scalars)
        # Evaluate and report right after; only they read the test split.
        while record["stage"] < len(parts.method.stages):
            record = _train_stage(run, record)
    checkpoints.close()


def _description(parts: assemble.Parts) -> dict[str, Any]:
    """What the run keeps of its dataset: names, sizes, and a mark of every item."""
    splits = parts.dataset.splits
    mark = hashlib.sha256()
    for name, source in splits.items():
        mark.update(json.dumps([name, list(source.ids)]).encode())
        mark.update(np.asarray(source.labels, np.int32).tobytes())
    return {
        "ranks": list(parts.dataset.ranks),
        "images": {name: len(source) for name, source in splits.items()},
        "notes": parts.dataset.notes,
        "sha256": mark.hexdigest(),
    }


def _first_record(parts: assemble.Parts) -> dict[str, Any]:
    return {
        "stage": 0,
        "step": 0,  # of the stage
        "epoch": 0,  # epochs of the stage that are done and evaluated
        "stop": parts.method.stages[0].stop.init(),
        "rule": "",
        "reason": "",
        "rows": 0,  # of the history
        "total_steps": 0,  # over all stages, for TensorBoard
        "seconds": 0.0,  # of the stage
    }


def _train_stage(run: Run, record: dict[str, Any]) -> dict[str, Any]:
    """Trains one stage to its end and returns the record that starts the next."""
    config, parts = run.config, run.parts
    index = record["stage"]
    stage = parts.method.stages[index]
    plan = assemble.plan(config, parts.dataset, stage, index)
    optimizer = assemble.build_optimizer(config, stage)
    model = _entered(run, index)
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    batches_from = _batches(config, parts, stage, plan, index)
    key = jax.random.fold_in(jax.random.key(config.seed), index)
    step_fn, names = make_step(graph, stage, optimizer, key)
    scalar_names = names(params, rest, next(batches_from(0)))
    carry = Carry(
        params,
        rest,
        jax.jit(optimizer.init)(params),
        jnp.zeros((), jnp.int32),
        jnp.full((), -1, jnp.int32),
        {name: jnp.zeros((), jnp.float32) for name in scalar_names},
    )
    best = _copy((params, rest))
    del model, params, rest  # the step donates their buffers
    if run.checkpoints.latest() and (record["step"] or record["epoch"]):
        carry, best = run.checkpoints.arrays((carry, best))
    predict = inference.predictor(graph, parts.method)
    started = time.monotonic() - record["seconds"]

    def save(epoch_record):
        epoch_record["seconds"] = time.monotonic() - started
        number = run.checkpoints.save((carry, best), epoch_record)
        return run.folder.checkpoints / str(number)

    def stop_if_asked():
        if run.requests.number:
            path = save(record | {"step": step})
            raise interrupts.Interrupted(
                run.requests.number,
                f"stopped in stage {stage.name} at step {step}; everything is in "
                f"{path}. Continue with the same command and --resume.",
            )

    step = record["step"]
    batches = batches_from(step)
    with Display(
        stage.name, plan.steps_per_epoch, config.train.max_epochs, step
    ) as display:
        while not record["rule"]:
            last_step = (record["epoch"] + 1) * plan.steps_per_epoch
            while step < last_step:
                carry = step_fn(carry, next(batches))
                step += 1
                if step % config.train.log_steps == 0 or step == last_step:
                    means = _read(carry, plan, run)
                    display.step(step, means["loss"], means["accuracy"])
                if step % config.train.checkpoint_steps == 0 and step < last_step:
                    _read(carry, plan, run)
                    save(record | {"step": step})
                stop_if_asked()
            means = _read(carry, plan, run)
            display.text("evaluating")
            scores = {}
            for split in ("train", "val"):
                outputs = inference.over(
                    predict,
                    (carry.params, carry.rest),
                    parts.dataset.splits[split],
                    batch_size=config.train.eval_batch_size,
                    threads=config.data.threads,
                    between=stop_if_asked,
                )
                scores[split] = metrics.ordinal_metrics(
                    parts.dataset.splits[split].labels,
                    outputs["label"],
                    parts.dataset.ranks,
                    outputs.get("probabilities"),
                )
            epoch = record["epoch"] + 1
            verdict = stage.stop.update(
                record["stop"], epoch, scores["train"], scores["val"]
            )
            row = {
                "stage": stage.name,
                "epoch": epoch,
                "step": step,
                "train": means,
                "train_eval": _scalars(scores["train"]),
                "val": _scalars(scores["val"]),
                "margins": _margins(graph, carry, parts),
                "seconds": time.monotonic() - started,
            }
            run.folder.append_history(row)
            total = record["total_steps"] + plan.steps_per_epoch
            _log(run.scalars, row, total)
            display.epoch(row)
            if verdict.improved:
                best = _copy((carry.params, carry.rest))
            carry = carry._replace(totals=jax.tree.map(jnp.zeros_like, carry.totals))
            record = record | {
                "step": step,
                "epoch": epoch,
                "stop": verdict.state,
                "rule": verdict.rule,
                "reason": verdict.reason,
                "rows": record["rows"] + 1,
                "total_steps": total,
            }
            save(record)
            stop_if_asked()
    console.print(
        f"{stage.name} ended after epoch {record['epoch']}: {record['reason']}"
    )
    kept = best if stage.hand_over == "best" else (carry.params, carry.rest)
    checkpoint.save_model(run.folder.stage(stage.name), kept)
    run_folder.write_json(
        run.folder.stage(stage.name).with_suffix(".json"),
        {
            "name": stage.name,
            "epochs": record["epoch"],
            "steps": step,
            "stop_rule": record["rule"],
            "stop_reason": record["reason"],
            "seconds": record["seconds"],
        },
    )
    if index + 1 == len(parts.method.stages):
        return record | {"stage": index + 1}
    return record | {
        "stage": index + 1,
        "step": 0,
        "epoch": 0,
        "stop": parts.method.stages[index + 1].stop.init(),
        "rule": "",
        "reason": "",
        "seconds": 0.0,
    }


def make_step(
    graph: nnx.GraphDef,
    stage: Stage,
    optimizer: optax.GradientTransformation,
    key: Array,
) -> tuple[Callable[[Carry, pipeline.Batch], Carry], Callable]:
    """The compiled training step of a stage, and the names of its scalars.

    A step whose loss or gradient is not finite changes nothing, and no step after it
    does: the carry stays at its last good state until the host notices.
    """

    def loss(params, rest, batch, step):
        # A copy, since batch statistics change within the trace of the gradient.
        model = nnx.merge(graph, params, rest, copy=True)
        rngs = nnx.Rngs(jax.random.fold_in(key, step))
        value, scalars = stage.loss(model, batch, rngs)
        return value, (nnx.split(model, nnx.Param, ...)[2], scalars | {"loss": value})

    def step(carry: Carry, batch: pipeline.Batch) -> Carry:
        (_, (rest, scalars)), gradients = jax.value_and_grad(loss, has_aux=True)(
            carry.params, carry.rest, batch, carry.step
        )
        finite = jnp.isfinite(scalars["loss"] + optax.global_norm(gradients))
        bad_step = jnp.where((carry.bad_step < 0) & ~finite, carry.step, carry.bad_step)
        updates, state = optimizer.update(gradients, carry.optimizer, carry.params)
        params = optax.apply_updates(carry.params, updates)
        model = nnx.merge(graph, params, rest, copy=True)
        stage.after_step(model, carry.step)
        rest = nnx.split(model, nnx.Param, ...)[2]
        totals = jax.tree.map(jnp.add, carry.totals, scalars)
        new = Carry(params, rest, state, carry.step + 1, bad_step, totals)
        good = jax.tree.map(lambda a, b: jnp.where(bad_step < 0, a, b), new, carry)
        return good._replace(bad_step=bad_step)

    def names(params, rest, batch):
        shapes = jax.eval_shape(loss, params, rest, batch, jnp.zeros((), jnp.int32))
        return list(shapes[1][1])

    return jax.jit(step, donate_argnums=0), names


def _entered(run: Run, index: int) -> nnx.Module:
    """The model with which a stage starts."""
    parts = run.parts
    model = parts.create()
    if index == 0:
        return model
    graph, params, rest = nnx.split(model, nnx.Param, ...)
    before = run.folder.stage(parts.method.stages[index - 1].name)
    params, rest = checkpoint.load_model(before, (params, rest))
    model = nnx.merge(graph, params, rest)
    rngs = nnx.Rngs(jax.random.fold_in(jax.random.key(run.config.seed), 1000 + index))
    parts.method.stages[index].enter(model, {"initial": parts.create}, rngs)
    return model


def _batches(config, parts, stage, plan, index) -> Callable[[int], Iterator]:
    def start(first_step: int) -> Iterator[pipeline.Batch]:
        return pipeline.training_batches(
            parts.dataset.splits["train"],
            plan,
            augment=assemble.augmentation(config),
            views=stage.views,
            seed=(config.seed, index),
            first_step=first_step,
            threads=config.data.threads,
        )

    return start


def _read(carry: Carry, plan, run: Run) -> dict[str, float]:
    """Mean scalars since the epoch began; the only look at the device between epochs.

    Raises NonFinite where a step went wrong since the last look.
    """
    bad_step, step, totals = jax.device_get((carry.bad_step, carry.step, carry.totals))
    if bad_step >= 0:
        ids = run.parts.dataset.splits["train"].ids
        items = [ids[i] for i in plan.batch(int(bad_step))]
        newest = run.checkpoints.latest()
        good = run.folder.checkpoints / str(newest) if newest else "none yet"
        raise NonFinite(
            f"the loss or a gradient was not finite at step {int(bad_step)}. The last "
            f"good checkpoint: {good}. Try a smaller optimizer.learning_rate. The "
            f"batch held: {', '.join(items)}"
        )
    done = (int(step) - 1) % plan.steps_per_epoch + 1
    return {name: float(total) / done for name, total in totals.items()}


def _margins(graph, carry: Carry, parts: assemble.Parts) -> dict[str, float]:
    model = nnx.merge(graph, carry.params, carry.rest, copy=True)
    view = parts.method.margins(model)
    if view is None:
        return {}
    names = metrics.boundary_names(parts.dataset.ranks)
    return dict(zip(names, map(float, np.asarray(view.values)), strict=True))


def _copy(state):
    """A copy on the host that no donated buffer can reach."""
    return jax.tree.map(lambda x: np.array(x, copy=True), state)


def _scalars(scores: dict[str, Any]) -> dict[str, Any]:
    return {k: v for k, v in scores.items() if v is None or isinstance(v, float)}


def _log(writer, row: dict[str, Any], total_steps: int) -> None:
    groups = ("train", "train_eval", "val", "margins")
    for group, (name, value) in itertools.chain.from_iterable(
        zip(itertools.repeat(g), row[g].items()) for g in groups
    ):
        if value is not None and math.isfinite(value):
            writer.add_scalar(f"{group}/{name}", value, total_steps)
    writer.flush()


def _announce(config: ConfigDict, parts: assemble.Parts) -> None:
    """What is about to be trained on, before it starts."""
    for note in parts.dataset.notes:
        console.print(f"  {note}")
    for split, source in parts.dataset.splits.items():
        counts = np.bincount(source.labels, minlength=len(parts.dataset.ranks))
        shown = "  ".join(
            f"{r}: {n}" for r, n in zip(parts.dataset.ranks, counts, strict=True)
        )
        console.print(f"{split:>7}  {len(source)} images  ({shown})")
    first = parts.method.stages[0]
    left_out = assemble.plan(config, parts.dataset, first, 0).left_out
    if left_out > config.train.batch_size + len(parts.dataset.ranks):
        console.print(
            f"  {left_out} training images are left out of each epoch (others each "
            "time), because one rank is so common that batches would hold nothing "
            "else; train.sampling='balanced' avoids that"
        )
