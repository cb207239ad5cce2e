"""Operations counted by hand, and those that XLA counts."""

import jax
import jax.numpy as jnp
import pytest
from jax import lax

from cloc_jax.bench import jaxpr_flops
from cloc_jax.encoders.convolution import convolve
from cloc_jax.runtime import sharding

X = jax.ShapeDtypeStruct((8, 16), jnp.float32)
IMAGES = jax.ShapeDtypeStruct((2, 6, 6, 4), jnp.float32)
KERNEL = jax.ShapeDtypeStruct((1, 1, 4, 8), jnp.float32)


def flops(function, *shapes, platform="cpu"):
    return jaxpr_flops.count(jax.jit(function).trace(*shapes).jaxpr, platform)


def test_products_by_hand():
    assert flops(lambda x: x @ x.T, X) == 2 * 8 * 16 * 8
    assert flops(lambda x: lax.fori_loop(0, 5, lambda i, y: x @ (x.T @ y), x), X) == (
        5 * 2 * (2 * 8 * 16 * 16)
    )


def test_the_platform_chooses_the_branch():
    def both(x):
        once, twice = (lambda x: x @ x.T), (lambda x: 2 * (x @ x.T) @ (x @ x.T))
        return lax.platform_dependent(x, cpu=once, default=twice)

    assert flops(both, X) == 2048
    assert flops(both, X, platform="cuda") > 2 * 2048


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_a_1x1_convolution_costs_the_same_in_both_forms(platform):
    def step(x, kernel):
        return jax.grad(lambda *a: jnp.sum(convolve(*a, 1, 0) ** 2), (0, 1))(x, kernel)

    assert flops(step, IMAGES, KERNEL, platform=platform) == 3 * 2 * (2 * 36 * 4 * 8)


def test_devices_are_added_up():
    mesh = sharding.make_mesh(8)
    product = sharding.over_batch(
        lambda z, y, m, where, axis_name: lax.psum(jnp.sum(z @ z.T), axis_name), mesh
    )
    y = jax.ShapeDtypeStruct((8,), jnp.float32)
    assert flops(product, X, y, y, y) == 8 * (2 * 1 * 16 * 1)


def test_as_xla_counts():
    def loss(x):
        return jnp.sum(jnp.tanh(x @ x.T) @ x)

    compiled = jax.jit(jax.grad(loss)).lower(X).compile().cost_analysis()
    assert flops(jax.grad(loss), X) == pytest.approx(compiled["flops"], rel=0.3)
