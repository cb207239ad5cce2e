"""What a run does while it trains: checkpoints, a history, the console, and signals."""

import contextlib
import math
import pathlib
import time
from collections.abc import Callable, Sequence
from typing import Any

import jax
from ml_collections import ConfigDict

from cloc_jax.methods import KEPT_TRIPLETS, Support
from cloc_jax.runtime import checkpoint, errors, processes
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.console import Display, console, duration
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.runtime.trackers import Tracker
from cloc_jax.training import assembly, fit, train_step

# An epoch's checkpoint is left out where it is this many times as costly as what has
# been trained since the last one: epochs on features take milliseconds.
MOST_OVERHEAD = 0.1
# Of the estimate of a run's time:
STEPS = 3  # that are timed, unless the first of them takes long
ENOUGH_SECONDS = 10.0
LONG_SECONDS = 3600.0  # from here on frozen features are suggested
FORWARD = 1 / 3  # of a training step, what evaluation takes for as many images


class RunCallbacks(fit.Callbacks, contextlib.AbstractContextManager):
    """Keeps and shows what training does, and stops it when a signal asks for that."""

    def __init__(
        self,
        config: ConfigDict,
        parts: assembly.Parts,
        folder: RunFolder,
        checkpoints: checkpoint.Checkpoints,
        requests: errors.StopRequest,
        log: Sequence[Tracker],
    ):
        self._every, self._folder = config.train, folder
        self._checkpoints, self._requests = checkpoints, requests
        self._log = log
        self._estimate = TimeEstimate(config, parts)
        self._display: Any = contextlib.nullcontext()
        self._saved, self._save_seconds = -math.inf, 0.0
        self._looked = 0  # the step of the last look at the loss
        self.rows = 0  # of the history
        self.total_steps = 0  # over all stages, for trackers

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
            means = train_step.means(at.carry, at.sampler.steps_per_epoch)
            self._display.step(at.step, means)
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
            for tracker in self._log:
                tracker.write(_scalars(row), self.total_steps)
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
            raise _interrupted(number, f"after stage {name}", self._folder.checkpoints)

    def _save(self, at: fit.StageFit) -> pathlib.Path:
        """Writes a checkpoint of where the stage is now and returns its path."""
        # Never a checkpoint of a state that went wrong.
        train_step.means(at.carry, at.sampler.steps_per_epoch)
        started = time.monotonic()
        counts = {"rows": self.rows, "total_steps": self.total_steps}
        number = self._checkpoints.save((at.carry, at.best), at.record | counts)
        self._saved = time.monotonic()
        self._save_seconds = self._saved - started
        return self._folder.checkpoints / str(number)

    def _stop_if_asked(self, at: fit.StageFit) -> None:
        if number := processes.largest(self._requests.number):
            where = f"in stage {at.stage.name} at step {at.step}"
            raise _interrupted(number, where, self._save(at))


def _interrupted(number: int, where: str, saved: pathlib.Path) -> errors.Interrupted:
    return errors.Interrupted(
        number,
        f"stopped {where}; everything is saved in {saved}. Continue with the same "
        "command and --resume.",
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
    ended = {
        "epochs": record["epoch"],
        "steps": record["step"],
        "stop_rule": record["rule"],
        "stop_reason": record["reason"],
        "seconds": record["seconds"],
        "kept_triplets": record["shares"].get(KEPT_TRIPLETS, {}),
    }
    folder.write_stage(name, ended, support)


def _scalars(row: fit.Record) -> dict[str, float]:
    """The numbers of a history row by name."""
    groups = {name: row[name] for name in ("train", "train_eval", "val")}
    return {
        f"{group}/{name}": value
        for group, values in (groups | row["readouts"]).items()
        for name, value in values.items()
        if value is not None and math.isfinite(value)
    }


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
        self._seconds: list[float] = []  # of each step, the one that compiles first
        # A run that computes no gradients of an encoder, or not on one CPU, is fast.
        is_on_cpu = jax.default_backend() == "cpu" and processes.is_alone()
        self._is_told = not is_on_cpu or config.encoder.frozen

    def after_step(self, carry: Any, began: float, *, is_last: bool) -> None:
        """Waits for the step while it is timed; nothing once the estimate is told.

        It is told after a few steps, or where the first epoch ends before evaluation.
        """
        if self._is_told:
            return
        jax.block_until_ready(carry)
        self._seconds.append(self._clock() - began)
        timed = self._seconds[1:]
        enough = len(timed) >= STEPS or sum(timed) >= ENOUGH_SECONDS or is_last
        if not (timed and enough):
            return
        self._is_told = True
        seconds = sum(timed) / len(timed)
        for line in estimate_lines(self._config, self._parts, seconds, len(timed)):
            console.print(f"  {line}", soft_wrap=True)


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
        name = config.data.name.replace("synthetic", "quickstart")
        lines.append(
            "that is long without a GPU; on the frozen features of an ImageNet "
            f"ResNet-50 it takes minutes: --config=configs/{name}.py:frozen"
        )
    return lines
