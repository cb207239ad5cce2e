"""The loss against golden values, against a triple loop, and by its properties."""

import itertools
import pathlib

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.test_util import check_grads

from cloc_jax.losses import REDUCTIONS, mmnp

GOLDENS = pathlib.Path(__file__).parent / "goldens" / "official_loss.npz"


def golden_cases():
    with np.load(GOLDENS) as file:
        keys = sorted({key.split("/")[0] for key in file.files})
        return {
            k: {f.split("/")[1]: file[f] for f in file.files if f.startswith(k + "/")}
            for k in keys
        }


CASES = golden_cases()


def counts(labels):
    same = labels[:, None] == labels[None, :]
    return same.sum(1) - 1, (~same).sum(1)


def reduce_slowly(hinges, labels, reduction):
    """The three reductions as the loss documents them."""
    positives, negatives = counts(labels)
    if reduction == "paper":
        return hinges.mean()
    if reduction == "mean":
        return hinges.sum() / max((positives * negatives).sum(), 1)
    return np.mean(
        [
            h / (p * n**2) if p and n else 0.0
            for h, p, n in zip(hinges, positives, negatives, strict=True)
        ]
    )


def loop(z, y, margins):
    """H_i by three nested loops in float64."""
    z = np.asarray(z, np.float64)
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    unit = np.divide(z, norms, out=np.zeros_like(z), where=norms > 0)
    s = unit @ unit.T
    position = np.concatenate([[0], np.cumsum(margins)])
    hinges = np.zeros(len(y))
    for i, j, k in itertools.product(range(len(y)), repeat=3):
        if i != j and y[i] == y[j] and y[i] != y[k]:
            margin = abs(position[y[i]] - position[y[k]])
            hinges[i] += max(0.0, margin + s[i, k] - s[i, j])
    return hinges


@jax.jit
def values_and_gradients(z, y, m):
    return {
        r: jax.value_and_grad(lambda z, m, r=r: mmnp(z, y, m, reduction=r), (0, 1))(
            z, m
        )
        for r in REDUCTIONS
    }


@pytest.mark.parametrize("name", CASES)
def test_equals_released_loss_in_float64(name):
    case = CASES[name]
    with jax.enable_x64():
        z = jnp.asarray(case["z"], jnp.float64)
        y = jnp.asarray(case["y"], jnp.int32)
        m = jnp.asarray(case["margins"], jnp.float64)
        value, (grad_z, grad_m) = values_and_gradients(z, y, m)["official"]
        assert value.dtype == jnp.float64
        np.testing.assert_allclose(value, case["official"], rtol=1e-10, atol=1e-14)
        np.testing.assert_allclose(grad_z, case["grad_z"], rtol=1e-9, atol=1e-13)
        # d softplus(theta) / d theta = 1 - exp(-softplus(theta)).
        raw = np.asarray(grad_m) * -np.expm1(-case["margins"])
        raw = np.where(case["fixed"], 0, raw)
        if case["kind"] == "shared":
            raw = raw.sum(keepdims=True)
        np.testing.assert_allclose(
            raw, case["grad_raw_margin"].reshape(raw.shape), rtol=1e-9, atol=1e-13
        )


@pytest.mark.parametrize("name", CASES)
def test_reductions_of_golden_hinge_sums(name):
    case = CASES[name]
    z, m = jnp.asarray(case["z"]), jnp.asarray(case["margins"], jnp.float32)
    y = jnp.asarray(case["y"], jnp.int32)
    for reduction, (got, _) in values_and_gradients(z, y, m).items():
        want = reduce_slowly(case["hinge_sum"], case["y"], reduction)
        np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-7)


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_gradients_of_every_reduction_by_differences(reduction):
    rng = np.random.default_rng(0)
    y = jnp.asarray([0, 0, 1, 1, 2, 2, 2, 0], jnp.int32)
    with jax.enable_x64():
        z, m = jnp.asarray(rng.normal(size=(8, 5))), jnp.asarray([0.3, 0.7])
        check_grads(
            jax.jit(lambda z, m: mmnp(z, y, m, reduction=reduction)),
            (z, m),
            order=1,
            modes=["rev"],
        )


