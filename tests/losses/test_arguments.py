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


def _nested(*transforms):
    """The last one is the innermost."""
    return lambda loss, z: functools.reduce(
        lambda inner, transform: functools.partial(transform, inner),
        reversed(transforms),
        loss,
    )(z)


def _checkpointed(loss, z):
    return jax.checkpoint(loss)(z)


# Two in which each of them takes part, for all tests; then each by itself.
TOGETHER = {
    "checkpoint in scan in vmap": _nested(_mapped, _scanned, _checkpointed),
    "vmap in while": _nested(_looped, _mapped),
}
TRANSFORMED = TOGETHER | {
    "jit": lambda loss, z: jax.jit(loss)(z),
    "vmap": _mapped,
    "scan": _scanned,
    "while": _looped,
    "checkpoint": _checkpointed,
    "vmap in scan": _nested(_scanned, _mapped),
    "scan in checkpoint": _nested(_checkpointed, _scanned),
}
AMOUNT = [TOGETHER, pytest.param(TRANSFORMED, marks=pytest.mark.slow)]
AMOUNT = pytest.mark.parametrize("transforms", AMOUNT, ids=["together", "all"])


def assert_results(got, want, name):
    """A value, and gradients unless it is that of a while loop, which has none."""
    value, *gradients = got
    np.testing.assert_allclose(value, want[0], rtol=1e-5, err_msg=name)
    assert len(gradients) == (0 if "while" in name else len(want) - 1)
    for gradient, wanted in zip(gradients, want[1:], strict="while" not in name):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-3, atol=1e-6, err_msg=name)


def results_of(name, loss, *arguments):
    """Value and gradients; the value alone of a while loop."""
    if "while" in name:
        return (loss(*arguments),)
    value, gradients = jax.value_and_grad(loss, range(len(arguments)))(*arguments)
    return value, *gradients


@AMOUNT
@pytest.mark.parametrize("form", FORMS)
def test_every_form_under_transformations(form, transforms):
    z, y, m = some_batch(40)
    want = test_multi_margin.oracle(z, y, m)[:2]
    loss = functools.partial(mmnp, labels=y, margins=m, algorithm=form)

    def results(z):
        return {
            name: results_of(name, functools.partial(transform, loss), z)
            for name, transform in transforms.items()
        }

    found = jax.jit(results, compiler_options=QUICKLY)(z)
    assert want[0] > 0 and len(found) == len(transforms)
    for name, got in found.items():
        assert_results(got, want, name)


def unreplicated(own, z, y, m):
    """Results of devices that sum up their gradients, brought to those of the loss.

    By pmap, and by a shard_map without checks of replication.
    """

    def corrected(z, y, m):
        value, *gradients = own(z, y, m)
        return value, gradients[0] / DEVICES, jax.lax.pmean(gradients[1], "data")

    def share(x):
        return x.reshape(DEVICES, -1, *x.shape[1:])

    by_pmap = jax.pmap(corrected, axis_name="data", in_axes=(0, 0, None))
    value, *gradients = by_pmap(share(z), share(y), m)
    by_shard_map = jax.shard_map(
        corrected,
        mesh=sharding.make_mesh(DEVICES),
        in_specs=(P("data"), P("data"), P()),
        out_specs=(P(), P("data"), P()),
        check_vma=False,
    )
    return [
        (value[0], gradients[0].reshape(z.shape), gradients[1][0]),
        jax.jit(by_shard_map, compiler_options=QUICKLY)(z, y, m),
    ]


@pytest.mark.parametrize("form", FORMS)
def test_gradients_without_replication_checks_are_those_of_the_sum(form):
    z, y, m = some_batch(32)

    def own(z, y, m):
        return results_of(
            "",
            lambda z, m: mmnp(z, y, m, algorithm=form, axis_name="data"),
            z,
            m,
        )

    for got in unreplicated(own, z, y, m):
        assert_results(got, test_multi_margin.oracle(z, y, m), "")


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
