"""Methods whose network gives some numbers per image, trained in one stage.

They differ in what the numbers mean and in the loss. Most have one per rank and a
softmax; `of_softmax` makes these from a loss alone. Four ask at every boundary
whether an image lies above it: separate binary tasks (`orcnn`), one score with a bias
each (`coral`), conditional tasks (`corn`), and a score against thresholds (`clm`).
"""

import math
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from cloc_jax import losses
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
    task: interface.Task,
    *,
    loss: Callable,
    above: Callable | None = None,
    thresholds: Callable[[], jax.Array] | None = None,
    threshold_rate: float | None = None,
    readout: Callable | None = None,
) -> interface.Method:
    """A method of one stage whose network has `outputs` logits per image.

    Args:
      loss: (logits, thresholds or None, labels, weights, where) -> scalar, the last two
        by name.
      above: (logits, thresholds or None) -> P(rank > h), [batch, boundaries]; None for
        a softmax, with one logit per rank.
      thresholds: makes a learned vector that both take, in a group of its own.
      threshold_rate: learning rate of that group; None for that of the rest.
      readout: (thresholds) -> Readout.
    """
    for name, plain in (("classifier", "layers"), ("shape", "free")):
        given = getattr(task.head, name)
        if above is not None and given != plain:
            raise ValueError(
                f"head.{name} is {given!r}, which gives one number per "
                f"rank; this method asks at boundaries: use {plain}."
            )

    def init(encoder, rngs):
        inner = heads.Head(encoder.features, outputs, task.head, rngs=rngs)
        network = heads.Network(encoder, inner)
        network.thresholds = nnx.Param(thresholds()) if thresholds else None
        return network

    def learned(model):
        return None if model.thresholds is None else model.thresholds[...]

    def train(model, batch, rngs):
        logits, own = model(batch["image"]).logits, learned(model)
        value = loss(logits, own, batch["label"], **heads.rows(batch))
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
        task.limits,
        trains=dict.fromkeys(interface.NETWORK, {})
        | {THRESHOLDS: dict(interface.UNDECAYED) | own_rate},
    )
    method = interface.Method(init, (stage,), heads.embed, predict, takes_weights=True)
    if readout is None:
        return method
    return method._replace(
        readouts=lambda model: {"thresholds": readout(learned(model))}
    )


def ranks_above(above) -> jax.Array:
    """The rank that most boundaries agree on: how many lie below the image."""
    return jnp.sum(above > 0.5, axis=1).astype(jnp.int32)


def of_softmax(**allowed: Any) -> Callable[[Callable], Callable[..., interface.Method]]:
    """Makes a loss of a softmax over the ranks the method of its name.

    The loss takes (logits, labels), and by name weights, where and the settings.
    `allowed` has the least and the largest number of a setting, or its choices.
    """

    def method_of(loss):
        def make(task: interface.Task, **settings: Any) -> interface.Method:
            for name, values in allowed.items():
                section, given = f"method.{loss.__name__}", settings[name]
                if isinstance(given, str):
                    interface.check_choice(f"{section}.{name}", given, values)
                else:
                    interface.check_range(section, *values, **{name: given})

            def of_logits(logits, _, label, **rows):
                return loss(logits, label, **settings, **rows)

            return logit_method(task.num_ranks, task, loss=of_logits)

        return make

    return method_of


# Cross-entropy alone: the classifier that ordinal methods are measured against. Of the
# others, cloc_jax/losses/ordinal_softmax.py names the sources.
ce = of_softmax()(heads.mean_cross_entropy)
cdw_ce = of_softmax(alpha=(0, 20), margin=(0, 1))(losses.cdw_ce)
squared_emd = of_softmax()(losses.squared_emd)
slace = of_softmax(alpha=(0, math.inf))(losses.slace)
weighted_kappa = of_softmax(penalty=losses.KAPPA_PENALTIES)(losses.weighted_kappa)
orcu = of_softmax(strength=(0.1, math.inf))(losses.orcu)


