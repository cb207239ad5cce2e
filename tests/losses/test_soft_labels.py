"""SORD against loops, and by its properties."""

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import optax
import pytest

from cloc_jax.losses.ordinal_heads import RANK_DISTANCES, sord

ALPHA = 0.8


def loss_of(distance):
    return loss_checks.Loss(
        lambda b, where: sord(
            b["logits"], b["labels"], alpha=ALPHA, distance=distance, where=where
        )
    )


LOSSES = {distance: loss_of(distance) for distance in RANK_DISTANCES}
every = pytest.mark.parametrize("distance", LOSSES)


def batch(size=8, ranks=8, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "logits": rng.normal(size=(size, ranks)),
        "labels": rng.integers(0, ranks, size),
    }


def oracle(b, distance):
    power = {"absolute": 1, "squared": 2}[distance]
    losses = []
    for logits, y in zip(b["logits"], b["labels"], strict=True):
        ranks = range(len(logits))
        weights = [np.exp(-ALPHA * abs(y - k) ** power) for k in ranks]
        total = np.log(np.exp(logits).sum())
        losses.append(
            sum(weights[k] / sum(weights) * (total - logits[k]) for k in ranks)
        )
    return np.mean(losses)


@every
def test_equals_loops(distance):
    loss_checks.check_oracle(
        LOSSES[distance], lambda b: oracle(b, distance), batch(size=5, ranks=4)
    )


@every
def test_alpha_goes_from_all_ranks_alike_to_plain_labels(distance):
    b = jax.tree.map(jnp.asarray, loss_checks.cast(batch(), np.float32))
    logs = jax.nn.log_softmax(b["logits"])
    options = {"distance": distance}
    alike = sord(b["logits"], b["labels"], alpha=0.0, **options)
    np.testing.assert_allclose(alike, -logs.mean(), rtol=1e-5)
    plain = sord(b["logits"], b["labels"], alpha=1e3, **options)
    want = optax.softmax_cross_entropy_with_integer_labels(b["logits"], b["labels"])
    np.testing.assert_allclose(plain, want.mean(), rtol=1e-5)


def test_unknown_distance():
    with pytest.raises(Exception, match="cubed"):
        sord(jnp.zeros((2, 3)), jnp.zeros(2, jnp.int32), alpha=1.0, distance="cubed")
