"""A run: training in a folder, with checkpoints, a history, and a person watching.

A checkpoint holds what a step changes and a small record of where the run is, so that
a run which was stopped goes on as if it had not been.
"""

import contextlib
import math
import time
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from cloc_jax.config import saved_config
from cloc_jax.methods import Support
from cloc_jax.runtime import checkpoint, errors, files, processes, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.console import (
    Display,
    ScalarLog,
    console,
    duration,
    print_dataset,
)
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly, encoder, fit
from cloc_jax.training.assembly import build_dataset

# An epoch's checkpoint is left out where it is this many times as costly as what has
# been trained since the last one: epochs on features take milliseconds.
MOST_OVERHEAD = 0.1
# Of the estimate of a run's time:
STEPS = 3  # that are timed, unless the first of them takes long
ENOUGH_SECONDS = 10.0
LONG_SECONDS = 3600.0  # from here on frozen features are suggested
FORWARD = 1 / 3  # of a training step, what evaluation takes for as many images


def train(config: ConfigDict, folder: RunFolder, *, resume: bool) -> bool:
    """Trains all stages of a run, from the start or from its newest good checkpoint.

    Further runs of one process reuse what they have in common with the last ones:
    datasets, kept features and compiled programs.

    Args:
      config: every setting.
      folder: where the run is kept; the caller holds it.
      resume: whether the folder may hold the run already.

    Returns:
      False where the run was finished already, which leaves it as it is.
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
    with contextlib.closing(checkpoints):
        record = None
        if checkpoints.latest():
            record = checkpoints.record()
            where = parts.method.stages[record["stage"]].name
            console.print(f"going on in stage {where} at step {record['step']}")
        elif had_checkpoints and parts.method.stages[-1].name in folder.has_stages():
            return True  # all is trained, and only results are to be made again
        else:
            _check_beginning(folder, had_checkpoints)
        rows = _cut_history(folder, record["rows"] if record else 0)
        total_steps = record["total_steps"] if record else 0
        with (
            errors.stop_requests() as requests,
            ScalarLog(
                folder.tensorboard, total_steps + 1, is_written=processes.is_first()
            ) as scalars,
            RunCallbacks(
                config, parts, folder, checkpoints, requests, scalars
            ) as callbacks,
        ):
            callbacks.rows, callbacks.total_steps = rows, total_steps
            _fit(config, parts, folder, checkpoints, callbacks, record)
    return True


def _fit(config, parts, folder, checkpoints, callbacks: "RunCallbacks", record) -> None:
    try:
        fit.fit(
            parts.method,
            parts.dataset.splits,
            assembly.fit_settings(config),
            create=parts.create,
            ranks=parts.dataset.ranks,
            mesh=parts.mesh,
            views=lambda stage: assembly.draws(config, parts.dataset, stage),
            stage_samplers=parts.samplers,
            callbacks=callbacks,
            resume=fit.Resume(record, checkpoints.arrays) if record else None,
        )
    except fit.NonFinite as error:
        newest = checkpoints.latest()
        good = folder.checkpoints / str(newest) if newest else "none yet"
        raise fit.NonFinite(
            f"{error} Last good checkpoint: {good}. Start another run with a smaller "
            "optimizer.learning_rate."
        ) from None


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


def _cut_history(folder: RunFolder, wanted: int) -> int:
    """Leaves the history up to the checkpoint; how many rows that are."""
    if not processes.is_first():
        return wanted
    folder.clear_parts()
    rows = folder.cut_history(wanted)
    if rows < wanted:
        console.print(
            f"{folder.history} has {rows} of the {wanted} epochs so far; the curves "
            "will lack the others",
            soft_wrap=True,
        )
    return rows


class RunCallbacks(fit.Callbacks):
    """Keeps and shows what training does, and stops it when a signal asks for that."""

    def __init__(
        self,
        config: ConfigDict,
        parts: assembly.Parts,
        folder: RunFolder,
        checkpoints: checkpoint.Checkpoints,
        requests: errors.StopRequest,
        scalars: ScalarLog,
    ):
        self._every, self._folder = config.train, folder
        self._checkpoints, self._requests = checkpoints, requests
        self._scalars = scalars
        self._estimate = TimeEstimate(config, parts)
        self._display: Any = contextlib.nullcontext()
        self._saved, self._save_seconds = -math.inf, 0.0
        self._looked = 0  # the step of the last look at the loss
        self.rows = 0  # of the history
        self.total_steps = 0  # over all stages, for TensorBoard

    def __enter__(self) -> "RunCallbacks":
        return self

    def __exit__(self, *error: Any) -> None:
        self._display.__exit__(*error)

    def begin_stage(self, at: fit.StageFit) -> None:
        steps, epochs = at.sampler.steps_per_epoch, at.stage.stop.max_epochs
        self._display = Display(at.stage.name, steps, epochs, at.step).__enter__()
        self._looked = at.step

    def after_steps(self, at: fit.StageFit, began: float) -> None:
        is_last = at.step % at.sampler.steps_per_epoch == 0
        self._estimate.after_step(at.carry, began, is_last=is_last)
        before, self._looked = self._looked, at.step
        few, many = self._every.log_steps, self._every.checkpoint_steps
        is_shown = before // few < at.step // few
        if is_shown:
            self._display.step(at.step, at.means())
        if before // many < at.step // many and not is_last:
            self._save(at)
        if is_shown or processes.is_alone():  # several must agree, which is not free
            self._stop_if_asked(at)

    def before_evaluation(self, at: fit.StageFit) -> None:
        self._display.text("evaluating")

    def between_batches(self, at: fit.StageFit) -> None:
        if processes.is_alone():
            self._stop_if_asked(at)

    def after_epoch(self, at: fit.StageFit, row: fit.Record) -> None:
        self.rows += 1
        self.total_steps += at.sampler.steps_per_epoch
        if processes.is_first():
            self._folder.append_history(row)
        self._scalars.write(_scalars(row), self.total_steps)
        self._display.epoch(row)
        waited = time.monotonic() - self._saved
        is_due = self._save_seconds < MOST_OVERHEAD * waited or at.record["rule"]
        if processes.largest(int(bool(is_due))):
            self._save(at)
        self._stop_if_asked(at)

    def after_stage(
        self, at: fit.StageFit, state: ModelState, support: Support | None
    ) -> None:
        self._display.__exit__(None, None, None)
        self._display = contextlib.nullcontext()
        name, record = at.stage.name, at.record
        console.print(f"{name} ended after epoch {record['epoch']}: {record['reason']}")
        hand_over(self._folder, name, state, support, record)
        # A request that came meanwhile.
        if number := processes.largest(self._requests.number):
            raise errors.Interrupted(
                number,
                f"stopped after stage {name}; everything is saved in "
                f"{self._folder.checkpoints}. Continue with the same command and "
                "--resume.",
            )

    def _save(self, at: fit.StageFit) -> str:
        """Writes a checkpoint of where the stage is now and returns its path."""
        at.means()  # never a checkpoint of a state that went wrong
        started = time.monotonic()
        counts = {"rows": self.rows, "total_steps": self.total_steps}
        number = self._checkpoints.save((at.carry, at.best), at.where() | counts)
        self._saved = time.monotonic()
        self._save_seconds = self._saved - started
        return str(self._folder.checkpoints / str(number))

    def _stop_if_asked(self, at: fit.StageFit) -> None:
        number = processes.largest(self._requests.number)
        if number:
            path = self._save(at)
            raise errors.Interrupted(
                number,
                f"stopped in stage {at.stage.name} at step {at.step}; everything "
                f"is saved in {path}. Continue with the same command and --resume.",
            )


def hand_over(
    folder: RunFolder,
    name: str,
    state: ModelState,
    support: Support | None,
    record: fit.Record,
) -> None:
    """Writes a stage's model, what it needs to predict, and last how it ended."""
    checkpoint.save_model(folder.stage(name), state)
    if not processes.is_first():
        return
    if support is not None:
        folder.write_support(name, support)
    folder.write_stage(
        name,
        epochs=record["epoch"],
        steps=record["step"],
        rule=record["rule"],
        reason=record["reason"],
        seconds=record["seconds"],
    )


