"""When a stage ends: pure rules whose state is plain data and is saved with the run."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

LIMITS = ("max_epochs", "patience", "monitor")  # settings of every stop rule
HIGHER_IS_BETTER = {"accuracy": True, "qwk": True, "mae": False, "macro_mae": False}


class Verdict(NamedTuple):
    """What a rule says after an epoch."""

    state: dict[str, Any]
    rule: str = ""  # the rule that fired, "" to go on
    reason: str = ""  # the same for people
    improved: bool = False  # this epoch is the best so far on validation


class Stop(NamedTuple):
    """A stop rule: `init` gives its state, `update` the verdict after each epoch.

    `update(state, epoch, scores)` sees how many epochs are done and the metrics of
    the splits it reads, training data without augmentation.
    """

    init: Callable[[], dict[str, Any]]
    update: Callable[[Mapping[str, Any], int, Mapping[str, Mapping]], Verdict]
    reads: tuple[str, ...] = ("train", "val")


def stop_rule(
    *,
    max_epochs: int,
    patience: int,
    monitor: str,
    train_accuracy: float | None = None,
) -> Stop:
    """Stops at `train_accuracy`, or after `patience` epochs without improvement of
    `monitor` on validation, or after `max_epochs`; the first that fires."""
    if monitor not in HIGHER_IS_BETTER:
        raise ValueError(
            f"train.monitor is {monitor!r}; it is a validation metric: "
            f"{', '.join(HIGHER_IS_BETTER)}."
        )
    for name, value in (("max_epochs", max_epochs), ("patience", patience)):
        if value < 1:
            raise ValueError(f"train.{name} is {value}; it must be 1 or more.")
    if train_accuracy is not None and not 0 < train_accuracy:
        raise ValueError(
            f"train.stop_accuracy is {train_accuracy}; it is a fraction such as 0.95, "
            "and above 1 it never fires."
        )
    sign = 1.0 if HIGHER_IS_BETTER[monitor] else -1.0

    def init() -> dict[str, Any]:
        return {"best": None, "since": 0}

    # Not looked at without need: it costs a third of training on them.
    reads_train = train_accuracy is not None and train_accuracy <= 1

    def update(state, epoch, scores) -> Verdict:
        # An undefined score (QWK of a single predicted rank) improves on nothing.
        found = scores["val"][monitor]
        score = None if found is None else sign * found
        improved = score is not None and (
            state["best"] is None or score > state["best"]
        )
        # Until something can be handed over, the newest is the best there is.
        improved = improved or (state["best"] is None and epoch == 1)
        state = {
            "best": score if improved else state["best"],
            "since": 0 if improved else state["since"] + 1,
        }
        rule, reason = "", ""
        if reads_train and scores["train"]["accuracy"] >= train_accuracy:
            rule = "train_accuracy"
            reached = scores["train"]["accuracy"]
            reason = f"train accuracy {reached:.3f} reached {train_accuracy:g}"
        elif state["since"] >= patience:
            rule = "patience"
            reason = f"validation {monitor} did not improve for {patience} epochs"
        elif epoch >= max_epochs:
            rule = "max_epochs"
            reason = f"the cap of {max_epochs} epochs was reached"
        return Verdict(state, rule, reason, improved)

    return Stop(init, update, ("train", "val") if reads_train else ("val",))
