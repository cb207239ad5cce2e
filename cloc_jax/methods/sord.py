"""SORD: cross-entropy with soft labels that fall with the distance of ranks.

Diaz and Marathe, "Soft Labels for Ordinal Regression", CVPR 2019.
"""

from cloc_jax import losses
from cloc_jax.methods import heads, single_stage, stop_rules
from cloc_jax.methods.interface import Method


def sord(
    *,
    num_ranks: int,
    head: heads.HeadOptions,
    limits: stop_rules.Limits,
    alpha: float,
    distance: str,
) -> Method:
    """One stage; see `cloc_jax/config.py` for what each setting means."""
    if alpha < 0 or distance not in ("absolute", "squared"):
        raise ValueError(
            f"method.sord has alpha {alpha} and distance {distance!r}; use 0 or more, "
            "and absolute or squared."
        )

    def init(encoder, rngs):
        inner = heads.Head(encoder.features, num_ranks, head, rngs=rngs)
        return heads.Network(encoder, inner)

    def loss(model, batch, rngs):
        logits = model(batch["image"]).logits
        value = losses.sord(
            logits,
            batch["label"],
            alpha=alpha,
            distance=distance,
            where=batch["mask"],
        )
        return value, {"accuracy": single_stage.accuracy(logits.argmax(1), batch)}

    stage = single_stage.fit_stage(loss, limits)
    return Method(init, (stage,), heads.embed, heads.predict)