def _scalars(row: fit.Record) -> dict[str, float]:
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
    left_out = parts.samplers[0].left_out
    if left_out > config.train.batch_size + len(parts.dataset.ranks):
        console.print(
            f"  {left_out} training images are left out of each epoch (others each "
            "time), because one rank is so common that batches would hold nothing "
            "else; train.sampling='balanced' avoids that"
        )


class TimeEstimate:
    """How long a run may take without a GPU, told once while its first steps run.

    The first step compiles; the seconds of the next few, data included, are scaled to
    epochs. Nothing is computed for the estimate alone.
    """

    def __init__(
        self,
        config: ConfigDict,
        parts: assembly.Parts,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._config, self._parts, self._clock = config, parts, clock
        self._spent = 0.0
        self._steps = -1  # the one that compiles
        self._is_told = not _is_slow(config)

    def after_step(self, carry: Any, began: float, *, is_last: bool) -> None:
        """Waits for the step while it is timed; nothing once the estimate is told.

        It is told after a few steps, or where the first epoch ends before evaluation.

        Args:
            carry: What the step returned.
            began: When it began to wait for its batch, by the clock.
            is_last: Whether it ends an epoch.
        """
        if self._is_told:
            return
        jax.block_until_ready(carry)
        self._steps += 1
        if self._steps:
            self._spent += self._clock() - began
        enough = self._steps >= STEPS or self._spent >= ENOUGH_SECONDS or is_last
        if not (self._steps and enough):
            return
        self._is_told = True
        seconds = self._spent / self._steps
        for line in estimate_lines(self._config, self._parts, seconds, self._steps):
            console.print(f"  {line}", soft_wrap=True)


def _is_slow(config: ConfigDict) -> bool:
    """Whether a run computes gradients of an encoder's images on a CPU."""
    return (
        jax.default_backend() == "cpu"
        and jax.process_count() == 1
        and not config.encoder.frozen
    )


def estimate_lines(
    config: ConfigDict, parts: assembly.Parts, seconds: float, steps: int
) -> list[str]:
    """The estimate in words, from the seconds of a training step."""
    epoch = usual = most = 0.0
    epochs = 2 * config.train.patience
    for stage, batches in zip(parts.method.stages, parts.samplers, strict=True):
        read = stage.stop.reads if stage.is_scored else ()
        images = sum(len(parts.dataset.splits[split]) for split in read)
        one = seconds * (
            batches.steps_per_epoch + FORWARD * images / config.train.batch_size
        )
        cap = stage.stop.max_epochs
        epoch = max(epoch, one)
        # A guess: pretraining runs to its end, other stages improve for a while.
        few = min(cap, epochs) if stage.is_scored else cap
        usual += few * one
        most += cap * one
    count = f"{steps} step{'s' * (steps > 1)}"
    guess = f"about {duration(usual)} if stages end after {epochs} epochs, "
    lines = [
        f"time, estimated from {count} after compilation: {duration(epoch)} per epoch; "
        f"{guess if usual < most else ''}{duration(most)} at most"
    ]
    if usual > LONG_SECONDS:
        lines.append(
            "that is long without a GPU; on the frozen features of an ImageNet "
            f"ResNet-50 it takes minutes: --config=configs/{frozen_config(config)}"
        )
    return lines


def frozen_config(config: ConfigDict) -> str:
    """The file for the same images on frozen features."""
    name = config.data.name
    return f"{'quickstart' if name == 'synthetic' else name}.py:frozen"
