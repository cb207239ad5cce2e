"""The end of an epoch and of a stage, the same for one run and for many at once."""

from collections.abc import Mapping
from typing import Any

from cloc_jax.methods import Stage, Support, Verdict
from cloc_jax.runtime import checkpoint, processes
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.run_folder import RunFolder

Row = dict[str, Any]  # of the history


def end_epoch(
    stage: Stage,
    stop_state: Mapping[str, Any],
    *,
    epoch: int,
    step: int,
    means: dict[str, float],
    scores: dict[str, dict[str, Any]],
    readouts: dict[str, dict[str, float]],
    seconds: float,
) -> tuple[Verdict, Row]:
    """What the stop rule says, and what the history keeps of the epoch.

    Args:
      stop_state: of the rule, after the epoch before.
      means: of the scalars of the epoch's batches.
      scores: of "val", and "train" if the rule reads it; {} where nothing is scored.
      readouts: the method's values for people, by name.
    """
    verdict = stage.stop.update(stop_state, epoch, {**scores, "batches": means})

    def scalars(split: str) -> dict[str, float | None]:
        kept = scores.get(split, {}).items()
        return {k: v for k, v in kept if v is None or isinstance(v, float)}

    row = {
        "stage": stage.name,
        "epoch": epoch,
        "step": step,
        "train": means,
        "train_eval": scalars("train"),
        "val": scalars("val"),
        "readouts": readouts,
        "seconds": seconds,
    }
    return verdict, row


def hand_over(
    folder: RunFolder,
    stage: Stage,
    state: ModelState,
    support: Support | None,
    *,
    epochs: int,
    steps: int,
    rule: str,
    reason: str,
    seconds: float,
) -> None:
    """Writes a stage's model, what it needs to predict, and last how it ended."""
    checkpoint.save_model(folder.stage(stage.name), state)
    if not processes.is_first():
        return
    if support is not None:
        folder.write_support(stage.name, support)
    folder.write_stage(
        stage.name,
        epochs=epochs,
        steps=steps,
        rule=rule,
        reason=reason,
        seconds=seconds,
    )