@of_softmax(alpha=(0, math.inf), distance=("absolute", "squared"))
def sord(logits, labels, *, alpha, distance, **rows):
    """Cross-entropy with soft labels that fall with the distance of ranks (Diaz and
    Marathe, "Soft Labels for Ordinal Regression", CVPR 2019)."""
    options = {"alpha": alpha, "power": 2.0 if distance == "squared" else 1.0}
    soft = losses.soft_labels(logits.shape[1], "exponential", **options)
    return losses.soft_cross_entropy(logits, labels, soft, **rows)


@of_softmax(
    kind=("binomial", "poisson", "triangular", "beta", "geometric"),
    alpha=(0.0001, 0.2),
)
def soft_labels(logits, labels, *, kind, alpha, **rows):
    """Cross-entropy with labels spread as a unimodal distribution (Vargas et al.,
    "Unimodal Regularisation Based on Beta Distribution for Deep Ordinal Regression",
    Pattern Recognition 2022, and others)."""
    options = {"alpha": alpha} if kind in ("triangular", "geometric") else {}
    soft = losses.soft_labels(logits.shape[1], kind, **options)
    return losses.soft_cross_entropy(logits, labels, soft, **rows)


def _boundary_weights(task: interface.Task) -> np.ndarray | None:
    """The weight of each boundary's term; None where none is given."""
    if not task.boundary_weights:
        return None
    interface.check_weights("boundary", task.boundary_weights, task.num_ranks - 1)
    return np.asarray(task.boundary_weights, np.float32)


def orcnn(task: interface.Task) -> interface.Method:
    """One binary classifier per boundary (Niu et al., "Ordinal Regression with Multiple
    Output CNN for Age Estimation", CVPR 2016).

    Its answers need not agree with one another: a rank is the number of yeses.
    """

    weights, boundaries = _boundary_weights(task), task.num_ranks - 1

    def pairs(logits):
        return logits.reshape(logits.shape[0], boundaries, 2)

    return logit_method(
        2 * boundaries,
        task,
        loss=lambda logits, _, label, **rows: losses.ordinal_binary(
            pairs(logits), label, boundary_weights=weights, **rows
        ),
        above=lambda logits, _: jax.nn.softmax(pairs(logits))[:, :, 1],
    )


def coral(task: interface.Task) -> interface.Method:
    """One score, and a bias per boundary (Cao et al., "Rank Consistent Ordinal
    Regression for Neural Networks", Pattern Recognition Letters 2020)."""
    weights, boundaries = _boundary_weights(task), task.num_ranks - 1
    steps = jnp.arange(boundaries, 0, -1, dtype=jnp.float32) / boundaries
    return logit_method(
        1,
        task,
        loss=lambda logits, biases, label, **rows: losses.coral(
            logits + biases[None, :], label, boundary_weights=weights, **rows
        ),
        above=lambda logits, biases: jax.nn.sigmoid(logits + biases[None, :]),
        thresholds=lambda: steps,
        readout=lambda biases: interface.Readout(-biases),
    )


def corn(task: interface.Task) -> interface.Method:
    """Is it above this boundary, given that it is above the one before? (Shi et al.,
    "Deep Neural Networks for Rank-Consistent Ordinal Regression Based on Conditional
    Probabilities", 2021)."""
    weights, boundaries = _boundary_weights(task), task.num_ranks - 1
    return logit_method(
        boundaries,
        task,
        loss=lambda logits, _, label, **rows: losses.corn(
            logits, label, boundary_weights=weights, **rows
        ),
        above=lambda logits, _: losses.above_from_conditionals(logits),
    )


def clm(
    task: interface.Task,
    *,
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
        gaps = jnp.full(task.num_ranks - 2, gap, jnp.float32)
        return jnp.concatenate([jnp.full(1, first), heads.inverse_softplus(gaps)])

    def ordered(raw):
        return jnp.cumsum(jnp.concatenate([raw[:1], jax.nn.softplus(raw[1:])]))

    return logit_method(
        1,
        task,
        loss=lambda logits, raw, label, **rows: losses.cumulative_link(
            logits[:, 0], ordered(raw), label, **rows
        ),
        above=lambda logits, raw: jax.nn.sigmoid(logits - ordered(raw)[None, :]),
        thresholds=start,
        threshold_rate=threshold_learning_rate,
        readout=lambda raw: interface.Readout(ordered(raw)),
    )
