"""SupCon and NT-Xent against loops and golden values, and by their properties."""

import functools

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest

from cloc_jax.losses.contrastive import nt_xent, supcon

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


def test_equals_released_code(baselines):
    assert any(case.endswith("lone") for case in baselines["supcon"])
    for case in baselines["supcon"].values():
        loss_checks.check_golden(
            lambda b, t=float(case["temperature"]): call_supcon(b, temperature=t),
            {name: case[name] for name in ("features", "labels")},
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
@pytest.mark.parametrize("kind", loss_checks.DEGENERATE)
def test_degenerate_batches_are_finite(name, kind):
    _, gradients = loss_checks.check_degenerate(LOSSES[name], batch(name), kind)
    assert kind != "zero" or not gradients["features"].any()


@both
def test_padding(name):
    loss_checks.check_padding(LOSSES[name], batch(name))


@both
def test_devices(name):
    loss_checks.check_devices(LOSSES[name], batch(name))


@both
def test_bfloat16(name):
    loss_checks.check_bfloat16(LOSSES[name], batch(name))


def test_anchors_without_positives_count_as_0_in_the_mean():
    rng = np.random.default_rng(0)
    features = jnp.asarray(rng.normal(size=(4, 1, 3)), jnp.float32)
    options = {"temperature": 1.0, "base_temperature": 1.0}
    value = supcon(features, jnp.asarray([0, 0, 1, 2]), **options)
    y = np.asarray([0, 0, 1, 2])
    np.testing.assert_allclose(value, loops(np.float64(features), y, 1.0), rtol=1e-5)
    lone = supcon(features, jnp.asarray([0, 1, 2, 3]), **options)
    assert lone == 0


def test_nt_xent_is_half_of_the_two_means_of_simclr():
    """SimCLR: a cross-entropy per view, over the other view and the rest of its own."""
    a = batch("nt_xent")["features"]
    z = a / np.linalg.norm(a, axis=2, keepdims=True)
    size = len(z)
    total = 0.0
    for one, two in ((z[:, 0], z[:, 1]), (z[:, 1], z[:, 0])):
        own = one @ one.T / TEMPERATURE - 1e9 * np.eye(size)
        logits = np.concatenate([one @ two.T / TEMPERATURE, own], axis=1)
        totals = np.log(np.exp(logits).sum(1))
        total += np.mean(totals - np.diag(logits))
    value = call_nt_xent({"features": jnp.asarray(a, jnp.float32)})
    np.testing.assert_allclose(2 * value, total, rtol=1e-5)


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


@both
def test_scale_of_features_does_not_matter(name):
    arrays = loss_checks.cast(batch(name), np.float32)
    scale = np.random.default_rng(1).uniform(0.1, 9, (8, 2, 1)).astype(np.float32)
    scaled = arrays | {"features": arrays["features"] * scale}
    np.testing.assert_allclose(
        LOSSES[name](scaled)[0], LOSSES[name](arrays)[0], rtol=1e-5
    )
