"""Losses take labels of any type, NumPy's arrays and padding that holds anything, at
any scale and under any transformation."""

import functools
import inspect

import jax
import jax.numpy as jnp
import jaxtyping
import numpy as np
import pytest
import test_contrastive
import test_multi_margin
from jax.sharding import PartitionSpec as P
from loss_checks import QUICKLY

from cloc_jax import losses
from cloc_jax.losses import gol_terms, mmnp, poe_terms, slace
from cloc_jax.runtime import sharding

FORMS = ("dense", "sorted", "blockwise")


def some_batch(size, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.permutation(np.arange(size) % 5).astype(np.int32)
    z = rng.normal(size=(size, 6)) + y[:, None]
    return z.astype(np.float32), y, rng.uniform(0.1, 0.4, 4).astype(np.float32)


def test_rnc_takes_the_whole_range_of_a_small_type():
    labels = np.array([-100, 100, -128, 127, 0, 100], np.int8)
    batch = test_contrastive.rnc_batch(6) | {"labels": labels.astype(np.int64)}
    with jax.enable_x64():
        value, _ = test_contrastive.RNC(batch | {"labels": labels})
    np.testing.assert_allclose(value, test_contrastive.rnc_oracle(batch), rtol=1e-12)


def test_booleans_and_lists_are_taken():
    z, y, m = some_batch(12)
    logits, two = z[:, :5], y > 2
    losses = {
        "mmnp": (lambda z, y, m: mmnp(z, y, m), (z, two, m[:1])),
        "slace": (lambda x, y: slace(x, y, alpha=1.0), (logits, y)),
        "poe": (
            lambda x, z, y: sum(poe_terms(x, z, z, y, margin=1.0, distance="j")),
            (logits[None], z, two),
        ),
    }
    jaxtyping.config.update("jaxtyping_disable", True)  # signatures ask for arrays
    try:
        for name, (loss, given) in losses.items():

            def of(*given, loss=loss):  # constants, so that lists stay lists
                return jax.jit(lambda: loss(*given), compiler_options=QUICKLY)()

            whole = [x.astype(np.int32) if x.dtype == bool else x for x in given]
            assert of(*given) == of(*(x.tolist() for x in given)) == of(*whole), name
    finally:
        jaxtyping.config.update("jaxtyping_disable", False)


# --- transformations ---

DEVICES = 4


def transformed(loss, z):
    """The loss in a checkpoint in a scan in a vmap."""

    def step(total, z):
        return total + jax.checkpoint(loss)(z) / 2, None

    def scanned(z):
        start = jnp.zeros((), jnp.float32)
        return jax.lax.scan(step, start, jnp.stack([z, 2 * z]))[0]

    return jax.vmap(scanned)(jnp.stack([z, 3 * z]))[1]


def looped(loss, z):
    """The loss in a vmap in a while loop, which has no gradient."""

    def step(state):
        number, _ = state
        return number + 1, jax.vmap(loss)(jnp.stack([z, 3 * z]))[1]

    start = jnp.zeros((), jnp.int32), jnp.zeros((), jnp.float32)
    return jax.lax.while_loop(lambda state: state[0] < 2, step, start)[1]


@pytest.mark.parametrize("form", FORMS)
def test_every_form_under_transformations(form):
    z, y, m = some_batch(40)
    want, want_z, _ = test_multi_margin.oracle(z, y, m)
    loss = functools.partial(mmnp, labels=y, margins=m, algorithm=form)

    @functools.partial(jax.jit, compiler_options=QUICKLY)
    def results(z):
        value, gradient = jax.value_and_grad(lambda z: transformed(loss, z))(z)
        return value, looped(loss, z), gradient

    *values, gradient = results(z)
    assert want > 0
    np.testing.assert_allclose(values, want, rtol=1e-5)
    np.testing.assert_allclose(gradient, want_z, rtol=1e-3, atol=1e-6)


def test_transformations_over_devices():
    z, y, m = some_batch(40)
    want, want_z, _ = test_multi_margin.oracle(z, y, m)

    def own(z, y):
        loss = functools.partial(
            mmnp, labels=y, margins=m, algorithm="sorted", axis_name="data"
        )
        return transformed(loss, z), looped(loss, z)

    mesh, rows = sharding.make_mesh(DEVICES), P("data")
    spread = jax.shard_map(own, mesh=mesh, in_specs=(rows, rows), out_specs=P())
    both = jax.value_and_grad(lambda z: spread(z, y), has_aux=True)
    (value, again), gradient = jax.jit(both, compiler_options=QUICKLY)(z)
    np.testing.assert_allclose((value, again), want, rtol=1e-5)
    np.testing.assert_allclose(gradient, want_z, rtol=1e-3, atol=1e-6)


@pytest.mark.parametrize("form", FORMS)
def test_gradients_without_replication_checks_are_those_of_the_sum(form):
    """By pmap, and by a shard_map without checks of replication."""
    z, y, m = some_batch(32)

    def own(z, y, m):
        def loss(z, m):
            return mmnp(z, y, m, algorithm=form, axis_name="data")

        value, (by_z, by_m) = jax.value_and_grad(loss, (0, 1))(z, m)
        return value, by_z / DEVICES, jax.lax.pmean(by_m, "data")

    def share(x):
        return x.reshape(DEVICES, -1, *x.shape[1:])

    by_pmap = jax.pmap(own, axis_name="data", in_axes=(0, 0, None))
    value, by_z, by_m = by_pmap(share(z), share(y), m)
    by_shard_map = jax.shard_map(
        own,
        mesh=sharding.make_mesh(DEVICES),
        in_specs=(P("data"), P("data"), P()),
        out_specs=(P(), P("data"), P()),
        check_vma=False,
    )
    for got in (
        (value[0], by_z.reshape(z.shape), by_m[0]),
        jax.jit(by_shard_map, compiler_options=QUICKLY)(z, y, m),
    ):
        for one, want in zip(got, test_multi_margin.oracle(z, y, m), strict=True):
            np.testing.assert_allclose(one, want, rtol=1e-3, atol=1e-6)


# --- values that embeddings and padding may have ---


@pytest.mark.parametrize(
    "form",
    ("auto", *(pytest.param(form, marks=pytest.mark.slow) for form in FORMS)),
)
def test_only_directions_count_at_any_scale(form):
    scales = [1e-30, 1e-18, 1e-13, 1e-4, 1e4, 1e12, 1e19, 1e30]
    batches = [some_batch(12, seed) for seed in range(120)]
    z, y, m = map(np.stack, zip(*batches, strict=True))
    oracle = (test_multi_margin.oracle(*batch) for batch in batches)
    want, gradient, _ = map(np.stack, zip(*oracle, strict=True))
    loss = jax.vmap(jax.value_and_grad(functools.partial(mmnp, algorithm=form)))
    loss = jax.jit(loss, compiler_options=QUICKLY)
    count = 0
    for scale in np.asarray(scales, np.float32):
        got, found = loss(z * scale, y, m)
        np.testing.assert_allclose(got, want, rtol=1e-5)
        # A triplet less than a last digit from its margin may count or not.
        found = np.asarray(found, np.float64) * float(scale)
        is_close = np.abs(found - gradient) < 1e-4 * np.abs(gradient).max()
        count += is_close.all(axis=(1, 2)).sum()
    print(f"{form}: {count} of {len(scales) * len(y)} batches")
    assert count > 0.98 * len(scales) * len(y)


# --- what is refused ---


def test_labels_that_are_no_ranks_are_refused_or_nan():
    z, y, m = some_batch(20)
    for labels in (y + 1, y - 1):
        with pytest.raises(ValueError, match="4 margins and labels from"):
            mmnp(z, labels, m)
        value, gradient = jax.jit(jax.value_and_grad(mmnp))(z, labels, m)
        assert np.isnan(value) and np.isnan(gradient).any()
        where = (labels >= 0) & (labels <= 4)
        assert np.isfinite(jax.jit(mmnp)(z, labels, m, where=where))


Z, Y, M = some_batch(20)
CROPS = {"student_temperature": 0.1, "teacher_temperature": 0.04}
GOL = {"margin": 0.25, "tau": 1}
GAUSSIANS = np.zeros((20, 2), np.float32)


@pytest.mark.parametrize(
    "loss, given, options, message",
    [
        (mmnp, (Z, Y, M[:3]), {}, "3 margins and labels from 0 to 4"),
        (mmnp, (Z, Y, M), {"reduction": "sum"}, "reduction 'sum' is unknown"),
        (mmnp, (Z, Y, M), {"algorithm": "fast"}, "'fast' is unknown; .*'sorted'"),
        (mmnp, (Z, Y[:3], M), {}, r"labels of shape \(3,\)"),
        (mmnp, (Z, Y, np.eye(2)), {}, r"margins of shape \(2, 2\)"),
        (losses.soft_labels, (3, "cubed"), {}, "cubed"),
        (losses.weighted_kappa, (Z, Y), {"penalty": "cubed"}, "cubed"),
        (
            poe_terms,
            (Z[None], GAUSSIANS, GAUSSIANS, Y),
            {"margin": 2.0, "distance": "geodesic"},
            "geodesic",
        ),
        (losses.cumulative_link, (Z[:, 0], M[:0], Y), {}, "at least one"),
        (losses.dino, (Z[:8], Z[:16], Z[:1]), CROPS | {"crops": 1}, "crops"),
        (losses.dino, (Z, Z[:16], Z[:1]), CROPS | {"crops": 3}, "crops"),
        (gol_terms, (Z, Z[:1], Y, Y, Y), GOL | {"num_ranks": 5}, "at least two"),
        (gol_terms, (Z, Z[:5], Y, Y, Y), GOL | {"num_ranks": 1}, "at least two"),
    ],
)
def test_refused(loss, given, options, message):
    # Unwrapped: in tests a shape checker stands before the function.
    with pytest.raises((ValueError, KeyError), match=message):
        inspect.unwrap(loss)(*given, **options)
