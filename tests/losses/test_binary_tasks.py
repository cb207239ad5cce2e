"""ORCNN, CORAL and CORN against loops and golden values, and by their properties."""

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest

from cloc_jax.losses.ordinal_heads import (
    above_from_conditionals,
    coral,
    corn,
    ordinal_binary,
)

FUNCTIONS = {"ordinal_binary": ordinal_binary, "coral": coral, "corn": corn}
BOUNDARIES = 7


def loss_of(function):
    return loss_checks.Loss(
        lambda b, where: function(b["logits"], b["labels"], where=where)
    )


LOSSES = {name: loss_of(function) for name, function in FUNCTIONS.items()}
every = pytest.mark.parametrize("name", LOSSES)


def batch(name, size=8, boundaries=BOUNDARIES, seed=0):
    rng = np.random.default_rng(seed)
    outputs = (2,) if name == "ordinal_binary" else ()
    return {
        "logits": rng.normal(size=(size, boundaries, *outputs)),
        "labels": rng.integers(0, boundaries + 1, size),
    }


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def probability(name, logits, is_above):
    if name == "ordinal_binary":
        return np.exp(logits[int(is_above)]) / np.exp(logits).sum()
    return sigmoid(logits) if is_above else 1 - sigmoid(logits)


def oracle(b, name):
    sums, count = [], 0
    for logits, y in zip(b["logits"], b["labels"], strict=True):
        tasks = [k for k in range(len(logits)) if name != "corn" or y > k - 1]
        sums.append(sum(-np.log(probability(name, logits[k], y > k)) for k in tasks))
        count += len(tasks)
    return sum(sums) / count if name == "corn" else np.mean(sums)


@every
def test_equals_loops(name):
    loss_checks.check_oracle(
        LOSSES[name], lambda b: oracle(b, name), batch(name, size=5, boundaries=3)
    )


def test_equals_released_code(baselines):
    for case in baselines["orcnn"].values():
        loss_checks.check_golden(
            lambda b: ordinal_binary(b["logits"], b["labels"]),
            {name: case[name] for name in ("logits", "labels")},
            case["value"],
            {"logits": case["grad"]},
        )


def arrays(name, **options):
    return jax.tree.map(
        jnp.asarray, loss_checks.cast(batch(name, **options), np.float32)
    )


def test_weights_are_per_boundary():
    b = arrays("ordinal_binary")
    weights = jnp.asarray(np.random.default_rng(1).random(BOUNDARIES), jnp.float32)
    got = ordinal_binary(b["logits"], b["labels"], weights=weights)
    want = 0.0
    for k in range(BOUNDARIES):
        task = b["labels"] > k
        logits = b["logits"][:, k : k + 1]
        want += weights[k] * ordinal_binary(logits, task.astype(jnp.int32))
    np.testing.assert_allclose(got, want, rtol=1e-5)
    plain = ordinal_binary(b["logits"], b["labels"])
    ones = ordinal_binary(b["logits"], b["labels"], weights=jnp.ones(BOUNDARIES))
    assert ones == plain


@every
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
    half = above_from_conditionals(logits.astype(jnp.bfloat16))
    assert half.dtype == jnp.float32
