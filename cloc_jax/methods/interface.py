"""What a method is: a short list of stages that one loop can train, and their ends.

CLOC's two phases, pretraining with a probe after it, a teacher that follows its student
and reference points are all the same to the loop, which knows nothing but this file.
"""

import dataclasses
import math
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from cloc_jax.config import check_choice, check_range

# Parameter groups by the first names of their paths; see `group_of`.
ENCODER = ("stem", "layer1", "layer2", "layer3", "layer4", "layer5")
HEAD = "head"
NETWORK = (*ENCODER, HEAD)

# Optimizer settings of groups that weight decay must not reach.
UNDECAYED: Mapping[str, Any] = {"weight_decay": 0.0, "final_weight_decay": None}

# The `Share` of triplets that keep their margin, in the history and the results.
KEPT_TRIPLETS = "kept_triplets"

CLASSIFIERS = ("layers", "cosine")
SHAPES = ("free", "binomial", "poisson", "copoc")
HIGHER_IS_BETTER = {"accuracy": True, "qwk": True, "mae": False, "macro_mae": False}

Support = dict[str, np.ndarray]  # what `Method.fit` found, saved with the run


class View(NamedTuple):
    """One look at a training image."""

    size: tuple[int, int] | None = None  # None: data.size
    # "default" is config.augment, "none" the clean image; others: data/view_recipes.py.
    augment: str = "default"


class Context(NamedTuple):
    """What a stage may look at when it is entered."""

    initial: Callable[[], nnx.Module]  # the model as the run began
    num_steps: int  # of the stage, at most


class Labelled(NamedTuple):
    """A split as `Method.fit` sees it."""

    embeddings: Float[np.ndarray, "item dim"]
    labels: Int[np.ndarray, " item"]


class Prediction(NamedTuple):
    """What a method says of a batch of images.

    A softmax gives `probabilities`, any other head `above`; every score, calibration
    and decision starts from one of them (see scoring/predictions.py). MAE is
    that of `value` where a method predicts one, else of `label`.
    """

    label: Int[Array, " batch"]
    value: Float[Array, " batch"] | None = None  # a rank that need not be whole
    above: Float[Array, "batch boundaries"] | None = None  # P(rank > h)
    probabilities: Float[Array, "batch ranks"] | None = None


class Share(NamedTuple):
    """Counts of a batch, one per boundary, that add up over an epoch to a share."""

    part: Float[Array, "boundaries"]
    whole: Float[Array, "boundaries"]


class Readout(NamedTuple):
    """Values of a model that people read: margins, thresholds, reference points."""

    values: Float[Array, " values"]
    per: str = "boundary"  # or "rank": what there is one value of
    kinds: tuple[str, ...] = ()  # of each value: "learned", "floored" or "fixed"
    limit: float | None = None  # the largest sum that can be met
    # Whether they are margins between cosines of what `Method.embed` returns, so that
    # it can be counted how often embeddings miss them.
    is_of_embeddings: bool = False


def do_nothing(model: nnx.Module, *given: Any) -> None:
    """Leaves a model as it is, before a stage or after a step."""


class Verdict(NamedTuple):
    """What a stop rule says after an epoch."""

    state: dict[str, Any]
    rule: str = ""  # the rule that fired, "" to go on
    reason: str = ""  # the same for people
    improved: bool = False  # this epoch is the best so far


START: Mapping[str, Any] = {"best": None, "since": 0}  # the state of a stop rule


class Stop(NamedTuple):
    """A stop rule: `update` gives the verdict after each epoch.

    Its state is plain data, as it is saved with the run, first START. `update(state,
    epoch, scores)` sees how many epochs are done, the metrics of the splits it reads
    (training data as they are), and as "batches" the means of the epoch's scalars.
    """

    update: Callable[[Mapping[str, Any], int, Mapping[str, Mapping]], Verdict]
    max_epochs: int
    reads: tuple[str, ...] = ("val",)


class Limits(NamedTuple):
    """Settings that the rules of all stages share; see `cloc_jax/config.py`."""

    max_epochs: int
    patience: int
    monitor: str


@dataclasses.dataclass(frozen=True)
class HeadOptions:
    """What a head is made of; see `cloc_jax/config.py` for what each means."""

    projection: int
    projection_relu: bool
    classifier: str
    hidden: int
    shape: str

    def __post_init__(self) -> None:
        check_choice("head.classifier", self.classifier, CLASSIFIERS)
        check_choice("head.shape", self.shape, SHAPES)
        if self.shape != "free" and self.classifier != "layers":
            raise ValueError(
                f"head.shape is {self.shape!r}, which computes the logits from outputs "
                f"of layers, but head.classifier is {self.classifier!r}; use layers, "
                "or head.shape=free."
            )
        check_range("head", 0, projection=self.projection)
        check_range("head", 1, hidden=self.hidden)


class Task(NamedTuple):
    """What a method is made for: all that is not among its own settings."""

    num_ranks: int
    limits: Limits
    head: HeadOptions
    mesh: Mesh
    batch_size: int
    is_encoder_frozen: bool = False
    boundary_weights: Sequence[float] = ()  # one per boundary, or none for all alike


