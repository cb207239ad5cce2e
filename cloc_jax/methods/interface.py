"""What a method is: a short list of stages that one loop can train.

CLOC's two phases, pretraining with a probe after it, a teacher that follows its student
and reference points are all the same to the loop, which knows nothing but this file.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

import numpy as np
from flax import nnx
from jaxtyping import Array, Float, Int

from cloc_jax.methods.stop_rules import Stop

# Parameter groups by the first names of their paths; see `group_of`.
ENCODER = ("stem", "layer1", "layer2", "layer3", "layer4", "layer5")
HEAD = "head"
NETWORK = (*ENCODER, HEAD)

# Optimizer settings of groups that weight decay must not reach.
UNDECAYED: Mapping[str, Any] = {"weight_decay": 0.0, "final_weight_decay": None}

Support = dict[str, np.ndarray]  # what `Method.fit` found, saved with the run


class View(NamedTuple):
    """One look at a training image."""

    size: tuple[int, int] | None = None  # None: data.size
    # "default" is config.augment, "none" the clean image, others are recipes of
    # data/view_recipes.py.
    augment: str = "default"


class Context(NamedTuple):
    """What a stage may look at when it is entered."""

    initial: Callable[[], nnx.Module]  # the model as the run began
    embed: Callable[[], np.ndarray]  # embeddings [item, dim] of the clean training data
    labels: Int[np.ndarray, " item"]  # of the training data
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


class Readout(NamedTuple):
    """Values of a model that people read: margins, thresholds, reference points."""

    values: Float[Array, " values"]
    per: str = "boundary"  # or "rank": what there is one value of
    kinds: tuple[str, ...] = ()  # of each value: "learned", "floored" or "fixed"
    limit: float | None = None  # the largest sum that can be met
    # Whether they are margins between cosines of what `Method.embed` returns, so that
    # it can be counted how often embeddings miss them.
    is_of_embeddings: bool = False


def keep(model: nnx.Module, context: Context, rngs: nnx.Rngs) -> None:
    """Enter a stage with the model as the previous stage left it."""


def do_nothing(model: nnx.Module, step: Any, num_steps: int) -> None:
    """Change nothing after a step."""


def no_readouts(model: nnx.Module) -> dict[str, Readout]:
    """A method without values to read."""
    return {}


class Stage(NamedTuple):
    """One part of training, with its own loss, trainable groups and end."""

    name: str
    # (model, batch, rngs) -> (scalar, dict of scalars); means over the batch.
    loss: Callable
    # Parameter group -> optimizer settings that differ from the stage's. Groups not
    # listed are frozen.
    trains: Mapping[str, Mapping[str, Any]]
    stop: Stop
    title: str = ""  # for people, and the key of its scores in metrics.json
    views: tuple[View, ...] = (View(),)  # batch["image"] is a tuple if several
    sampler: str = "rank_pairs"  # one of data/samplers.py
    optimizer: Mapping[str, Any] = {}  # settings that differ from config.optimizer
    enter: Callable = keep  # (model, context, rngs), changes the model in place
    # (model, step, num_steps), changes variables that are no Param
    after_step: Callable = do_nothing
    is_scored: bool = True  # False: nothing can be predicted yet
    # Groups whose batch norm and dropout stay in evaluation mode though others train.
    evaluates: tuple[str, ...] = ()
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
    readouts: Callable[[nnx.Module], dict[str, Readout]] = no_readouts
    # Splits whose embeddings `fit` needs; it gets None for the other. Those of all
    # training images after each epoch cost a third of training on them.
    fit_reads: tuple[str, ...] = ("train", "val")


def group_of(path: tuple[Any, ...]) -> str:
    """Parameter group of a path: "encoder.layer1.conv1.kernel" is in "layer1"."""
    return str(path[1] if path[0] == "encoder" and len(path) > 1 else path[0])


def freeze(
    model: nnx.Module, trains: Collection[str], evaluates: Collection[str] = ()
) -> None:
    """Puts groups outside `trains`, and those in `evaluates`, into evaluation mode.

    An optimizer that leaves a group alone does not keep its running statistics from
    following the batches.
    """
    for path, module in nnx.iter_modules(model):
        if path and group_of(path) in trains and group_of(path) not in evaluates:
            continue
        if isinstance(module, nnx.BatchNorm):
            module.use_running_average = True
        if isinstance(module, nnx.Dropout):
            module.deterministic = True
