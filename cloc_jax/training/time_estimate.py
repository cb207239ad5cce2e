"""How long a run may take without a GPU, told while its first steps run.

The first step compiles; the seconds of the next few, data included, are scaled to
epochs. Nothing is computed for the estimate alone.
"""

import time
from collections.abc import Callable
from typing import Any

import jax
from ml_collections import ConfigDict

from cloc_jax.runtime.console import console, duration
from cloc_jax.training import assembly

STEPS = 3  # that are timed, unless the first of them takes long
ENOUGH_SECONDS = 10.0
LONG_SECONDS = 3600.0  # from here on frozen features are suggested
FORWARD = 1 / 3  # of a training step, what evaluation takes for as many images


class Estimate:
    """Tells it once; call `after_step` after each step."""

    def __init__(
        self,
        config: ConfigDict,
        parts: assembly.Parts,
        clock: Callable[[], float] = time.monotonic,
    ):
        self._config, self._parts, self._clock = config, parts, clock
        self._spent = 0.0
        self._steps = -1  # the one that compiles
        self._is_told = not is_wanted(config)

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
        for line in tell(self._config, self._parts, seconds, self._steps):
            console.print(f"  {line}", soft_wrap=True)


def is_wanted(config: ConfigDict) -> bool:
    """Whether a run computes gradients of an encoder's images on a CPU."""
    return (
        jax.default_backend() == "cpu"
        and jax.process_count() == 1
        and not config.encoder.frozen
    )


def tell(
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
