"""Losses take labels of any type, NumPy's arrays and padding that holds anything, at
any scale and under any transformation."""

import functools

import jax
import jax.numpy as jnp
import jaxtyping
import loss_checks
import numpy as np
import pytest
import test_contrastive
import test_geometry
import test_multi_margin
from jax.sharding import PartitionSpec as P
from loss_checks import QUICKLY
from test_every_loss import CASES

from cloc_jax.losses import mmnp, slace
from cloc_jax.runtime import sharding

FORMS = ("dense", "sorted", "blockwise")
TYPES = ("int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64")
SIZES = (130, *(pytest.param(n, marks=pytest.mark.slow) for n in (4, 300, 1024)))


def some_batch(size, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(size) % 5).astype(np.int32)
    z = rng.normal(size=(size, 6)) + y[:, None]
    return z.astype(np.float32), y, rng.uniform(0.1, 0.4, 4).astype(np.float32)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", SIZES)
def test_mmnp_takes_labels_of_any_type(size, form):
    if size > 300 and form == "dense":
        form = "auto"  # dense takes gigabytes
    z, y, m = some_batch(size)
    hinges, slopes = test_multi_margin.anchor_loop(z, y, m)
    want = test_multi_margin.reduce_slowly(hinges, y, "mean")
    across = (y[:, None] <= np.arange(4))[:, None] != (y[:, None] <= np.arange(4))[None]
    triplets = np.multiply(*test_multi_margin.counts(y)).sum()
    want_m = (slopes[..., None] * across).sum((0, 1)) / max(triplets, 1)

    loss = functools.partial(mmnp, algorithm=form)
    results = jax.jit(jax.value_and_grad(loss, (0, 2)), compiler_options=QUICKLY)
    _, (want_z, _) = results(z, y, m)
    for kind in ("int8", "uint8") if size == 130 else TYPES:
        value, (grad_z, grad_m) = results(z, y.astype(kind), m)
        np.testing.assert_allclose(value, want, rtol=1e-5)
        np.testing.assert_allclose(grad_m, want_m, rtol=1e-4, atol=1e-7)
        np.testing.assert_array_equal(grad_z, want_z)


@pytest.mark.parametrize("size", [130, pytest.param(1024, marks=pytest.mark.slow)])
@pytest.mark.parametrize("name", [n for n, c in CASES.items() if "labels" in c[1]()])
def test_every_loss_takes_labels_of_any_type(name, size):
    loss, make = CASES[name]
    batch = make(size=size)
    with jax.enable_x64():
        want = loss(batch)
        for kind in ("uint8", "int8") if size == 130 else TYPES:
            got = loss(batch | {"labels": batch["labels"].astype(kind)})
            loss_checks.assert_close(got, want, 1e-12)


def test_gol_takes_labels_and_pairs_of_any_type():
    loss, batch = test_geometry.LOSSES[1], test_geometry.batch(size=40, pairs=300)
    with jax.enable_x64():
        want = loss(batch)
        for kind in ("uint8", "int8"):
            names = ("labels", "base", "reference")
            got = loss(batch | {name: batch[name].astype(kind) for name in names})
            loss_checks.assert_close(got, want, 1e-12)


def test_rnc_takes_the_whole_range_of_a_small_type():
    labels = np.array([-100, 100, -128, 127, 0, 100], np.int8)
    batch = test_contrastive.rnc_batch(6) | {"labels": labels.astype(np.int64)}
    with jax.enable_x64():
        value, _ = test_contrastive.RNC(batch | {"labels": labels})
    np.testing.assert_allclose(value, test_contrastive.rnc_oracle(batch), rtol=1e-12)


def test_booleans_and_lists_are_taken():
    z, y, m = some_batch(12)
    two = y > 2
    got = mmnp(z, two, m[:1])
    assert got == mmnp(z, two.astype(np.int32), m[:1])
    jaxtyping.config.update("jaxtyping_disable", True)  # signatures ask for arrays
    try:
        assert mmnp(z.tolist(), two.tolist(), m[:1].tolist()) == got
        logits = z[:, :5]
        listed = slace(logits.tolist(), y.tolist(), alpha=1.0)
        assert listed == slace(logits, y, alpha=1.0)
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


# --- transformations ---

DEVICES = 4


def _scanned(loss, z):
    def step(total, scale):
        return total + loss(z * scale) / 2, None

    return jax.lax.scan(step, jnp.zeros((), jnp.float32), jnp.array([1.0, 2.0]))[0]


def _looped(loss, z):
    def step(state):
        number, _ = state
        return number + 1, loss(z)

    start = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
    return jax.lax.while_loop(lambda state: state[0] < 2, step, start)[1]


def _mapped(loss, z):
    return jax.vmap(loss)(jnp.stack([z, 3 * z]))[1]


TRANSFORMED = {
    "jit": lambda loss, z: jax.jit(loss)(z),
    "vmap": _mapped,
    "scan": _scanned,
    "while": _looped,
    "checkpoint": lambda loss, z: jax.checkpoint(loss)(z),
    "checkpoint in scan": lambda loss, z: _scanned(jax.checkpoint(loss), z),
    "scan in vmap": lambda loss, z: _mapped(functools.partial(_scanned, loss), z),
    "vmap in while": lambda loss, z: _looped(functools.partial(_mapped, loss), z),
}


