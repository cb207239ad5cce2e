"""Batch norm: of the whole batch, of parts of it, or by what the weights have."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_runs import tiny

from cloc_jax.encoders import layers
from cloc_jax.runtime import sharding
from cloc_jax.training import assembly, encoder

RNG = np.random.default_rng(0)
IMAGES = jnp.asarray(RNG.normal(2.0, 3.0, size=(8, 3, 5, 4)), jnp.float32)


def norm(*, groups=1, is_frozen=False):
    made = layers.BatchNorm(4, momentum=0.9, rngs=nnx.Rngs(0))
    made.scale[...] = jnp.asarray([1.0, 2.0, 0.5, -1.0], jnp.float32)
    made.bias[...] = jnp.arange(4, dtype=jnp.float32)
    layers.set_statistics(made, groups=groups, is_frozen=is_frozen)
    return made


def test_parts_are_normalised_as_if_each_were_the_batch():
    ours = norm(groups=4)
    y = ours(IMAGES)
    alone = [norm() for _ in range(4)]
    parts = [f(x) for f, x in zip(alone, jnp.split(IMAGES, 4), strict=True)]
    np.testing.assert_allclose(y, jnp.concatenate(parts), rtol=1e-5, atol=1e-5)
    for name in ("mean", "var"):
        theirs = np.mean([np.asarray(getattr(f, name)[...]) for f in alone], axis=0)
        np.testing.assert_allclose(getattr(ours, name)[...], theirs, rtol=1e-5)


def test_gradients_stay_within_a_part():
    def first_part(x):
        return jnp.sum(norm(groups=2)(x)[:4] ** 3)

    gradient = jax.grad(first_part)(IMAGES)
    assert np.abs(gradient[:4]).max() > 0.01
    np.testing.assert_array_equal(gradient[4:], 0)


def test_frozen_statistics_neither_move_nor_follow_the_batch():
    ours = norm(is_frozen=True)
    expected = norm()(IMAGES, use_running_average=True)
    np.testing.assert_array_equal(ours(IMAGES), expected)
    np.testing.assert_array_equal(ours.mean[...], 0)
    np.testing.assert_array_equal(ours.var[...], 1)


def test_evaluation_is_the_same_for_all():
    expected = norm()(IMAGES, use_running_average=True)
    for made in (norm(groups=4), norm(is_frozen=True)):
        seen = nnx.view(made, use_running_average=True)(IMAGES)
        np.testing.assert_array_equal(seen, expected)
        assert made(IMAGES.astype(jnp.bfloat16)).dtype == jnp.bfloat16


@pytest.mark.parametrize(
    "kind, groups, is_frozen",
    [("global", 1, False), ("device", 4, False), ("frozen", 1, True)],
)
def test_the_setting_reaches_every_layer(kind, groups, is_frozen):
    config = tiny(encoder__batch_norm=kind)
    method = assembly.build_method(config, 5, sharding.make_mesh(1))
    creator = encoder.Creator(config, method, 4)
    found = [
        (m.groups, m.is_frozen)
        for _, m in nnx.iter_modules(nnx.eval_shape(creator.random))
        if isinstance(m, layers.BatchNorm)
    ]
    assert len(found) == 9 and set(found) == {(groups, is_frozen)}
