"""Cross-entropy alone: the classifier that ordinal methods are measured against."""

import jax.numpy as jnp
import optax

from cloc_jax.methods import heads, single_stage, stop_rules
from cloc_jax.methods.interface import Method


def ce(
    *,
    num_ranks: int,
    head: heads.HeadOptions,
    limits: stop_rules.Limits,
) -> Method:
    """One stage: cross-entropy until validation stops improving, the best is kept."""

    def init(encoder, rngs):
        return heads.Network(
            encoder, heads.Head(encoder.features, num_ranks, head, rngs=rngs)
        )

    def loss(model, batch, rngs):
        return cross_entropy(model(batch["image"]).logits, batch)

    stage = single_stage.fit_stage(loss, limits)
    return Method(init, (stage,), heads.embed, heads.predict)


def cross_entropy(logits, batch):
    """Mean cross-entropy of a batch, with it and the accuracy as scalars to log."""
    value = optax.softmax_cross_entropy_with_integer_labels(logits, batch["label"])
    count = jnp.maximum(batch["mask"].sum(), 1)
    mean = jnp.sum(value, where=batch["mask"]) / count
    accuracy = single_stage.accuracy(logits.argmax(1), batch)
    return mean, {"cross_entropy": mean, "accuracy": accuracy}
