"""Convolution by matrix products: XLA's value and gradients, for every shape."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax import lax

from cloc_jax.encoders.convolution import convolve


def reference(x, kernel, stride, pad):
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


@pytest.mark.parametrize("size", [(8, 8), (7, 10)])
@pytest.mark.parametrize(
    "window, stride, pad", [(1, 1, 0), (1, 2, 0), (3, 1, 1), (3, 2, 1)]
)
def test_value_and_gradients(size, window, stride, pad):
    rng = np.random.default_rng(0)
    x = jnp.asarray(rng.normal(size=(2, *size, 3)), jnp.float32)
    kernel = jnp.asarray(rng.normal(size=(window, window, 3, 4)), jnp.float32)
    results = []
    for function in (convolve, reference):
        y, back = jax.vjp(lambda x, k, f=function: f(x, k, stride, pad), x, kernel)
        direction = jnp.asarray(rng.normal(size=y.shape), jnp.float32)
        direction = results[0][3] if results else direction
        results.append((y, *back(direction), direction))
    for ours, theirs in zip(*results, strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("window, stride, pad", [(1, 2, 0), (3, 1, 1)])
@pytest.mark.parametrize(
    "how, inputs, outputs",
    [("alone", 24, 256), ("vmap", 256, 512), ("two devices", 256, 512)],
)
def test_bfloat16_is_as_exact_as_its_inputs(window, stride, pad, inputs, outputs, how):
    """XLA refuses some products of this type, but only when they run."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=(4, 5, 6, inputs))
    kernel = rng.normal(size=(window, window, inputs, outputs)) / window
    x, kernel = (jnp.asarray(a, jnp.bfloat16) for a in (x, kernel))
    weight = jnp.asarray(rng.normal(size=outputs), jnp.float32)

    def loss(function, x, kernel):
        y = function(x, kernel, stride, pad)
        return jnp.mean(y.astype(jnp.float32) * weight[None, None, None]), y

    def all_of(function, x, kernel):
        one = functools.partial(loss, function)
        gradients, y = jax.grad(one, (0, 1), has_aux=True)(x, kernel)
        return y, *gradients

    expected = all_of(reference, *(a.astype(jnp.float32) for a in (x, kernel)))
    ours = functools.partial(all_of, convolve)
    if how == "vmap":
        both = jax.jit(jax.vmap(ours))(jnp.stack([x, x]), jnp.stack([kernel, kernel]))
        found = [a[1] for a in both]
    elif how == "two devices":
        mesh = jax.make_mesh((2,), ("batch",), (jax.sharding.AxisType.Auto,))
        split = jax.NamedSharding(mesh, jax.P("batch"))
        found = jax.jit(ours)(jax.device_put(x, split), kernel)
    else:
        found = jax.jit(ours)(x, kernel)
    for own, theirs in zip(found, expected, strict=True):
        assert own.dtype == jnp.bfloat16
        # Sums are exact to float32 or nearly; the result is rounded to 8 bits, and so
        # is the gradient that enters the others.
        scale = float(jnp.max(jnp.abs(theirs)))
        np.testing.assert_allclose(
            np.asarray(own, np.float32) / scale, theirs / scale, atol=2**-7
        )
