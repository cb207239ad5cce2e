"""Heads that ask at every boundary whether an image lies above it.

Four methods that differ in how they ask: separate binary tasks (`orcnn`), one score
with a bias per boundary (`coral`), conditional tasks (`corn`), and one score against
ordered thresholds (`clm`). All give P(rank > h).
"""

from collections.abc import Callable

import jax
import jax.numpy as jnp
from flax import nnx

from cloc_jax import losses
from cloc_jax.methods import heads, single_stage, stop_rules
from cloc_jax.methods.interface import (
    NETWORK,
    UNDECAYED,
    Method,
    Prediction,
    Readout,
)
from cloc_jax.methods.margins import inverse_softplus

THRESHOLDS = "thresholds"  # the parameter group


def ranks_above(above) -> jax.Array:
    """The rank that most boundaries agree on: how many lie below the image."""
    return jnp.sum(above > 0.5, axis=1).astype(jnp.int32)


def cumulative(
    name: str,
    outputs: int,
    head: heads.HeadOptions,
    limits: stop_rules.Limits,
    *,
    loss: Callable,
    above: Callable,
    thresholds: Callable[[], jax.Array] | None = None,
    threshold_rate: float | None = None,
    readouts: Callable | None = None,
) -> Method:
    """A method of one stage whose network has `outputs` numbers per image.

    Args:
      loss: (outputs, labels, thresholds or None, where) -> scalar.
      above: (outputs, thresholds or None) -> P(rank > h), [batch, boundaries].
      thresholds: makes a learned vector that both take, in a group of its own.
      threshold_rate: learning rate of that group; None for that of the rest.
      readouts: (thresholds) -> readouts.
    """
    if head.classifier != "layers":
        raise ValueError(
            f"{name} needs head.classifier=layers, but it is {head.classifier!r}."
        )

    def init(encoder, rngs):
        inner = heads.Head(encoder.features, outputs, head, rngs=rngs)
        network = heads.Network(encoder, inner)
        network.thresholds = nnx.Param(thresholds()) if thresholds else None
        return network

    def learned(model):
        return None if model.thresholds is None else model.thresholds[...]

    def train(model, batch, rngs):
        found, label, mask = model(batch["image"]).logits, batch["label"], batch["mask"]
        value = loss(found, label, learned(model), mask)
        predicted = ranks_above(above(found, learned(model)))
        return value, {"accuracy": single_stage.accuracy(predicted, batch)}

    def predict(model, images, support):
        chances = above(model(images).logits, learned(model))
        return Prediction(ranks_above(chances), above=chances)

    own_rate = {} if threshold_rate is None else {"learning_rate": threshold_rate}
    stage = single_stage.fit_stage(
        train,
        limits,
        trains=dict.fromkeys(NETWORK, {}) | {THRESHOLDS: dict(UNDECAYED) | own_rate},
    )
    method = Method(init, (stage,), heads.embed, predict)
    if readouts is None:
        return method
    return method._replace(readouts=lambda model: readouts(learned(model)))


def orcnn(
    *, num_ranks: int, head: heads.HeadOptions, limits: stop_rules.Limits
) -> Method:
    """One binary classifier per boundary (Niu et al., "Ordinal Regression with Multiple
    Output CNN for Age Estimation", CVPR 2016).

    Its answers need not agree with one another: a rank is the number of yeses.
    """

    def pairs(found):
        return found.reshape(found.shape[0], num_ranks - 1, 2)

    return cumulative(
        "orcnn",
        2 * (num_ranks - 1),
        head,
        limits,
        loss=lambda found, label, _, mask: losses.ordinal_binary(
            pairs(found), label, where=mask
        ),
        above=lambda found, _: jax.nn.softmax(pairs(found))[:, :, 1],
    )


def coral(
    *, num_ranks: int, head: heads.HeadOptions, limits: stop_rules.Limits
) -> Method:
    """One score, and a bias per boundary (Cao et al., "Rank Consistent Ordinal
    Regression for Neural Networks", Pattern Recognition Letters 2020)."""
    steps = jnp.arange(num_ranks - 1, 0, -1, dtype=jnp.float32) / (num_ranks - 1)
    return cumulative(
        "coral",
        1,
        head,
        limits,
        loss=lambda found, label, biases, mask: losses.coral(
            found + biases[None, :], label, where=mask
        ),
        above=lambda found, biases: jax.nn.sigmoid(found + biases[None, :]),
        thresholds=lambda: steps,
        readouts=lambda biases: {"thresholds": Readout(-biases)},
    )


def corn(
    *, num_ranks: int, head: heads.HeadOptions, limits: stop_rules.Limits
) -> Method:
    """Is it above this boundary, given that it is above the one before? (Shi et al.,
    "Deep Neural Networks for Rank-Consistent Ordinal Regression Based on Conditional
    Probabilities", 2021)."""
    return cumulative(
        "corn",
        num_ranks - 1,
        head,
        limits,
        loss=lambda found, label, _, mask: losses.corn(found, label, where=mask),
        above=lambda found, _: losses.above_from_conditionals(found),
    )


def clm(
    *,
    num_ranks: int,
    head: heads.HeadOptions,
    limits: stop_rules.Limits,
    first: float,
    gap: float,
    threshold_learning_rate: float | None,
) -> Method:
    """One score against ordered thresholds, which are learned (the cumulative link
    model: McCullagh, "Regression Models for Ordinal Data", 1980).

    The thresholds are a first one and gaps of softplus; both can be read out, the gaps
    as margins are: gap h lies between the boundaries below and above rank h.
    """
    if gap <= 0:
        raise ValueError(f"method.clm.gap is {gap}; it must be above 0.")

    def start():
        gaps = jnp.full(num_ranks - 2, gap, jnp.float32)
        return jnp.concatenate([jnp.full(1, first), inverse_softplus(gaps)])

    def ordered(raw):
        return jnp.cumsum(jnp.concatenate([raw[:1], jax.nn.softplus(raw[1:])]))

    return cumulative(
        "clm",
        1,
        head,
        limits,
        loss=lambda found, label, raw, mask: losses.cumulative_link(
            found[:, 0], ordered(raw), label, where=mask
        ),
        above=lambda found, raw: jax.nn.sigmoid(found - ordered(raw)[None, :]),
        thresholds=start,
        threshold_rate=threshold_learning_rate,
        readouts=lambda raw: {"thresholds": Readout(ordered(raw))},
    )
