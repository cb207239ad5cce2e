"""The paper's precautions against margins that collapse, switched off in turn."""

from typing import Any

from cloc_jax.paper.table_rows import COLLAPSED, PRECAUTIONS
from cloc_jax.sweeps.run_plan import Setting

WITH, WITHOUT = PRECAUTIONS[0], PRECAUTIONS[-1]
LOW_START = (0.05, 0.1)
NEVER = 2.0  # a train accuracy that no run reaches

__all__ = ["COLLAPSED", "NEVER", "WITH", "WITHOUT", "precautions"]


def precautions(max_epochs: int) -> list[Setting]:
    """Phase one with all of them, without each, and with none of them.

    Args:
      max_epochs: that phase one takes where nothing stops it early.
    """
    relu: dict[str, Any] = {"method.cloc.margin_form": "relu"}
    start: dict[str, Any] = {"method.cloc.margin_start": LOW_START}
    long: dict[str, Any] = {
        "method.cloc.stop_accuracy": NEVER,
        "train.patience": max_epochs,
    }
    changes: tuple[dict[str, Any], ...] = ({}, relu, start, long, relu | start | long)
    phase_one: dict[str, Any] = {"method.cloc.phases": 1}
    return [
        Setting(name, phase_one | change)
        for name, change in zip(PRECAUTIONS, changes, strict=True)
    ]
