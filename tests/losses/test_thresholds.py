"""The cumulative link loss against loops, and by its properties."""

import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest

from cloc_jax.losses.ordinal_heads import cumulative_link

LOSS = loss_checks.Loss(
    lambda b, where: cumulative_link(
        b["scores"], b["thresholds"], b["labels"], where=where
    ),
    axes={"thresholds": None},
)


def batch(size=8, boundaries=7, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "scores": rng.normal(size=size),
        "thresholds": np.cumsum(rng.uniform(0.1, 1.0, boundaries)) - 2,
        "labels": rng.integers(0, boundaries + 1, size),
    }


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def oracle(b):
    ends = np.concatenate([[-np.inf], b["thresholds"], [np.inf]])
    losses = []
    with np.errstate(over="ignore"):
        for score, y in zip(b["scores"], b["labels"], strict=True):
            below = sigmoid(ends[y + 1] - score)
            losses.append(-np.log(below - sigmoid(ends[y] - score)))
    return np.mean(losses)


@pytest.mark.parametrize("boundaries", [1, 2, 5])
def test_equals_loops(boundaries):
    loss_checks.check_oracle(LOSS, oracle, batch(size=7, boundaries=boundaries))


@pytest.mark.parametrize("score", [-1e4, -60.0, 60.0, 1e4])
def test_far_scores_cost_their_distance(score):
    """The difference of the two sigmoids is 0 in float32."""
    b = {
        "scores": np.float32([score]),
        "thresholds": np.float32([-1.0, 0.5]),
        "labels": np.int32([1]),
    }
    value, gradients = LOSS(b)
    nearest = 0.5 if score > 0 else -1.0
    want = abs(score - nearest) - np.log(-np.expm1(-1.5))
    np.testing.assert_allclose(value, want, rtol=1e-6)
    np.testing.assert_allclose(gradients["scores"], np.sign(score), rtol=1e-6)
    assert np.isfinite(gradients["thresholds"]).all()


@pytest.mark.parametrize("width", [1e-6, 1e-3, 0.69, 0.71, 30.0, 200.0])
def test_narrow_and_wide_ranks_keep_their_digits(width):
    b = {
        "scores": np.float32([0.0]),
        "thresholds": np.float32([0.0, width]),
        "labels": np.int32([1]),
    }
    value, gradients = LOSS(b)
    width = np.float64(np.float32(width))
    # sigmoid(w) - 1/2 = tanh(w / 2) / 2
    np.testing.assert_allclose(value, -np.log(np.tanh(width / 2) / 2), rtol=1e-5)
    assert np.isfinite(gradients["thresholds"]).all()


def test_equal_thresholds_are_an_infinite_loss_of_the_rank_between_only():
    b = {"scores": np.float32([0.1, 0.2]), "thresholds": np.float32([0.0, 0.0])}
    assert LOSS(b | {"labels": np.int32([1, 2])})[0] == np.inf
    value, gradients = LOSS(b | {"labels": np.int32([0, 2])})
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in gradients.values())


def test_no_threshold_is_refused():
    with pytest.raises(ValueError, match="at least one"):
        cumulative_link(jnp.zeros(2), jnp.zeros(0), jnp.zeros(2, jnp.int32))
