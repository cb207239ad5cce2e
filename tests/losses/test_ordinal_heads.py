"""The losses of ordinal heads against loops and golden values, and by properties."""

import functools

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest

from cloc_jax.losses.ordinal_heads import (
    above_from_conditionals,
    coral,
    corn,
    cumulative_link,
    ordinal_binary,
)

BOUNDARIES = 7
ON_LOGITS = {"ordinal_binary": ordinal_binary, "coral": coral, "corn": corn}


def loss_of(function):
    return loss_checks.Loss(
        lambda b, where: function(b["logits"], b["labels"], where=where)
    )


LOSSES = {name: loss_of(function) for name, function in ON_LOGITS.items()}
LOSSES["cumulative_link"] = LINK = loss_checks.Loss(
    lambda b, where: cumulative_link(
        b["scores"], b["thresholds"], b["labels"], where=where
    ),
    axes={"thresholds": None},
)
binary = pytest.mark.parametrize("name", ["ordinal_binary", "coral", "corn"])


def batch(name, size=8, boundaries=BOUNDARIES, seed=0):
    rng = np.random.default_rng(seed)
    labels = {"labels": rng.integers(0, boundaries + 1, size)}
    if name == "cumulative_link":
        thresholds = np.cumsum(rng.uniform(0.1, 1.0, boundaries)) - 2
        return labels | {"scores": rng.normal(size=size), "thresholds": thresholds}
    outputs = (boundaries, 2) if name == "ordinal_binary" else (boundaries,)
    return labels | {"logits": rng.normal(size=(size, *outputs))}


def arrays(name, **options):
    return jax.tree.map(
        jnp.asarray, loss_checks.cast(batch(name, **options), np.float32)
    )


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def probability(name, logits, is_above):
    if name == "ordinal_binary":
        return np.exp(logits[int(is_above)]) / np.exp(logits).sum()
    return sigmoid(logits) if is_above else 1 - sigmoid(logits)


def binary_oracle(b, name):
    sums, count = [], 0
    for logits, y in zip(b["logits"], b["labels"], strict=True):
        tasks = [k for k in range(len(logits)) if name != "corn" or y > k - 1]
        sums.append(sum(-np.log(probability(name, logits[k], y > k)) for k in tasks))
        count += len(tasks)
    return sum(sums) / count if name == "corn" else np.mean(sums)


def link_oracle(b, name):
    ends = np.concatenate([[-np.inf], b["thresholds"], [np.inf]])
    losses = []
    with np.errstate(over="ignore"):
        for score, y in zip(b["scores"], b["labels"], strict=True):
            below = sigmoid(ends[y + 1] - score)
            losses.append(-np.log(below - sigmoid(ends[y] - score)))
    return np.mean(losses)


ORACLES = {"cumulative_link": link_oracle}


@pytest.mark.parametrize("boundaries", [1, 3])
@pytest.mark.parametrize("name", LOSSES)
def test_equals_loops(name, boundaries):
    oracle = functools.partial(ORACLES.get(name, binary_oracle), name=name)
    b = batch(name, size=5, boundaries=boundaries)
    loss_checks.check_oracle(LOSSES[name], oracle, b)


def test_equals_released_code(baselines):
    for case in baselines["orcnn"].values():
        loss_checks.check_golden(
            lambda b: ordinal_binary(b["logits"], b["labels"]),
            {name: case[name] for name in ("logits", "labels")},
            case["value"],
            {"logits": case["grad"]},
        )


# --- one binary task per boundary ---


@binary
def test_weights_of_boundaries_multiply_their_terms(name):
    b = arrays(name)
    weights = jnp.asarray(np.random.default_rng(1).random(BOUNDARIES), jnp.float32)
    got = ON_LOGITS[name](**b, boundary_weights=weights)
    one = functools.partial(ON_LOGITS[name], **b)
    each = [one(boundary_weights=row) for row in jnp.eye(BOUNDARIES)]
    np.testing.assert_allclose(got, weights @ jnp.stack(each), rtol=1e-5)
    np.testing.assert_allclose(one(), sum(each), rtol=1e-5)


@binary
def test_far_from_the_truth_is_linear_not_infinite(name):
    b = arrays(name)
    sign = jnp.where(b["labels"][:, None] > jnp.arange(BOUNDARIES)[None], -1.0, 1.0)
    wrong = 1e4 * sign
    if name == "ordinal_binary":
        wrong = jnp.stack([jnp.zeros_like(wrong), wrong], axis=2)
    value, gradients = LOSSES[name](b | {"logits": wrong})
    count = 1 if name == "corn" else BOUNDARIES
    np.testing.assert_allclose(value, count * 1e4, rtol=1e-6)
    assert np.isfinite(gradients["logits"]).all() and gradients["logits"].any()


def test_above_is_the_product_of_conditionals():
    logits = batch("corn", size=4)["logits"]
    with jax.enable_x64():
        got = above_from_conditionals(jnp.asarray(logits))
    np.testing.assert_allclose(got, np.cumprod(sigmoid(logits), axis=1), rtol=1e-12)
    assert (np.diff(got, axis=1) <= 0).all()


def test_above_of_extreme_logits():
    logits = jnp.asarray([[1e4] * 3, [-1e4] * 3, [-30.0, -30.0, -20.0]])
    got, gradient = jax.value_and_grad(
        lambda x: jnp.sum(jnp.log(above_from_conditionals(x[::2]))), allow_int=False
    )(logits)
    np.testing.assert_allclose(got, -(30 + 60 + 80), rtol=1e-5)
    assert np.isfinite(gradient).all()
    above = above_from_conditionals(logits)
    assert (above[0] == 1).all() and (above[1] == 0).all()
    assert above_from_conditionals(logits.astype(jnp.bfloat16)).dtype == jnp.float32


# --- a score between thresholds ---


@pytest.mark.parametrize("score", [-1e4, -60.0, 60.0, 1e4])
def test_far_scores_cost_their_distance(score):
    """The difference of the two sigmoids is 0 in float32."""
    b = {
        "scores": np.float32([score]),
        "thresholds": np.float32([-1.0, 0.5]),
        "labels": np.int32([1]),
    }
    value, gradients = LINK(b)
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
    value, gradients = LINK(b)
    width = np.float64(np.float32(width))
    # sigmoid(w) - 1/2 = tanh(w / 2) / 2
    np.testing.assert_allclose(value, -np.log(np.tanh(width / 2) / 2), rtol=1e-5)
    assert np.isfinite(gradients["thresholds"]).all()


def test_equal_thresholds_are_an_infinite_loss_of_the_rank_between_only():
    b = {"scores": np.float32([0.1, 0.2]), "thresholds": np.float32([0.0, 0.0])}
    assert LINK(b | {"labels": np.int32([1, 2])})[0] == np.inf
    value, gradients = LINK(b | {"labels": np.int32([0, 2])})
    assert np.isfinite(value)
    assert all(np.isfinite(g).all() for g in gradients.values())
