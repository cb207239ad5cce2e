"""The network of classifiers: encoder, optional projection, two linear layers."""

from typing import NamedTuple

import jax
from flax import nnx
from jaxtyping import Array, Float, Int, UInt8

from cloc_jax.encoders import Encoder
from cloc_jax.margins import Margins

# Images, or what the frozen parts of an encoder made of them.
Inputs = (
    UInt8[Array, "batch height width channels"]
    | Float[Array, "batch height width channels"]
    | Float[Array, "batch features"]
)
ACTIVATIONS = {"relu": jax.nn.relu, "gelu": jax.nn.gelu, "tanh": jax.nn.tanh}
CONTRASTS = ("embedding", "hidden", "logits")


class Outputs(NamedTuple):
    """The places of the network where a contrast can act."""

    embedding: Float[Array, "batch dim"]
    hidden: Float[Array, "batch hidden"]
    logits: Float[Array, "batch ranks"]


class Head(nnx.Module):
    """An optional linear, signed projection, then the classifier's two layers."""

    def __init__(
        self,
        features: int,
        num_ranks: int,
        *,
        projection: int,
        hidden: int,
        activation: str,
        rngs: nnx.Rngs,
    ):
        self.projection = (
            nnx.Linear(features, projection, rngs=rngs) if (projection) else None
        )
        self.linear1 = nnx.Linear(projection or features, hidden, rngs=rngs)
        self.linear2 = nnx.Linear(hidden, num_ranks, rngs=rngs)
        self.activation = activation

    def __call__(self, features: Float[Array, "batch features"]) -> Outputs:
        embedding = self.projection(features) if self.projection else features
        hidden = ACTIVATIONS[self.activation](self.linear1(embedding))
        return Outputs(embedding, hidden, self.linear2(hidden))


class Network(nnx.Module):
    """Encoder and head, with margins where the method has them."""

    def __init__(self, encoder: Encoder, head: Head, margins: Margins | None = None):
        self.encoder = encoder
        self.head = head
        self.margins = margins

    def __call__(self, images: Inputs) -> Outputs:
        return self.head(self.encoder(images))


def check_head(*, projection: int, hidden: int, activation: str) -> None:
    """ValueError where the head's settings make no sense."""
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"method.activation is {activation!r}; use one of {', '.join(ACTIVATIONS)}."
        )
    if projection < 0 or hidden < 1:
        raise ValueError(
            f"method.projection is {projection} and method.hidden is {hidden}; they "
            "are widths: 0 or more (0: no projection) and 1 or more."
        )


def embed(model: Network, images: Inputs):
    """The embedding the contrast is defined on."""
    return model(images).embedding


def predict(
    model: Network, images: Inputs, support
) -> dict[str, Float[Array, "..."] | Int[Array, "..."]]:
    """Label by the largest probability, value by the expected rank."""
    probabilities = jax.nn.softmax(model(images).logits)
    ranks = jax.numpy.arange(probabilities.shape[1], dtype=probabilities.dtype)
    return {
        "label": probabilities.argmax(1),
        "value": probabilities @ ranks,
        "probabilities": probabilities,
    }
