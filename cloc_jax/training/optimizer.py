"""Optimizers: one transformation a parameter group, none for frozen groups."""

from collections.abc import Callable, Collection, Mapping
from typing import Any

import jax
import optax

FROZEN = "frozen"
OPTIMIZERS = ("adam", "sgd")


def build(
    trains: Mapping[str, Mapping[str, Any]],
    group_of: Callable[[tuple[Any, ...]], str],
    *,
    name: str,
    learning_rate: float,
    weight_decay: float,
) -> optax.GradientTransformation:
    """Optimizer of a stage: groups in `trains` move, all others stay to the bit.

    Args:
      trains: parameter group -> settings that differ from those given here.
      group_of: parameter group of a path of names.
      name: "adam" or "sgd".
      learning_rate: the step size.
      weight_decay: decoupled decay, 0 for none.
    """
    common: dict[str, Any] = {
        "name": name,
        "learning_rate": learning_rate,
        "weight_decay": weight_decay,
    }
    transforms = {g: _one(**(common | dict(s))) for g, s in trains.items()}

    return optax.multi_transform(
        transforms | {FROZEN: optax.set_to_zero()},
        lambda params: labels(params, trains, group_of),
    )


def labels(
    params: Any,
    trains: Collection[str],
    group_of: Callable[[tuple[Any, ...]], str],
) -> Any:
    """The group of every parameter, FROZEN for those that `trains` does not hold."""

    def label(path, _):
        # The last key is the NNX variable's own "value".
        group = group_of(tuple(getattr(k, "key", k) for k in path[:-1]))
        return group if group in trains else FROZEN

    return jax.tree_util.tree_map_with_path(label, params)


def trained(
    tree: Any,
    trains: Collection[str],
    group_of: Callable[[tuple[Any, ...]], str],
) -> list[Any]:
    """The leaves, shaped as the parameters, of the groups that `trains` holds."""
    marks = jax.tree.leaves(labels(tree, trains, group_of))
    pairs = zip(jax.tree.leaves(tree), marks, strict=True)
    return [leaf for leaf, mark in pairs if mark != FROZEN]


def _one(*, name: str, learning_rate: float, weight_decay: float):
    if name not in OPTIMIZERS:
        raise ValueError(
            f"optimizer.name is {name!r}; use one of {', '.join(OPTIMIZERS)}."
        )
    if learning_rate <= 0 or weight_decay < 0:
        raise ValueError(
            f"optimizer.learning_rate is {learning_rate} and optimizer.weight_decay "
            f"is {weight_decay}; they must be above 0 and at least 0."
        )
    rule = optax.scale_by_adam() if name == "adam" else optax.trace(decay=0.9)
    decay = [optax.add_decayed_weights(weight_decay)] if weight_decay else []
    return optax.chain(rule, *decay, optax.scale_by_learning_rate(learning_rate))
