"""SupCon, NT-Xent and RnC against loops and golden values, and by their properties."""

import functools

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest

from cloc_jax.losses.contrastive import nt_xent, rnc, supcon

TEMPERATURE, BASE = 0.3, 0.07


@functools.partial(jax.jit, static_argnames=("temperature", "base"))
def call_supcon(b, where=None, temperature=TEMPERATURE, base=BASE):
    return supcon(
        b["features"],
        b["labels"],
        temperature=temperature,
        base_temperature=base,
        where=where,
    )


@functools.partial(jax.jit, static_argnames="temperature")
def call_nt_xent(b, where=None, temperature=TEMPERATURE):
    return nt_xent(b["features"], temperature=temperature, where=where)


LOSSES = {
    "supcon": loss_checks.Loss(call_supcon),
    "nt_xent": loss_checks.Loss(call_nt_xent),
}
both = pytest.mark.parametrize("name", LOSSES)


def batch(name, size=8, views=2, dim=3, ranks=4, seed=0):
    rng = np.random.default_rng(seed)
    arrays = {"features": rng.normal(size=(size, views, dim))}
    if name == "supcon":
        arrays["labels"] = rng.integers(0, ranks, size)
    return arrays


def loops(features, labels, temperature):
    """The mean over all anchors; 0 for one without positives."""
    _, views, dim = features.shape
    z = features.reshape(-1, dim)
    z = z / np.linalg.norm(z, axis=1, keepdims=True)
    y = np.repeat(labels, views)
    losses = []
    for i in range(len(y)):
        others = [a for a in range(len(y)) if a != i]
        total = np.log(sum(np.exp(z[i] @ z[a] / temperature) for a in others))
        terms = [total - z[i] @ z[p] / temperature for p in others if y[p] == y[i]]
        losses.append(np.mean(terms) if terms else 0.0)
    return np.mean(losses)


def supcon_oracle(b):
    return TEMPERATURE / BASE * loops(b["features"], b["labels"], TEMPERATURE)


def nt_xent_oracle(b):
    samples = np.arange(len(b["features"]))
    return loops(b["features"], samples, TEMPERATURE)


ORACLES = {"supcon": supcon_oracle, "nt_xent": nt_xent_oracle}


@both
@pytest.mark.parametrize("views", [1, 2, 3])
def test_equals_loops(name, views):
    loss_checks.check_oracle(
        LOSSES[name], ORACLES[name], batch(name, size=5, views=views, ranks=3)
    )


def call_rnc(b, temperature):
    return rnc(b["features"], b["labels"], temperature=temperature)


RELEASED = {"supcon": call_supcon, "rnc": call_rnc}


@pytest.mark.parametrize("name", RELEASED)
def test_equals_released_code(name, baselines):
    for case in baselines[name].values():
        loss_checks.check_golden(
            lambda b, t=float(case["temperature"]): RELEASED[name](b, temperature=t),
            {key: case[key] for key in ("features", "labels")},
            case["value"],
            {"features": case["grad"]},
        )


def test_equals_released_code_without_labels(baselines):
    """It is SupCon's code, whose factor T / 0.07 our NT-Xent does not have."""
    for case in baselines["simclr"].values():
        scale = float(case["temperature"]) / 0.07
        loss_checks.check_golden(
            lambda b, t=float(case["temperature"]): call_nt_xent(b, temperature=t),
            {"features": case["features"]},
            case["value"] / scale,
            {"features": case["grad"] / scale},
        )


@both
def test_small_temperatures_do_not_overflow(name):
    """The logit of an anchor with itself is the largest, and must not be subtracted."""
    arrays = jax.tree.map(jnp.asarray, loss_checks.cast(batch(name), np.float32))
    function = {"supcon": call_supcon, "nt_xent": call_nt_xent}[name]
    value, gradient = jax.value_and_grad(
        lambda f: function(arrays | {"features": f}, temperature=1e-3)
    )(arrays["features"])
    assert np.isfinite(value) and value > 0
    assert np.isfinite(gradient).all()


# --- Rank-N-Contrast ---

RNC_TEMPERATURE = 0.7
RNC = loss_checks.Loss(
    lambda b, where: rnc(
        b["features"], b["labels"], temperature=RNC_TEMPERATURE, where=where
    )
)


def rnc_batch(size=8, views=2):
    return batch("supcon", size, views)


def rnc_oracle(batch):
    """Two nested loops, over anchors and others."""
    _, views, dim = batch["features"].shape
    v = batch["features"].reshape(-1, dim)
    y = np.repeat(batch["labels"], views)
    n = len(y)
    s = -np.linalg.norm(v[:, None] - v[None, :], axis=2) / RNC_TEMPERATURE
    total = 0.0
    for i in range(n):
        for j in range(n):
            if j != i:
                is_farther = np.abs(y[i] - y) >= np.abs(y[i] - y[j])
                is_farther[i] = False
                total += np.log(np.exp(s[i, is_farther]).sum()) - s[i, j]
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
def test_rnc_equals_loops(labels, views):
    cases = rnc_batch(6, views) | {"labels": LABELS[labels]}
    loss_checks.check_oracle(RNC, rnc_oracle, cases)


def test_far_features_stay_finite():
    """Subtracting a maximum with the diagonal in it fails at distances of 308."""
    arrays = rnc_batch()
    arrays["features"] *= 1000
    value, gradients = RNC(loss_checks.cast(arrays, np.float32))
    with jax.enable_x64():
        want = RNC(arrays)
    assert np.isfinite(want[0])
    loss_checks.assert_close((value, gradients), want, 1e-3)


def test_close_features_keep_their_digits():
    """Inner products would lose the distances of views that nearly agree."""
    arrays = rnc_batch()
    arrays["features"] = 100 + arrays["features"] / 64
    arrays["features"] = arrays["features"].astype(np.float32).astype(np.float64)
    with jax.enable_x64():
        want = RNC(arrays)
    loss_checks.assert_close(RNC(loss_checks.cast(arrays, np.float32)), want, 1e-5)


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