# A few shapes only, since each one is compiled.
@settings(max_examples=60, deadline=None)
@given(st.data())
def test_equals_triple_loop(data):
    size, ranks = data.draw(st.sampled_from([(2, 2), (7, 3), (12, 6), (13, 2)]))
    y = data.draw(st.lists(st.integers(0, ranks - 1), min_size=size, max_size=size))
    seed, has_zero, is_constant = data.draw(
        st.tuples(st.integers(0, 2**32 - 1), st.booleans(), st.booleans())
    )
    rng = np.random.default_rng(seed)
    z = rng.normal(size=(size, 3)).astype(np.float32)
    if has_zero:
        z[rng.integers(size)] = 0
    if is_constant:
        z[:] = z[0]
    m = rng.uniform(0.05, 1, ranks - 1).astype(np.float32)
    y = np.array(y, np.int32)
    hinges = loop(z, y, m)
    for reduction, (value, grads) in values_and_gradients(z, y, m).items():
        want = reduce_slowly(hinges, y, reduction)
        np.testing.assert_allclose(value, want, rtol=2e-5, atol=1e-6)
        assert all(np.isfinite(g).all() for g in grads)


def batch(seed=0, size=12, ranks=4, dim=6):
    rng = np.random.default_rng(seed)
    y = jnp.asarray(rng.permutation(np.arange(size) % ranks), jnp.int32)
    m = jnp.asarray(rng.uniform(0.2, 0.8, ranks - 1), jnp.float32)
    return jnp.asarray(rng.normal(size=(size, dim)), jnp.float32), y, m


@pytest.mark.parametrize("reduction", REDUCTIONS)
def test_padding_takes_no_part(reduction):
    z, y, m = batch()
    junk = jnp.full((5, z.shape[1]), 7.0, jnp.float32)
    where = jnp.arange(17) < 12
    padded = jnp.concatenate([z, junk])
    labels = jnp.concatenate([y, jnp.zeros(5, jnp.int32)])
    grad = jax.jit(
        jax.grad(lambda z: mmnp(z, labels, m, reduction=reduction, where=where))
    )
    want = mmnp(z, y, m, reduction=reduction)
    got = mmnp(padded, labels, m, reduction=reduction, where=where)
    np.testing.assert_allclose(got, want, rtol=1e-6)
    assert not grad(padded)[12:].any()


def test_invariant_to_order_and_scale_of_embeddings():
    z, y, m = batch()
    order = np.random.default_rng(1).permutation(len(y))
    scale = jnp.linspace(0.1, 9, len(y), dtype=jnp.float32)[:, None]
    np.testing.assert_allclose(mmnp(z[order], y[order], m), mmnp(z, y, m), rtol=1e-5)
    np.testing.assert_allclose(mmnp(z * scale, y, m), mmnp(z, y, m), rtol=1e-5)


def test_never_falls_as_a_margin_grows():
    z, y, m = batch()
    values = [mmnp(z, y, m.at[1].set(v)) for v in (0.1, 0.4, 0.9, 1.5)]
    assert all(a <= b for a, b in itertools.pairwise(values))
    assert values[0] < values[-1]


def test_zero_when_every_margin_is_met():
    angles = np.repeat([0.0, 1.2, 2.4], 3)
    z = jnp.asarray(np.stack([np.cos(angles), np.sin(angles)], 1), jnp.float32)
    y = jnp.asarray(np.repeat([0, 1, 2], 3), jnp.int32)
    m = jnp.asarray([0.5, 0.5], jnp.float32)
    value, grad = jax.value_and_grad(mmnp)(z, y, m)
    assert value == 0 and not grad.any()
    assert mmnp(z, y, 4 * m) > 0


def test_works_under_vmap_and_in_bfloat16():
    z, y, m = batch()
    stacked = jnp.stack([z, 2 * z, -z])
    values = jax.vmap(mmnp, (0, None, None))(stacked, y, m)
    np.testing.assert_allclose(values, jnp.full(3, mmnp(z, y, m)), rtol=1e-5)
    low = mmnp(z.astype(jnp.bfloat16), y, m)
    assert low.dtype == jnp.float32
    np.testing.assert_allclose(low, mmnp(z, y, m), rtol=2e-2)  # bfloat16 has 3 digits


@pytest.mark.parametrize(
    "change, message",
    [
        ({"reduction": "sum"}, "reduction 'sum' is unknown"),
        ({"labels": jnp.zeros(3, jnp.int32)}, r"labels of shape \(3,\)"),
        ({"margins": jnp.zeros((2, 2), jnp.float32)}, r"margins of shape \(2, 2\)"),
    ],
)
def test_bad_input_is_named(change, message):
    z, y, m = batch()
    arguments = {"embeddings": z, "labels": y, "margins": m} | change
    # Unwrapped: in tests a shape checker stands before the function.
    with pytest.raises(ValueError, match=message):
        mmnp.__wrapped__(**arguments)
