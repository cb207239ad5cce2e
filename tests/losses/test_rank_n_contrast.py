"""Rank-N-Contrast against loops and golden values, and by its properties."""

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest
from jax.test_util import check_grads

from cloc_jax.losses.contrastive import rnc

TEMPERATURE = 0.7
LOSS = loss_checks.Loss(
    lambda b, where: rnc(
        b["features"], b["labels"], temperature=TEMPERATURE, where=where
    )
)


def batch(size=8, views=2, dim=3, ranks=4, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "features": rng.normal(size=(size, views, dim)),
        "labels": rng.integers(0, ranks, size),
    }


def oracle(batch):
    """Three nested loops."""
    _, views, dim = batch["features"].shape
    v = batch["features"].reshape(-1, dim)
    y = np.repeat(batch["labels"], views)
    n = len(y)
    s = -np.linalg.norm(v[:, None] - v[None, :], axis=2) / TEMPERATURE
    total = 0.0
    for i in range(n):
        for j in range(n):
            if j != i:
                terms = [
                    np.exp(s[i, k])
                    for k in range(n)
                    if k != i and abs(y[i] - y[k]) >= abs(y[i] - y[j])
                ]
                total += np.log(sum(terms)) - s[i, j]
    return total / (n * (n - 1))


LABELS = {
    "ranks": np.asarray([2, 0, 1, 3, 1, 0]),
    "any whole numbers": np.asarray([-40, 7, 7, 2**20, 0, -3]),
    "floats": np.asarray([0.1, 0.3, 0.2, 0.1, -7.5, 0.2]),  # ties only up to rounding
    "one rank": np.asarray([3] * 6),
    "lone ranks": np.asarray([5, 1, 4, 2, 3, 0]),
}


@pytest.mark.parametrize("views", [1, 2])
@pytest.mark.parametrize("labels", LABELS)
def test_equals_loops(labels, views):
    cases = batch(6, views) | {"labels": LABELS[labels]}
    loss_checks.check_oracle(LOSS, oracle, cases)


def test_derivatives_of_both_modes():
    arrays = batch(4, views=1)
    with jax.enable_x64():
        labels = jnp.asarray(arrays["labels"])
        check_grads(
            jax.jit(lambda f: rnc(f, labels, temperature=TEMPERATURE)),
            (jnp.asarray(arrays["features"]),),
            order=1,
        )


def test_equals_released_code(baselines):
    for case in baselines["rnc"].values():
        loss_checks.check_golden(
            lambda b, t=float(case["temperature"]): rnc(
                b["features"], b["labels"], temperature=t
            ),
            {name: case[name] for name in ("features", "labels")},
            case["value"],
            {"features": case["grad"]},
        )


def test_one_sample_of_two_views_has_nothing_to_tell_apart():
    arrays = loss_checks.cast(batch(1), np.float32)
    value, gradients = LOSS(arrays)
    assert value == 0 and not gradients["features"].any()


def test_far_features_stay_finite():
    """Subtracting a maximum with the diagonal in it fails at distances of 308."""
    arrays = batch()
    arrays["features"] *= 1000
    value, gradients = LOSS(loss_checks.cast(arrays, np.float32))
    with jax.enable_x64():
        want = LOSS(arrays)
    assert np.isfinite(want[0])
    loss_checks.assert_close((value, gradients), want, 1e-3)


def test_close_features_keep_their_digits():
    """Inner products would lose the distances of views that nearly agree."""
    arrays = batch()
    arrays["features"] = 100 + arrays["features"] / 64
    arrays["features"] = arrays["features"].astype(np.float32).astype(np.float64)
    with jax.enable_x64():
        want = LOSS(arrays)
    loss_checks.assert_close(LOSS(loss_checks.cast(arrays, np.float32)), want, 1e-5)


def test_memory_is_square_in_the_batch():
    size, views, dim = 64, 2, 512
    arguments = (
        jax.ShapeDtypeStruct((size, views, dim), jnp.float32),
        jax.ShapeDtypeStruct((size,), jnp.int32),
    )
    function = jax.jit(jax.value_and_grad(lambda f, y: rnc(f, y, temperature=2.0)))
    memory = function.lower(*arguments).compile().memory_analysis()
    # In arrays of [n, n]: a cube would be 128, all differences 512.
    assert memory.temp_size_in_bytes < 32 * 4 * (size * views) ** 2
