"""When a stage ends: pure rules whose state is plain data and is saved with the run."""

from collections.abc import Callable, Mapping
from typing import Any, NamedTuple

HIGHER_IS_BETTER = {"accuracy": True, "qwk": True, "mae": False, "macro_mae": False}


class Verdict(NamedTuple):
    """What a rule says after an epoch."""

    state: dict[str, Any]
    rule: str = ""  # the rule that fired, "" to go on
    reason: str = ""  # the same for people
    improved: bool = False  # this epoch is the best so far


class Stop(NamedTuple):
    """A stop rule: `init` gives its state, `update` the verdict after each epoch.

    `update(state, epoch, scores)` sees how many epochs are done, the metrics of the
    splits it reads (training data without augmentation), and as "batches" the means
    of the epoch's scalars.
    """

    init: Callable[[], dict[str, Any]]
    update: Callable[[Mapping[str, Any], int, Mapping[str, Mapping]], Verdict]
    max_epochs: int
    reads: tuple[str, ...] = ("val",)


class Limits(NamedTuple):
    """Settings that the rules of all stages share; see `cloc_jax/config.py`."""

    max_epochs: int
    patience: int
    monitor: str


def by_validation(limits: Limits, *, train_accuracy: float | None = None) -> Stop:
    """Stops at `train_accuracy`, or after `patience` epochs without improvement of
    `monitor` on validation, or after `max_epochs`; the first that fires."""
    max_epochs, patience, monitor = limits
    if monitor not in HIGHER_IS_BETTER:
        raise ValueError(
            f"train.monitor is {monitor!r}; it is a validation metric: "
            f"{', '.join(HIGHER_IS_BETTER)}."
        )
    _check_epochs(max_epochs, patience)
    if train_accuracy is not None and not 0 < train_accuracy:
        raise ValueError(
            f"the train accuracy that ends a stage is {train_accuracy}; it is a "
            "fraction such as 0.95, and above 1 it never fires."
        )
    sign = 1.0 if HIGHER_IS_BETTER[monitor] else -1.0
    # Not looked at without need: it costs a third of training on them.
    reads_train = train_accuracy is not None and train_accuracy <= 1

    def update(state, epoch, scores) -> Verdict:
        # An undefined score (QWK of a single predicted rank) improves on nothing.
        found = scores["val"][monitor]
        state, improved = _watch(state, epoch, None if found is None else sign * found)
        rule, reason = "", ""
        if reads_train and scores["train"]["accuracy"] >= train_accuracy:
            rule = "train_accuracy"
            reached = scores["train"]["accuracy"]
            reason = f"train accuracy {reached:.3f} reached {train_accuracy:g}"
        elif state["since"] >= patience:
            rule = "patience"
            reason = f"validation {monitor} did not improve for {patience} epochs"
        elif epoch >= max_epochs:
            rule, reason = _cap(max_epochs)
        return Verdict(state, rule, reason, improved)

    return Stop(
        _start, update, max_epochs, ("train", "val") if reads_train else ("val",)
    )


def after_epochs(max_epochs: int) -> Stop:
    """Stops after `max_epochs`: for stages that cannot be scored."""
    _check_epochs(max_epochs, 1)

    def update(state, epoch, scores) -> Verdict:
        rule, reason = _cap(max_epochs) if epoch >= max_epochs else ("", "")
        return Verdict(dict(state), rule, reason, improved=True)

    return Stop(_start, update, max_epochs, reads=())


def _start() -> dict[str, Any]:
    return {"best": None, "since": 0}


def _watch(
    state: Mapping[str, Any], epoch: int, score: float | None
) -> tuple[dict[str, Any], bool]:
    """The state after an epoch with that score (higher is better), and whether it is
    the best so far."""
    improved = score is not None and (state["best"] is None or score > state["best"])
    # Until something can be handed over, the newest is the best there is.
    improved = improved or (state["best"] is None and epoch == 1)
    best = score if improved else state["best"]
    return {"best": best, "since": 0 if improved else state["since"] + 1}, improved


def _cap(max_epochs: int) -> tuple[str, str]:
    return "max_epochs", f"the cap of {max_epochs} epochs was reached"


def _check_epochs(max_epochs: int, patience: int) -> None:
    for name, value in (("max_epochs", max_epochs), ("patience", patience)):
        if value < 1:
            raise ValueError(f"train.{name} is {value}; it must be 1 or more.")
