"""Optimizers: one transformation per parameter group, none for frozen groups."""

import functools
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import optax

from cloc_jax.config import check_choice, check_range
from cloc_jax.methods import Stage, group_of

FROZEN = "frozen"
OPTIMIZERS = ("adam", "adamw", "sgd", "lars")
SCHEDULES = ("constant", "cosine", "steps")


def build(
    trains: Mapping[str, Mapping[str, Any]],
    *,
    steps_per_epoch: int,
    epochs: int,
    clip_norm: float = 0.0,
    clip_per_tensor: bool = False,
    **settings: Any,
) -> optax.GradientTransformation:
    """Optimizer of a stage: groups in `trains` move, all others stay to the bit.

    `trains` has settings by parameter group that differ from those given here, which
    are of `_one`. `clip_norm` is the largest norm of the gradient of all that is
    trained, or of each array with `clip_per_tensor`; 0 for any. `epochs` is at most.
    """
    total = steps_per_epoch * epochs
    transforms = {
        group: _one(steps_per_epoch=steps_per_epoch, num_steps=total, **merged)
        for group, own in trains.items()
        for merged in [settings | dict(own)]
    }

    group_labels = functools.partial(labels, trains=trains)
    grouped = optax.multi_transform(
        transforms | {FROZEN: optax.set_to_zero()}, group_labels
    )
    check_range("optimizer", 0, clip_norm=clip_norm)
    if not clip_norm:
        return grouped
    # Frozen groups must not count towards the norm.
    only_trained = optax.multi_transform(
        dict.fromkeys(trains, optax.identity()) | {FROZEN: optax.set_to_zero()},
        group_labels,
    )
    clip = clip_tensors if clip_per_tensor else optax.clip_by_global_norm
    return optax.chain(only_trained, clip(clip_norm), grouped)


def of_stage(
    stage: Stage, settings: Mapping[str, Any], steps_per_epoch: int
) -> optax.GradientTransformation:
    """The optimizer of a stage, with settings as `config.optimizer` has them."""
    return build(
        stage.trains,
        steps_per_epoch=steps_per_epoch,
        epochs=stage.stop.max_epochs,
        **(dict(settings) | dict(stage.optimizer)),
    )


def is_scheduled(settings: Mapping[str, Any]) -> bool:
    """Whether steps of a group differ by their place in the stage."""
    return (
        settings.get("schedule", "constant") != "constant"
        or bool(settings.get("warmup_epochs"))
        or settings.get("final_weight_decay") is not None
    )


def clip_tensors(max_norm: float) -> optax.GradientTransformation:
    """Scales every array down to `max_norm` by itself."""

    def clip(update: jax.Array) -> jax.Array:
        norm = jnp.linalg.norm(update.ravel())
        return update * jnp.minimum(1.0, max_norm / jnp.maximum(norm, 1e-12))

    return optax.stateless(lambda updates, _: jax.tree.map(clip, updates))


def labels(params: Any, trains: Collection[str]) -> Any:
    """The group of every parameter, FROZEN for those that `trains` does not hold."""

    def label(path, _):
        # The last key is the NNX variable's own "value".
        group = group_of(tuple(getattr(k, "key", k) for k in path[:-1]))
        return group if group in trains else FROZEN

    return jax.tree_util.tree_map_with_path(label, params)


def trained(tree: Any, trains: Collection[str]) -> list[Any]:
    """The leaves, shaped as the parameters, of the groups that `trains` holds."""
    marks = jax.tree.leaves(labels(tree, trains))
    pairs = zip(jax.tree.leaves(tree), marks, strict=True)
    return [leaf for leaf, mark in pairs if mark != FROZEN]


def _one(
    *,
    name: str,
    learning_rate: float,
    weight_decay: float,
    steps_per_epoch: int,
    num_steps: int,
    momentum: float = 0.9,
    final_weight_decay: float | None = None,
    decay_vectors: bool = True,
    **schedule: Any,
) -> optax.GradientTransformation:
    """One group's optimizer; `cloc_jax/config.py` says what each setting means."""
    check_choice("optimizer.name", name, OPTIMIZERS)
    check_range("optimizer", 0, weight_decay=weight_decay)
    check_range("optimizer", 0, 0.9999, momentum=momentum)
    check_range("optimizer", 1e-12, learning_rate=learning_rate)
    rate = _rate(learning_rate, steps_per_epoch, num_steps, **schedule)
    decay: optax.ScalarOrSchedule = weight_decay
    if final_weight_decay is not None:
        # optax's cosine ends at a fraction of its start; this one may rise.
        decay = functools.partial(_cosine, weight_decay, final_weight_decay, num_steps)
    if name == "lars":
        return optax.lars(
            rate,
            weight_decay=decay,
            weight_decay_mask=_matrices,
            trust_ratio_mask=_matrices,
            momentum=momentum,
        )
    mask = None if decay_vectors else _matrices
    is_decayed = bool(weight_decay or final_weight_decay)
    decays = [optax.add_decayed_weights(decay, mask)] if is_decayed else []
    step = optax.scale_by_learning_rate(rate)
    if name == "sgd":  # decay is part of the gradient, as in PyTorch
        return optax.chain(*decays, optax.trace(decay=momentum), step)
    return optax.chain(optax.scale_by_adam(), *decays, step)  # decoupled


def _rate(
    rate: float,
    steps_per_epoch: int,
    num_steps: int,
    *,
    schedule: str = "constant",
    warmup_epochs: float = 0.0,
    final_rate: float = 0.0,
    drops: Sequence[float] = (),
    drop_factor: float = 0.1,
) -> optax.ScalarOrSchedule:
    """Step size by step: a linear warm-up, then constant, cosine or in steps.

    All of it, the warm-up included, is within `num_steps`.
    """
    check_choice("optimizer.schedule", schedule, SCHEDULES)
    check_range("optimizer", 0, warmup_epochs=warmup_epochs)
    warmup_steps = min(round(warmup_epochs * steps_per_epoch), num_steps)
    after: optax.ScalarOrSchedule = rate
    left = max(num_steps - warmup_steps, 1)
    if schedule == "cosine":
        after = optax.cosine_decay_schedule(rate, left, final_rate)
    elif schedule == "steps":
        places = {int(d * num_steps) - warmup_steps: drop_factor for d in drops}
        after = optax.piecewise_constant_schedule(rate, places)
    if not warmup_steps:
        return after
    rest = after if callable(after) else optax.constant_schedule(after)
    return optax.join_schedules(
        [optax.linear_schedule(0.0, rate, warmup_steps), rest], [warmup_steps]
    )


def _cosine(first: float, last: float, num_steps: int, step: Any) -> Any:
    """From `first` to `last` along half a cosine."""
    share = jnp.minimum(step / num_steps, 1.0)
    return (first + last) / 2 - (last - first) / 2 * jnp.cos(jnp.pi * share)


def _matrices(params: Any) -> Any:
    """Which parameters are matrices or kernels: neither biases nor norms."""
    return jax.tree.map(lambda p: jnp.ndim(p) > 1, params)
