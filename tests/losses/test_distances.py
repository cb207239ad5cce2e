"""Distances and their gradients, where they are 0 too."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.test_util import check_grads

from cloc_jax.losses import geometry

RNG = np.random.default_rng(0)


def test_distances_and_their_derivatives_of_both_modes():
    a, b = RNG.normal(size=(4, 3)), RNG.normal(size=(2, 3))
    with jax.enable_x64():
        arguments = jnp.asarray(a), jnp.asarray(b)
        found = geometry.euclidean(*arguments)
        check_grads(jax.jit(geometry.euclidean), arguments, order=2)
    want = np.linalg.norm(a[:, None] - b[None], axis=2)
    np.testing.assert_allclose(found, want, rtol=1e-14)


def test_derivatives_are_finite_where_the_distance_is_0():
    a = jnp.asarray(RNG.normal(size=(3, 2)), jnp.float32).at[1].set(0.5).at[2].set(0.5)

    @jax.jit
    def results(a):
        def total(a):
            return jnp.sum(geometry.euclidean(a, a))

        same = jax.grad(total)(a[1:])
        return (
            geometry.euclidean(a, a),
            jax.grad(total)(a),
            jax.hessian(total)(a),
            same,
        )

    found, gradient, hessian, same = results(a)
    assert found[1, 2] == 0 and not same.any()
    assert np.isfinite(gradient).all() and np.isfinite(hessian).all()


def test_neighbours_far_from_0_keep_their_digits():
    a = np.float32(1000 + RNG.normal(size=(5, 4)) / 16)
    want = np.linalg.norm(np.float64(a[:, None]) - a[None], axis=2)
    found = geometry.euclidean(jnp.asarray(a), jnp.asarray(a))
    np.testing.assert_allclose(found, want, rtol=1e-6)


def test_square_root_has_gradient_0_at_0():
    x = jnp.asarray([0.0, 4.0])
    np.testing.assert_allclose(geometry.sqrt(x), [0, 2])
    gradient = jax.grad(lambda x: jnp.sum(geometry.sqrt(x)))(x)
    np.testing.assert_allclose(gradient, [0, 0.25])
