"""What methods share that train the whole network in one stage."""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp

from cloc_jax.methods import stop_rules
from cloc_jax.methods.interface import NETWORK, Stage


def fit_stage(loss: Callable, limits: stop_rules.Limits, **options: Any) -> Stage:
    """The stage "fit": until validation stops improving, and the best is kept.

    `options` are further fields of the stage, or other values of these.
    """
    stage = Stage(
        name="fit",
        loss=loss,
        trains=dict.fromkeys(NETWORK, {}),
        stop=stop_rules.by_validation(limits),
        hand_over="best",
    )
    return stage._replace(**options)


def accuracy(predicted, batch) -> jax.Array:
    """The share of a batch's images whose predicted rank [image] is the label."""
    right = jnp.sum(predicted == batch["label"], where=batch["mask"])
    return right / jnp.maximum(batch["mask"].sum(), 1)