@pytest.mark.parametrize("kind", ["NumPy", pytest.param("JAX", marks=pytest.mark.slow)])
@pytest.mark.parametrize("form", FORMS)
def test_every_form_under_transformations(form, kind):
    z, y, m = some_batch(40)
    if kind == "JAX":
        y, m = jnp.asarray(y), jnp.asarray(m)

    def loss(z):
        return mmnp(z, y, m, algorithm=form)

    def results(z):
        found = {}
        for name, transform in TRANSFORMED.items():
            own = functools.partial(transform, loss)
            found[name] = (own if "while" in name else jax.value_and_grad(own))(z)
        return found

    want, gradient = jax.value_and_grad(loss)(z)
    assert want > 0
    for name, got in jax.jit(results, compiler_options=QUICKLY)(z).items():
        value = got if "while" in name else got[0]
        np.testing.assert_allclose(value, want, rtol=1e-5, err_msg=name)
        if "while" not in name:  # which has no derivative
            np.testing.assert_allclose(got[1], gradient, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_without_replication_checks_are_those_of_the_sum(form):
    z, y, m = some_batch(32)
    want, (want_z, want_m) = jax.value_and_grad(mmnp, (0, 2))(z, y, m)

    def own(z, y, m):
        def loss(z, m):
            return mmnp(z, y, m, algorithm=form, axis_name="data")

        value, (grad_z, grad_m) = jax.value_and_grad(loss, (0, 1))(z, m)
        return value, grad_z / DEVICES, jax.lax.pmean(grad_m, "data")

    def share(x):
        return x.reshape(DEVICES, -1, *x.shape[1:])

    by_pmap = jax.pmap(own, axis_name="data", in_axes=(0, 0, None))
    value, grad_z, grad_m = by_pmap(share(z), share(y), m)
    results = [(value[0], grad_z.reshape(z.shape), grad_m[0])]
    by_shard_map = jax.shard_map(
        own,
        mesh=sharding.make_mesh(DEVICES),
        in_specs=(P("data"), P("data"), P()),
        out_specs=(P(), P("data"), P()),
        check_vma=False,
    )
    results.append(jax.jit(by_shard_map)(z, y, m))
    for value, grad_z, grad_m in results:
        np.testing.assert_allclose(value, want, rtol=1e-6)
        np.testing.assert_allclose(grad_z, want_z, rtol=1e-4, atol=1e-7)
        np.testing.assert_allclose(grad_m, want_m, rtol=1e-5)


# --- values that embeddings and padding may have ---


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("junk", [np.nan, np.inf, 1e30])
def test_padding_may_hold_anything(form, junk):
    z, y, m = some_batch(40)
    where = np.arange(40) % 4 > 0
    loss = functools.partial(mmnp, algorithm=form)
    loss = jax.jit(jax.value_and_grad(loss, (0, 2)), compiler_options=QUICKLY)
    want = loss(np.where(where[:, None], z, 0), np.where(where, y, 0), m, where=where)
    padded = np.where(where[:, None], z, np.float32(junk))
    got = loss(padded, np.where(where, y, -7), m, where=where)
    assert np.isfinite(got[0]) and np.abs(got[1][0]).max() > 0
    jax.tree.map(np.testing.assert_array_equal, got, want)


def test_only_directions_count_at_any_scale():
    scales = [1e-30, 1e-18, 1e-13, 1e-4, 1e4, 1e12, 1e19, 1e30]
    batches = [some_batch(12, seed) for seed in range(120)]
    z, y, m = map(np.stack, zip(*batches, strict=True))
    loss = jax.jit(jax.vmap(jax.value_and_grad(mmnp)), compiler_options=QUICKLY)
    with jax.enable_x64():
        want = loss(z.astype(np.float64), y, m.astype(np.float64))
        want, gradient = map(np.asarray, want)
    for scale in np.asarray(scales, np.float32):
        got, found = loss(z * scale, y, m)
        np.testing.assert_allclose(got, want, rtol=1e-5)
        # A triplet less than a last digit from its margin may count or not.
        found = np.asarray(found, np.float64) * float(scale)
        is_close = np.abs(found - gradient) < 1e-4 * np.abs(gradient).max()
        assert is_close.all(axis=(1, 2)).mean() > 0.98


@pytest.mark.parametrize("form", ("auto", *FORMS))
def test_an_empty_batch_gives_0(form):
    z, y, m = some_batch(0)
    value, gradient = jax.value_and_grad(mmnp, 2)(z, y, m, algorithm=form)
    assert value == 0 and not gradient.any()


def test_labels_that_are_no_ranks_are_refused_or_nan():
    z, y, m = some_batch(20)
    for labels in (y + 1, y - 1):
        with pytest.raises(ValueError, match="4 margins and labels from"):
            mmnp(z, labels, m)
        value, gradient = jax.jit(jax.value_and_grad(mmnp))(z, labels, m)
        assert np.isnan(value) and np.isnan(gradient).any()
        where = (labels >= 0) & (labels <= 4)
        assert np.isfinite(jax.jit(mmnp)(z, labels, m, where=where))
    with pytest.raises(ValueError, match="3 margins and labels from 0 to 4"):
        mmnp(z, y, m[:3])
