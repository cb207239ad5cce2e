"""What methods share that pretrain an encoder and then learn ranks on it."""

from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import Encoder
from cloc_jax.methods import stop_rules
from cloc_jax.methods.ce import cross_entropy
from cloc_jax.methods.interface import (
    ENCODER,
    HEAD,
    Prediction,
    Stage,
    View,
)

PROJECTION = "projection"  # the parameter group
DOWNSTREAM = ("probe", "full")


class Pretrained(nnx.Module):
    """Encoder, the projection that pretraining acts on, and a linear head."""

    def __init__(
        self,
        encoder: Encoder,
        projection: nnx.Module | None,
        outputs: int,
        *,
        rngs: nnx.Rngs,
    ):
        self.encoder = encoder
        self.projection = projection
        self.head = nnx.Linear(encoder.features, outputs, rngs=rngs)

    def project(self, images) -> Float[Array, "batch dim"]:
        """What pretraining contrasts."""
        features = self.encoder(images)
        return self.projection(features) if self.projection else features

    def __call__(self, images) -> Float[Array, "batch outputs"]:
        return self.head(self.encoder(images))


def embed(model: Pretrained, images):
    """The encoder's features."""
    return model.encoder(images)


def contrasted(model: Pretrained, views) -> Float[Array, "batch views dim"]:
    """Projections of several views, whose batch statistics are of all together."""
    joined = model.project(jnp.concatenate(views))
    by_view = joined.reshape(len(views), -1, joined.shape[1])
    return jnp.swapaxes(by_view, 0, 1)


def own_optimizer(
    settings: Mapping[str, Any], batch_size: int
) -> tuple[dict[str, Any], int]:
    """Optimizer settings of a stage and its epochs.

    The learning rate, which is given for batches of `rate_batch`, is scaled linearly to
    `batch_size`.
    """
    optimizer = dict(settings)
    epochs, rate_batch = optimizer.pop("epochs"), optimizer.pop("rate_batch")
    if rate_batch < 0:
        raise ValueError(
            f"rate_batch is {rate_batch}; give the batch size that the learning rate "
            "of the stage is for, or 0 for any."
        )
    if rate_batch:
        optimizer["learning_rate"] *= batch_size / rate_batch
    return optimizer, epochs


def pretrain_stage(
    loss: Callable,
    settings: Mapping[str, Any],
    batch_size: int,
    *,
    augment: str,
    views: int = 2,
) -> Stage:
    """Training of encoder and projection, without a score.

    Args:
      loss: of model, batch and rngs.
      settings: `config.method.<name>.pretrain`.
      batch_size: images in a batch, with which the learning rate is scaled.
      augment: recipe of the views.
    """
    optimizer, epochs = own_optimizer(settings, batch_size)
    return Stage(
        name="pretrain",
        loss=loss,
        trains=dict.fromkeys((*ENCODER, PROJECTION), {}),
        stop=stop_rules.by_loss(max_epochs=epochs, patience=epochs),
        views=(View(augment=augment),) * views,
        # Labels must play no part in the make-up of a batch.
        sampler="shuffled",
        optimizer=optimizer,
        is_scored=False,
    )


def downstream_stage(
    name: str,
    downstream: str,
    loss: Callable,
    settings: Mapping[str, Any],
    batch_size: int,
    limits: stop_rules.Limits,
) -> Stage:
    """A linear head on the frozen encoder ("probe"), or all trained on ("full").

    The probe has its own optimizer, `full` the run's.
    """
    if downstream not in DOWNSTREAM:
        raise ValueError(
            f"method.{name}.downstream is {downstream!r}; use one of "
            f"{', '.join(DOWNSTREAM)}."
        )
    optimizer, epochs = own_optimizer(settings, batch_size)
    is_probe = downstream == "probe"
    own = limits._replace(max_epochs=epochs) if is_probe else limits
    return Stage(
        name=downstream,
        loss=loss,
        trains=dict.fromkeys((HEAD,) if is_probe else (*ENCODER, HEAD), {}),
        stop=stop_rules.by_validation(own),
        optimizer=optimizer if is_probe else {},
        sampler="shuffled",
        hand_over="best",
    )


def classify(model: Pretrained, batch, rngs):
    """Cross-entropy of the linear head."""
    return cross_entropy(model(batch["image"]), batch)


def predict(model: Pretrained, images, support: None) -> Prediction:
    """The most probable rank, with the probabilities of all."""
    probabilities = jax.nn.softmax(model(images))
    return Prediction(probabilities.argmax(1), probabilities=probabilities)


class Perceptron(nnx.Module):
    """Linear layers with ReLUs between them, and batch norms where asked for."""

    def __init__(self, widths, *, has_norms: bool, rngs: nnx.Rngs):
        pairs = list(zip(widths, widths[1:], strict=False))
        self.layers = nnx.List(
            [nnx.Linear(a, b, use_bias=not has_norms, rngs=rngs) for a, b in pairs]
        )
        norms = [nnx.BatchNorm(b, momentum=0.9, rngs=rngs) for _, b in pairs]
        self.norms = nnx.List(norms) if has_norms else None

    def __call__(self, x: Float[Array, "batch _"]) -> Float[Array, "batch _"]:
        for n, layer in enumerate(self.layers):
            x = layer(x)
            if self.norms is not None:
                x = self.norms[n](x)
            if n + 1 < len(self.layers):
                x = jax.nn.relu(x)
        return x
