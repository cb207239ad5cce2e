"""POE: every image a Gaussian, whose distances follow the order of the ranks.

Li et al., "Learning Probabilistic Ordinal Embeddings for Uncertainty-Aware Regression",
CVPR 2021. The loss is the cross-entropy of drawn samples, the divergence from a
standard Gaussian, and a hinge on the distances of triplets.

Differences from the released code: a triplet takes the next image of the batch, so the
batch is permuted first, as our batches put images of one rank side by side; the epoch
is chosen on validation data that shares no subject with training where subjects are
known; both heads start at random for every encoder.
"""

import jax
import jax.numpy as jnp
from flax import nnx

from cloc_jax import losses
from cloc_jax.losses.probabilistic import GAUSSIAN_DISTANCES
from cloc_jax.methods import heads, interface
from cloc_jax.methods.logit_methods import fit_stage


class Gaussian(nnx.Module):
    """Mean and log variance of an image's embedding, and a classifier of samples."""

    def __init__(
        self,
        features: int,
        width: int,
        num_ranks: int,
        dropout: float,
        *,
        rngs: nnx.Rngs,
    ):
        self.mean = nnx.Linear(features, width, rngs=rngs)
        self.spread = nnx.Linear(features, width, rngs=rngs)
        self.norm = nnx.BatchNorm(
            width,
            momentum=0.9,
            epsilon=1e-3,
            use_bias=False,
            use_scale=False,
            rngs=rngs,
        )
        self.classifier = nnx.Linear(width, num_ranks, rngs=rngs)
        self.dropout = nnx.Dropout(dropout)

    def embed(self, features, rngs: nnx.Rngs | None = None):
        """Mean and log variance, each [batch, width]."""
        features = self.dropout(features, rngs=rngs)
        return jax.nn.relu(self.mean(features)), self.norm(self.spread(features))


def poe(
    task: interface.Task,
    *,
    width: int,
    samples: int,
    dropout: float,
    divergence_weight: float,
    order_weight: float,
    margin: float,
    distance: str,
) -> interface.Method:
    """One stage; see `cloc_jax/config.py` for what each setting means."""
    interface.check_choice("method.poe.distance", distance, GAUSSIAN_DISTANCES)
    interface.check_range("method.poe", 1, samples=samples)
    interface.check_range("method.poe", 0, width=width)
    interface.check_range("method.poe", 0, 0.99, dropout=dropout)

    def init(encoder, rngs):
        inner = width or encoder.features
        head = Gaussian(encoder.features, inner, task.num_ranks, dropout, rngs=rngs)
        return heads.Network(encoder, head)

    def loss(model, batch, rngs):
        head, label, mask = model.head, batch["label"], batch["mask"]
        weights = batch.get("weight")
        mean, log_variance = head.embed(model.encoder(batch["image"]), rngs)
        noise = jax.random.normal(rngs.params(), (samples, *mean.shape), mean.dtype)
        drawn = mean[None] + jnp.exp(log_variance / 2)[None] * noise
        logits = head.classifier(head.dropout(drawn, rngs=rngs))
        order = jax.random.permutation(rngs.params(), len(label))
        terms = losses.poe_terms(
            logits[:, order],
            mean[order],
            log_variance[order],
            label[order],
            margin=margin,
            distance=distance,
            weights=None if weights is None else weights[order],
            where=mask[order],
        )
        value = terms.cross_entropy + divergence_weight * terms.kl
        value = value + order_weight * terms.ordinal
        accuracy = heads.accuracy(logits.mean(0).argmax(1), batch)
        return value, terms._asdict() | {"accuracy": accuracy}

    def embed(model, images):
        return model.head.embed(model.encoder(images))[0]

    def predict(model, images, support):
        probabilities = jax.nn.softmax(model.head.classifier(embed(model, images)))
        ranks = jnp.arange(task.num_ranks, dtype=probabilities.dtype)
        value = probabilities @ ranks
        label = jnp.round(value).astype(jnp.int32)
        return interface.Prediction(label, value=value, probabilities=probabilities)

    stage = fit_stage(loss, task.limits)
    return interface.Method(init, (stage,), embed, predict, takes_weights=True)
