"""GOL: embeddings ordered along reference points, ranks by nearest neighbours.

Lee et al., "Geometric Order Learning for Rank Estimation", NeurIPS 2022. Unit
embeddings lie around learned reference points; the loss orders pairs of images along
them, keeps ranks apart by a margin and draws each image to its point.

Differences from the released code: the number of neighbours and the epoch are chosen on
validation data, not on test data; pairs are drawn from any batch, even one without two
of a rank; embeddings are signed by a projection, the authors' without a last ReLU.
"""

import math
from collections.abc import Sequence

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax import losses
from cloc_jax.encoders import Encoder
from cloc_jax.methods import fitted_predictions, interface
from cloc_jax.methods.logit_methods import fit_stage

REFERENCES = "references"  # the parameter group
# Numbers of ranks whose reference points start on a half circle, as the authors do.
HALF_CIRCLE = (2, 3, 5)


class Embedder(nnx.Module):
    """Encoder and projection to the sphere, with reference points on it."""

    def __init__(self, encoder: Encoder, width: int, points: int, *, rngs: nnx.Rngs):
        self.encoder = encoder
        self.head = nnx.Linear(encoder.features, width, rngs=rngs)
        draw = nnx.initializers.normal(1.0)
        self.references = nnx.Param(draw(rngs.params(), (points, width), jnp.float32))

    def __call__(self, images) -> Float[Array, "batch dim"]:
        return losses.unit_vectors(self.head(self.encoder(images)))


def gol(
    task: interface.Task,
    *,
    width: int,
    margin: float,
    tau: int,
    pairs: int,
    neighbours: Sequence[int],
) -> interface.Method:
    """One stage; see `cloc_jax/config.py` for what each setting means."""
    interface.check_range("method.gol", 2, width=width)
    interface.check_range("method.gol", 0, pairs=pairs, margin=margin, tau=tau)
    interface.check_range("method.gol", 1, neighbours=min(neighbours, default=0))
    num_ranks, count = task.num_ranks, pairs or task.batch_size // 2

    def init(encoder, rngs):
        return Embedder(encoder, width, num_ranks, rngs=rngs)

    def enter(model, context, rngs):
        if num_ranks not in HALF_CIRCLE:
            return
        plane = jax.random.normal(rngs.params(), (width, 2), jnp.float32)
        basis = jnp.linalg.qr(plane)[0]
        angles = jnp.linspace(0.0, math.pi, num_ranks, dtype=jnp.float32)
        circle = jnp.stack([jnp.cos(angles), jnp.sin(angles)], axis=1)
        model.references[...] = circle @ basis.T

    def loss(model, batch, rngs):
        base, reference, where = draw_pairs(
            rngs.params(), batch["label"], batch["mask"], count
        )
        terms = losses.gol_terms(
            model(batch["image"]),
            model.references[...],
            batch["label"],
            base,
            reference,
            num_ranks=num_ranks,
            margin=margin,
            tau=tau,
            where=where,
        )
        return sum(terms), terms._asdict()

    def predict(model, images, support):
        return fitted_predictions.predict_by_neighbours(
            model(images), support, most=max(neighbours), num_ranks=num_ranks
        )

    def fit(model, train, val):
        return fitted_predictions.fit_neighbours(train, val, neighbours)

    def readouts(model):
        unit = losses.unit_vectors(model.references[...])
        cosines = jnp.clip(jnp.sum(unit[1:] * unit[:-1], axis=1), -1, 1)
        return {"reference_angles": interface.Readout(jnp.degrees(jnp.arccos(cosines)))}

    stage = fit_stage(
        loss,
        task.limits,
        trains=dict.fromkeys((*interface.NETWORK, REFERENCES), {}),
        enter=enter,
    )
    return interface.Method(init, (stage,), Embedder.__call__, predict, fit, readouts)


def draw_pairs(
    key: Array, labels: Array, mask: Array, count: int
) -> tuple[Array, Array, Array]:
    """Base and reference of random pairs, and which of them there are.

    Whether the base is above, below or alike is drawn evenly, then one of the pairs
    with that relation. Pairs of a relation that none in the batch has do not count.
    """
    relation_key, pair_key = jax.random.split(key)
    first, second = labels[:, None], labels[None, :]
    size = len(labels)
    real = mask[:, None] & mask[None, :] & ~jnp.eye(size, dtype=bool)
    relations = jnp.stack([first > second, first < second, first == second])
    possible = (relations & real[None]).reshape(3, size * size)
    # The n-th possible pair is where their running count first exceeds n. That draws
    # one number per pair, where a categorical draw takes one of each possible pair.
    running = jnp.cumsum(possible)
    totals = jnp.sum(possible, axis=1)
    before = jnp.cumsum(totals) - totals  # pairs of earlier relations
    relation = jax.random.randint(relation_key, (count,), 0, 3)
    nth = jax.random.randint(pair_key, (count,), 0, jnp.maximum(totals[relation], 1))
    chosen = jnp.searchsorted(running, before[relation] + nth, side="right")
    chosen = chosen % (size * size)  # within its relation; anything where there is none
    return chosen // size, chosen % size, totals[relation] > 0
