"""SORD: cross-entropy with soft labels that fall with the distance of ranks.

Diaz and Marathe, "Soft Labels for Ordinal Regression", CVPR 2019.
"""

import jax.numpy as jnp

from cloc_jax import losses
from cloc_jax.methods import heads, stop_rules
from cloc_jax.methods.interface import NETWORK, Method, Stage


def sord(
    *,
    num_ranks: int,
    head: heads.HeadOptions,
    limits: stop_rules.Limits,
    alpha: float,
    distance: str,
) -> Method:
    """One stage; see `configs/base.py` for what each setting means."""
    if alpha < 0 or distance not in ("absolute", "squared"):
        raise ValueError(
            f"method.sord has alpha {alpha} and distance {distance!r}; use 0 or more, "
            "and absolute or squared."
        )

    def init(encoder, rngs):
        inner = heads.Head(encoder.features, num_ranks, head, rngs=rngs)
        return heads.Network(encoder, inner)

    def loss(model, batch, rngs):
        logits, label, mask = (
            model(batch["image"]).logits,
            batch["label"],
            batch["mask"],
        )
        value = losses.sord(logits, label, alpha=alpha, distance=distance, where=mask)
        right = jnp.sum(logits.argmax(1) == label, where=mask)
        return value, {"accuracy": right / jnp.maximum(mask.sum(), 1)}

    stage = Stage(
        name="fit",
        loss=loss,
        trains=dict.fromkeys(NETWORK, {}),
        stop=stop_rules.by_validation(limits),
        hand_over="best",
    )
    return Method(init, (stage,), heads.embed, heads.predict)
