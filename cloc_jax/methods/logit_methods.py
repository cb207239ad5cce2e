"""Methods whose network gives some numbers per image, trained in one stage.

They differ in what the numbers mean and in the loss. Two have one per rank and a
softmax: cross-entropy (`ce`) and soft labels (`sord`). Four ask at every boundary
whether an image lies above it: separate binary tasks (`orcnn`), one score with a bias
per boundary (`coral`), conditional tasks (`corn`), and one score against ordered
thresholds (`clm`).
"""

from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import optax
from flax import nnx

from cloc_jax import losses
from cloc_jax.losses import masks
from cloc_jax.methods import heads, interface

THRESHOLDS = "thresholds"  # the parameter group


def fit_stage(
    loss: Callable, limits: interface.Limits, **options: Any
) -> interface.Stage:
    """The stage "fit": until validation stops improving, and the best is kept.

    `options` are further fields of the stage, or other values of these.
    """
    stage = interface.Stage(
        name="fit",
        loss=loss,
        trains=dict.fromkeys(interface.NETWORK, {}),
        stop=interface.by_validation(limits),
        hand_over="best",
    )
    return stage._replace(**options)


def logit_method(
    outputs: int,
    head: heads.HeadOptions,
    limits: interface.Limits,
    *,
    loss: Callable,
    above: Callable | None = None,
    thresholds: Callable[[], jax.Array] | None = None,
    threshold_rate: float | None = None,
    readout: Callable | None = None,
) -> interface.Method:
    """A method of one stage whose network has `outputs` logits per image.

    Args:
      loss: (logits, thresholds or None, labels, where) -> scalar.
      above: (logits, thresholds or None) -> P(rank > h), [batch, boundaries]; None for
        a softmax, with one logit per rank.
      thresholds: makes a learned vector that both take, in a group of its own.
      threshold_rate: learning rate of that group; None for that of the rest.
      readout: (thresholds) -> Readout.
    """
    if above is not None and head.classifier != "layers":
        raise ValueError(
            f"head.classifier is {head.classifier!r}, which has one output per rank; "
            "this method asks at boundaries: use layers."
        )

    def init(encoder, rngs):
        inner = heads.Head(encoder.features, outputs, head, rngs=rngs)
        network = heads.Network(encoder, inner)
        network.thresholds = nnx.Param(thresholds()) if thresholds else None
        return network

    def learned(model):
        return None if model.thresholds is None else model.thresholds[...]

    def train(model, batch, rngs):
        logits, own = model(batch["image"]).logits, learned(model)
        value = loss(logits, own, batch["label"], batch["mask"])
        ranks = ranks_above(above(logits, own)) if above else logits.argmax(1)
        return value, {"accuracy": heads.accuracy(ranks, batch)}

    def predict(model, images, support):
        logits = model(images).logits
        if above is None:
            return heads.softmax_prediction(logits)
        chances = above(logits, learned(model))
        return interface.Prediction(ranks_above(chances), above=chances)

    own_rate = {} if threshold_rate is None else {"learning_rate": threshold_rate}
    stage = fit_stage(
        train,
        limits,
        trains=dict.fromkeys(interface.NETWORK, {})
        | {THRESHOLDS: dict(interface.UNDECAYED) | own_rate},
    )
    method = interface.Method(init, (stage,), heads.embed, predict)
    if readout is None:
        return method
    return method._replace(
        readouts=lambda model: {"thresholds": readout(learned(model))}
    )


def ranks_above(above) -> jax.Array:
    """The rank that most boundaries agree on: how many lie below the image."""
    return jnp.sum(above > 0.5, axis=1).astype(jnp.int32)


def ce(
    *, num_ranks: int, head: heads.HeadOptions, limits: interface.Limits
) -> interface.Method:
    """Cross-entropy alone: the classifier that ordinal methods are measured against."""

    def loss(logits, _, label, mask):
        values = optax.softmax_cross_entropy_with_integer_labels(logits, label)
        return masks.mean(values, mask)

    return logit_method(num_ranks, head, limits, loss=loss)