class Stage(NamedTuple):
    """One part of training, with its own loss, trainable groups and end."""

    name: str
    # (model, batch, rngs) -> (scalar, dict of means over the batch and of `Share`s).
    loss: Callable
    # Parameter group -> settings that differ from the stage's; others are frozen.
    trains: Mapping[str, Mapping[str, Any]]
    stop: Stop
    title: str = ""  # for people, and the key of its scores in metrics.json
    views: tuple[View, ...] = (View(),)  # batch["image"] is a tuple if several
    sampler: str = "rank_pairs"  # one of data/samplers.py
    optimizer: Mapping[str, Any] = {}  # settings that differ from config.optimizer
    enter: Callable = do_nothing  # (model, context, rngs), changes the model in place
    # (model, step, num_steps), changes variables that are no Param
    after_step: Callable = do_nothing
    is_scored: bool = True  # False: nothing can be predicted yet
    hand_over: str = "last"  # or "best": which state the next stage receives

    @property
    def key(self) -> str:
        """The name of the stage's scores in metrics.json."""
        return (self.title or self.name).replace(" ", "_")


class Method(NamedTuple):
    """A way to learn ranks from images."""

    init: Callable  # (encoder, rngs) -> nnx.Module holding everything learned
    stages: tuple[Stage, ...]
    embed: Callable  # (model, images) -> [batch, dim]
    predict: Callable  # (model, images, support) -> Prediction
    # (model, Labelled train, Labelled val) -> Support, e.g. the bank and k of a kNN;
    # None for methods that predict without.
    fit: Callable[..., Support] | None = None
    readouts: Callable[[nnx.Module], dict[str, Readout]] = lambda model: {}
    # Splits whose embeddings `fit` needs; it gets None for the other. Those of all
    # training images after each epoch cost a third of training on them.
    fit_reads: tuple[str, ...] = ("train", "val")
    # Whether a stage has a mean over images in its loss that takes batch["weight"],
    # which a batch has where images differ in weight.
    takes_weights: bool = False


def by_validation(limits: Limits, *, train_accuracy: float | None = None) -> Stop:
    """Stops at `train_accuracy`, or after `patience` epochs without improvement of
    `monitor` on validation, or after `max_epochs`; the first that fires."""
    max_epochs, patience, monitor = limits
    check_choice("train.monitor", monitor, HIGHER_IS_BETTER)
    check_range("train", 1, max_epochs=max_epochs, patience=patience)
    sign = 1.0 if HIGHER_IS_BETTER[monitor] else -1.0
    # Not looked at without need: it costs a third of training on them.
    reads_train = train_accuracy is not None and train_accuracy <= 1

    def update(state, epoch, scores) -> Verdict:
        # An undefined score (QWK of a single predicted rank) improves on nothing.
        score, best, since = scores["val"][monitor], state["best"], state["since"] + 1
        improved = score is not None and (best is None or sign * score > best)
        # Until something can be handed over, the newest is the best there is.
        if improved or (best is None and epoch == 1):
            improved, since = True, 0
            best = None if score is None else sign * score
        rule, reason = "", ""
        if reads_train and scores["train"]["accuracy"] >= train_accuracy:
            rule = "train_accuracy"
            reached = scores["train"]["accuracy"]
            reason = f"train accuracy {reached:.3f} reached {train_accuracy:g}"
        elif since >= patience:
            rule = "patience"
            reason = f"validation {monitor} did not improve for {patience} epochs"
        elif epoch >= max_epochs:
            rule, reason = _cap(max_epochs)
        return Verdict({"best": best, "since": since}, rule, reason, improved)

    return Stop(update, max_epochs, ("train", "val") if reads_train else ("val",))


def after_epochs(max_epochs: int) -> Stop:
    """Stops after `max_epochs`: for stages that cannot be scored."""
    check_range("train", 1, max_epochs=max_epochs)

    def update(state, epoch, scores) -> Verdict:
        rule, reason = _cap(max_epochs) if epoch >= max_epochs else ("", "")
        return Verdict(dict(state), rule, reason, improved=True)

    return Stop(update, max_epochs, reads=())


def _cap(max_epochs: int) -> tuple[str, str]:
    return "max_epochs", f"the cap of {max_epochs} epochs was reached"


def group_of(path: tuple[Any, ...]) -> str:
    """Parameter group of a path: "encoder.layer1.conv1.kernel" is in "layer1".

    A teacher's layers are in the groups of its student's.
    """
    first, *rest = [name for name in path if name != "teacher"] or path
    return str(rest[0] if first == "encoder" and rest else first)


def freeze(model: nnx.Module, trains: Collection[str]) -> None:
    """Puts groups outside `trains` into evaluation mode.

    Else their running statistics, which no optimizer holds, would follow the batches.
    """
    for path, module in nnx.iter_graph(model):
        if path and group_of(path) in trains:
            continue
        if isinstance(module, nnx.BatchNorm):
            module.use_running_average = True
        if isinstance(module, nnx.Dropout):
            module.deterministic = True


def check_weights(per: str, given: Any, count: int) -> None:
    """ValueError where train.<per>_weights is not one usable number for each."""
    numbers = [w for w in given if isinstance(w, int | float) and 0 <= w < math.inf]
    if not len(numbers) == len(given) == count or not any(numbers):
        raise ValueError(
            f"train.{per}_weights is {given!r}; give one number for each {per}, "
            f"{count} here, 0 or more and not all 0, such as {(1.0,) * count}."
        )
