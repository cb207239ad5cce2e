"""Methods that pretrain an encoder by contrasting views, then learn ranks on it.

They differ in the contrast (`simclr`, `supcon`, `rnc`); methods/dino.py pretrains in
its own way and shares the rest. Afterwards a linear probe on the frozen encoder, or
full training, learns the ranks; unlike in released codes validation picks the epoch.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax import losses
from cloc_jax.encoders import Encoder
from cloc_jax.losses import masks
from cloc_jax.methods import fitted_predictions, heads, interface

PROJECTION = "projection"  # the parameter group


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


def own_optimizer(
    settings: Mapping[str, Any], batch_size: int
) -> tuple[dict[str, Any], int]:
    """Optimizer settings of a stage and its epochs.

    The learning rate, given for batches of `rate_batch`, is scaled to `batch_size`.
    """
    optimizer = dict(settings)
    epochs, rate_batch = optimizer.pop("epochs"), optimizer.pop("rate_batch")
    if rate_batch:
        optimizer["learning_rate"] *= batch_size / rate_batch
    return optimizer, epochs


def two_stages(
    name: str,
    contrast: Callable,
    learn: Callable,
    task: interface.Task,
    *,
    downstream: str,
    pretrain: Mapping[str, Any],
    probe: Mapping[str, Any],
    **options: Any,
) -> tuple[interface.Stage, interface.Stage]:
    """Training of encoder and projection without a score, then of a linear head.

    The head stands on the frozen encoder ("probe"), or all are trained on ("full"). The
    probe has its own optimizer, `full` the run's. `options` are of the first stage.
    """
    interface.check_choice(f"method.{name}.downstream", downstream, ("probe", "full"))
    optimizer, epochs = own_optimizer(pretrain, task.batch_size)
    first = interface.Stage(
        name="pretrain",
        loss=contrast,
        trains=dict.fromkeys((*interface.ENCODER, PROJECTION), {}),
        stop=interface.after_epochs(epochs),
        # Labels must play no part in the make-up of a batch.
        sampler="shuffled",
        optimizer=optimizer,
        is_scored=False,
    )
    second = interface.Stage(
        name=downstream,
        loss=learn,
        trains=dict.fromkeys((*interface.ENCODER, interface.HEAD), {}),
        stop=interface.by_validation(task.limits),
        sampler="shuffled",
        hand_over="best",
    )
    if downstream == "probe":
        optimizer, epochs = own_optimizer(probe, task.batch_size)
        second = second._replace(
            trains={interface.HEAD: {}},
            stop=interface.by_validation(task.limits._replace(max_epochs=epochs)),
            optimizer=optimizer,
        )
    return first._replace(**options), second


def classify(model: Pretrained, batch, rngs):
    """Cross-entropy of the linear head."""
    return heads.cross_entropy(model(batch["image"]), batch)


def predict(model: Pretrained, images, support: None) -> interface.Prediction:
    """The most probable rank, with the probabilities of all."""
    return heads.softmax_prediction(model(images))


class Perceptron(nnx.Module):
    """Linear layers with activations between them, and batch norms where asked for.

    The first `norms` layers have one, all by default.
    """

    def __init__(
        self,
        widths: Sequence[int],
        *,
        has_norms: bool,
        norms: int | None = None,
        activation: Callable = jax.nn.relu,
        rngs: nnx.Rngs,
        **options: Any,  # of the linear layers
    ):
        pairs = list(zip(widths, widths[1:], strict=False))
        self.layers = nnx.List(
            [nnx.Linear(a, b, rngs=rngs, **options) for a, b in pairs]
        )
        # Made in any case, so that what is drawn after them does not depend on them.
        made = [nnx.BatchNorm(b, momentum=0.9, rngs=rngs) for _, b in pairs[:norms]]
        self.norms = nnx.List(made if has_norms else [])
        self.activation = activation

    def __call__(self, x: Float[Array, "batch _"]) -> Float[Array, "batch _"]:
        for n, layer in enumerate(self.layers):
            x = layer(x)
            if n < len(self.norms):
                x = self.norms[n](x)
            if n + 1 < len(self.layers):
                x = self.activation(x)
        return x


def contrastive_method(
    name: str,
    init: Callable,
    contrast: Callable,
    task: interface.Task,
    *,
    augment: str,
    learn: Callable = classify,
    **training: Any,
) -> interface.Method:
    """Pretraining by a contrast of two views of each image.

    `contrast` takes features [batch, view, dim], labels, where; `two_stages` the rest.
    """

    def loss(model, batch, rngs):
        # Together, so that batch statistics are of all views.
        joined = model.project(jnp.concatenate(batch["image"]))
        by_view = joined.reshape(len(batch["image"]), -1, joined.shape[1])
        features = jnp.swapaxes(by_view, 0, 1)
        return contrast(features, batch["label"], where=batch["mask"]), {}

    views = (interface.View(augment=augment),) * 2
    stages = two_stages(name, loss, learn, task, views=views, **training)
    return interface.Method(init, stages, heads.features, predict, takes_weights=True)


def simclr(
    task: interface.Task,
    *,
    temperature: float,
    width: int,
    hidden: int,
    **training: Any,
) -> interface.Method:
    """Two views of an image are to be alike, and views of other images not.

    Chen et al., "A Simple Framework for Contrastive Learning of Visual
    Representations", ICML 2020.

    The released code's loss is twice this one, which is the mean over anchors.
    """
    interface.check_range("method.simclr", 0.001, temperature=temperature)
    interface.check_range("method.simclr", 1, width=width)
    interface.check_range("method.simclr", 0, hidden=hidden)

    def init(encoder, rngs):
        inner = hidden or encoder.features
        widths = (encoder.features, inner, inner, width)
        projection = Perceptron(widths, has_norms=True, use_bias=False, rngs=rngs)
        return Pretrained(encoder, projection, task.num_ranks, rngs=rngs)

    def contrast(features, labels, where):
        return losses.nt_xent(features, temperature=temperature, where=where)

    return contrastive_method("simclr", init, contrast, task, **training)


def supcon(
    task: interface.Task,
    *,
    temperature: float,
    base_temperature: float,
    width: int,
    **training: Any,
) -> interface.Method:
    """All views of images of one rank are to be alike (Khosla et al., "Supervised
    Contrastive Learning", NeurIPS 2020)."""
    interface.check_range("method.supcon", 0.001, temperature=temperature)
    interface.check_range("method.supcon", 0.001, base_temperature=base_temperature)
    interface.check_range("method.supcon", 1, width=width)

    def init(encoder, rngs):
        widths = (encoder.features, encoder.features, width)
        projection = Perceptron(widths, has_norms=False, rngs=rngs)
        return Pretrained(encoder, projection, task.num_ranks, rngs=rngs)

    contrast = functools.partial(
        losses.supcon, temperature=temperature, base_temperature=base_temperature
    )
    return contrastive_method("supcon", init, contrast, task, **training)


def rnc(
    task: interface.Task, *, temperature: float, **training: Any
) -> interface.Method:
    """Of two images the one nearer in rank is to be nearer in embedding.

    Zha et al., "Rank-N-Contrast: Learning Continuous Representations for Regression",
    NeurIPS 2023.

    A linear layer then predicts the rank as a number, by its absolute error. The rank
    is that number rounded, and MAE is that of the number itself. Unlike in the released
    code the loss is stabilised by a masked maximum and needs no loop over columns.
    """
    interface.check_range("method.rnc", 0.001, temperature=temperature)
    num_ranks = task.num_ranks

    def init(encoder, rngs):
        return Pretrained(encoder, None, 1, rngs=rngs)

    def regress(model, batch, rngs):
        value = model(batch["image"])[:, 0]
        label, mask = batch["label"], batch["mask"]
        error = masks.mean(jnp.abs(value - label), mask, batch.get("weight"))
        nearest = jnp.clip(jnp.round(value), 0, num_ranks - 1)
        return error, {"accuracy": heads.accuracy(nearest, batch)}

    def predict(model, images, support):
        value = model(images)[:, 0]
        return fitted_predictions.predict_value(value, support["scale"], num_ranks)

    def fit(model, train, val):
        value = np.asarray(model.head(jnp.asarray(val.embeddings)))[:, 0]
        return fitted_predictions.fit_scale(value, val.labels, num_ranks)

    contrast = functools.partial(losses.rnc, temperature=temperature)
    method = contrastive_method("rnc", init, contrast, task, learn=regress, **training)
    return method._replace(predict=predict, fit=fit, fit_reads=("val",))
