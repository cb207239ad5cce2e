"""What a method is: a short list of stages that one loop can train.

CLOC's two phases, a pretraining with a probe behind it or a teacher that follows its
student are all the same to the loop in `train.py`, which knows nothing but this file.
"""

from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.methods.stop_rules import Stop

# Parameter groups by the first names of their paths; see `group_of`.
ENCODER = ("stem", "layer1", "layer2", "layer3", "layer4", "layer5")
NETWORK = (*ENCODER, "head")
MARGINS = "margins"


def keep(model, support, rngs):
    """Enter a stage with the model as the previous stage left it."""


def nothing(*args):
    """Do nothing."""


class MarginView(NamedTuple):
    """A model's margins for people to read."""

    values: Float[Array, "boundaries"]
    kinds: tuple[str, ...]  # "learned", "floored" or "fixed"
    limit: float  # the largest sum that the range of cosines allows to be met


class Stage(NamedTuple):
    """One part of training, with its own loss, trainable groups and end."""

    name: str
    # (model, batch, rngs) -> (scalar, dict of scalars); means over the batch.
    loss: Callable
    # Parameter group -> optimizer settings that differ from the run's. Groups not
    # listed are frozen.
    trains: Mapping[str, Mapping[str, Any]]
    stop: Stop
    views: int = 1  # augmented views an image; batch["image"] is a tuple if above 1
    sampling: str = "natural"
    enter: Callable = keep  # (model, support, rngs), changes the model in place
    after_step: Callable = nothing  # (model, step), changes non-Param variables
    hand_over: str = "last"  # or "best": which state the next stage receives


class Method(NamedTuple):
    """A way to learn ranks from images."""

    init: Callable  # (encoder, rngs) -> nnx.Module holding everything learnt
    stages: tuple[Stage, ...]
    embed: Callable  # (model, images) -> [batch, dim]
    # (model, images, support) -> {"label", "value", "probabilities" or None}
    predict: Callable
    # (model, train support, val support) -> support, e.g. the k of a kNN
    fit: Callable = nothing
    margins: Callable = nothing  # (model) -> MarginView, or None without margins


def group_of(path: tuple[Any, ...]) -> str:
    """Parameter group of a path: "encoder.layer1.conv1.kernel" is in "layer1"."""
    return str(path[1] if path[0] == "encoder" else path[0])


def freeze(model: nnx.Module, trains: Collection[str]) -> None:
    """Puts the batch norms of groups outside `trains` into evaluation mode.

    An optimizer that leaves a group alone does not keep its running statistics from
    following the batches.
    """
    for path, module in nnx.iter_modules(model):
        if isinstance(module, nnx.BatchNorm) and group_of(path) not in trains:
            module.use_running_average = True
