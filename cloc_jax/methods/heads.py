"""Heads on an encoder: an optional projection, then a classifier and its loss."""

import math
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import Encoder
from cloc_jax.losses import masks, unit_vectors
from cloc_jax.methods.interface import HeadOptions, Prediction

# Images, or what the frozen parts of an encoder made of them.
Inputs = (
    UInt8[Array, "batch height width channels"]
    | Float[Array, "batch height width channels"]
    | Float[Array, "batch features"]
)
FIRST_SCALE = 10.0  # of cosines, as logits of a cosine classifier
CONTRASTS = ("embedding", "hidden", "logits")


class Outputs(NamedTuple):
    """The places of the network where a contrast can act."""

    embedding: Float[Array, "batch dim"]
    hidden: Float[Array, "batch hidden"]
    logits: Float[Array, "batch ranks"]


class Prototypes(nnx.Module):
    """A classifier by cosine: logits are scaled cosines to one vector per rank."""

    def __init__(self, features: int, num_ranks: int, *, rngs: nnx.Rngs):
        draw = nnx.initializers.normal(1.0)
        self.vectors = nnx.Param(draw(rngs.params(), (num_ranks, features)))
        self.log_scale = nnx.Param(jnp.full((), math.log(FIRST_SCALE), jnp.float32))

    def scale(self) -> Float[Array, ""]:
        """By how much a cosine is multiplied."""
        return jnp.exp(self.log_scale[...])

    def __call__(self, embedding: Float[Array, "batch dim"]):
        cosines = unit_vectors(embedding) @ unit_vectors(self.vectors[...]).T
        return self.scale() * cosines


class Unimodal(nnx.Module):
    """Logits whose softmax has one peak: rising up to a rank, falling after it.

    - binomial and poisson: the distribution of one output, by its sigmoid as the chance
      of each of K - 1 draws, or its softplus as the rate over a learned temperature
      (Beckham and Pal, "Unimodal Probability Distributions for Deep Ordinal
      Classification", ICML 2017).
    - copoc: -|r| with r the running sum of the first output and the absolute values
      of the others (Dey et al., "Conformal Prediction Sets for Ordinal
      Classification", NeurIPS 2023).
    """

    def __init__(self, shape: str, num_ranks: int):
        self.shape, self.num_ranks = shape, num_ranks
        self.outputs = num_ranks if shape == "copoc" else 1
        is_poisson = shape == "poisson"
        self.log_temperature = (
            nnx.Param(jnp.zeros((), jnp.float32)) if is_poisson else None
        )

    def __call__(self, outputs: Float[Array, "batch _"]) -> Float[Array, "batch ranks"]:
        rank = jnp.arange(self.num_ranks, dtype=outputs.dtype)[None]
        if self.shape == "copoc":
            steps = jnp.abs(outputs).at[:, 0].set(outputs[:, 0])
            return -jnp.abs(jnp.cumsum(steps, axis=1))
        if self.log_temperature is None:
            last = self.num_ranks - 1
            ways = -jax.lax.lgamma(rank + 1) - jax.lax.lgamma(last - rank + 1)
            up, down = jax.nn.log_sigmoid(outputs), jax.nn.log_sigmoid(-outputs)
            return ways + rank * up + (last - rank) * down
        # The logarithm of softplus(x) is x where that is next to nothing.
        rate = jnp.log(jax.nn.softplus(jnp.maximum(outputs, -30)))
        log_rate = jnp.where(outputs > -30, rate, outputs)
        logits = rank * log_rate - jax.lax.lgamma(rank + 1)
        return logits / jnp.exp(self.log_temperature[...])


class Head(nnx.Module):
    """An optional projection, then two layers or prototypes that classify.

    `num_ranks` is the number of logits, another one where methods ask at boundaries.
    """

    def __init__(
        self, features: int, num_ranks: int, options: HeadOptions, *, rngs: nnx.Rngs
    ):
        width = options.projection or features
        self.projection = (
            nnx.Linear(features, width, rngs=rngs) if options.projection else None
        )
        is_cosine = options.classifier == "cosine"
        self.prototypes = Prototypes(width, num_ranks, rngs=rngs) if is_cosine else None
        if not is_cosine:
            is_free = options.shape == "free"
            self.unimodal = None if is_free else Unimodal(options.shape, num_ranks)
            outputs = self.unimodal.outputs if self.unimodal else num_ranks
            self.linear1 = nnx.Linear(width, options.hidden, rngs=rngs)
            self.linear2 = nnx.Linear(options.hidden, outputs, rngs=rngs)
        self.projection_relu = options.projection_relu

    def __call__(self, features: Float[Array, "batch features"]) -> Outputs:
        embedding = self.projection(features) if self.projection else features
        if self.projection and self.projection_relu:
            embedding = jax.nn.relu(embedding)
        if self.prototypes:
            return Outputs(embedding, embedding, self.prototypes(embedding))
        hidden = jax.nn.relu(self.linear1(embedding))
        logits = self.linear2(hidden)
        if self.unimodal:
            logits = self.unimodal(logits)
        return Outputs(embedding, hidden, logits)


class Network(nnx.Module):
    """Encoder and head, which need not be a `Head`."""

    def __init__(self, encoder: Encoder, head: nnx.Module):
        self.encoder = encoder
        self.head: Any = head

    def __call__(self, images: Inputs) -> Any:
        return self.head(self.encoder(images))


def features(model: Any, images: Inputs):
    """What the encoder gives, where the head makes no embedding of its own."""
    return model.encoder(images)


def embed(model: Network, images: Inputs):
    """The embedding the contrast is defined on."""
    return model(images).embedding


def predict(model: Network, images: Inputs, support: None) -> Prediction:
    """The most probable rank, with the probabilities of all."""
    return softmax_prediction(model(images).logits)


def softmax_prediction(logits: Float[Array, "batch ranks"]) -> Prediction:
    """The most probable rank, with the probabilities of all."""
    probabilities = jax.nn.softmax(logits)
    return Prediction(probabilities.argmax(1), probabilities=probabilities)


def inverse_softplus(value: Float[Array, "..."]) -> Float[Array, "..."]:
    """theta with softplus(theta) = value, exact for small and large values alike."""
    return value + jnp.log(-jnp.expm1(-value))


def rows(batch) -> dict[str, Any]:
    """What losses take of a batch: which rows count, and their weights if given."""
    return {"where": batch["mask"], "weights": batch.get("weight")}


def mean_cross_entropy(logits, labels, *, weights=None, where=None):
    """Mean cross-entropy of a softmax."""
    values = optax.softmax_cross_entropy_with_integer_labels(logits, labels)
    return masks.mean(values, where, weights)


def cross_entropy(logits, batch):
    """Mean cross-entropy of a batch, with it and the accuracy as scalars to log."""
    mean = mean_cross_entropy(logits, batch["label"], **rows(batch))
    return mean, {"cross_entropy": mean, "accuracy": accuracy(logits.argmax(1), batch)}


def accuracy(predicted, batch) -> jax.Array:
    """The share of a batch's images whose predicted rank [image] is the label."""
    right = jnp.sum(predicted == batch["label"], where=batch["mask"])
    return right / jnp.maximum(batch["mask"].sum(), 1)