def sord(
    *,
    num_ranks: int,
    head: heads.HeadOptions,
    limits: interface.Limits,
    alpha: float,
    distance: str,
) -> interface.Method:
    """Cross-entropy with soft labels that fall with the distance of ranks (Diaz and
    Marathe, "Soft Labels for Ordinal Regression", CVPR 2019)."""
    interface.check_range("method.sord", 0, alpha=alpha)
    interface.check_choice("method.sord.distance", distance, ("absolute", "squared"))

    def loss(logits, _, label, mask):
        return losses.sord(logits, label, alpha=alpha, distance=distance, where=mask)

    return logit_method(num_ranks, head, limits, loss=loss)


def orcnn(
    *, num_ranks: int, head: heads.HeadOptions, limits: interface.Limits
) -> interface.Method:
    """One binary classifier per boundary (Niu et al., "Ordinal Regression with Multiple
    Output CNN for Age Estimation", CVPR 2016).

    Its answers need not agree with one another: a rank is the number of yeses.
    """

    def pairs(logits):
        return logits.reshape(logits.shape[0], num_ranks - 1, 2)

    return logit_method(
        2 * (num_ranks - 1),
        head,
        limits,
        loss=lambda logits, _, label, mask: losses.ordinal_binary(
            pairs(logits), label, where=mask
        ),
        above=lambda logits, _: jax.nn.softmax(pairs(logits))[:, :, 1],
    )


def coral(
    *, num_ranks: int, head: heads.HeadOptions, limits: interface.Limits
) -> interface.Method:
    """One score, and a bias per boundary (Cao et al., "Rank Consistent Ordinal
    Regression for Neural Networks", Pattern Recognition Letters 2020)."""
    steps = jnp.arange(num_ranks - 1, 0, -1, dtype=jnp.float32) / (num_ranks - 1)
    return logit_method(
        1,
        head,
        limits,
        loss=lambda logits, biases, label, mask: losses.coral(
            logits + biases[None, :], label, where=mask
        ),
        above=lambda logits, biases: jax.nn.sigmoid(logits + biases[None, :]),
        thresholds=lambda: steps,
        readout=lambda biases: interface.Readout(-biases),
    )


def corn(
    *, num_ranks: int, head: heads.HeadOptions, limits: interface.Limits
) -> interface.Method:
    """Is it above this boundary, given that it is above the one before? (Shi et al.,
    "Deep Neural Networks for Rank-Consistent Ordinal Regression Based on Conditional
    Probabilities", 2021)."""
    return logit_method(
        num_ranks - 1,
        head,
        limits,
        loss=lambda logits, _, label, mask: losses.corn(logits, label, where=mask),
        above=lambda logits, _: losses.above_from_conditionals(logits),
    )


def clm(
    *,
    num_ranks: int,
    head: heads.HeadOptions,
    limits: interface.Limits,
    first: float,
    gap: float,
    threshold_learning_rate: float | None,
) -> interface.Method:
    """One score against ordered thresholds, which are learned (the cumulative link
    model: McCullagh, "Regression Models for Ordinal Data", 1980).

    The thresholds are a first one and gaps of softplus; both can be read out, the gaps
    as margins are: gap h lies between the boundaries below and above rank h.
    """
    interface.check_range("method.clm", 0.001, gap=gap)

    def start():
        gaps = jnp.full(num_ranks - 2, gap, jnp.float32)
        return jnp.concatenate([jnp.full(1, first), heads.inverse_softplus(gaps)])

    def ordered(raw):
        return jnp.cumsum(jnp.concatenate([raw[:1], jax.nn.softplus(raw[1:])]))

    return logit_method(
        1,
        head,
        limits,
        loss=lambda logits, raw, label, mask: losses.cumulative_link(
            logits[:, 0], ordered(raw), label, where=mask
        ),
        above=lambda logits, raw: jax.nn.sigmoid(logits - ordered(raw)[None, :]),
        thresholds=start,
        threshold_rate=threshold_learning_rate,
        readout=lambda raw: interface.Readout(ordered(raw)),
    )
