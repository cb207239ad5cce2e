"""Convolution with gradients as matrix products on CPUs, and as XLA has it elsewhere.

XLA's gradients of a convolution are convolutions whose windows are as large as the
image or have holes, and on a CPU those are slow, most of all the gradient of a 1x1
kernel, which is no more than a matrix product. Here a k x k convolution is a sum over
the k x k places of the window, each a matrix product of a shifted image with one
[inputs, outputs] slice of the kernel. XLA's convolution is kept where it is good, for
windows above 1x1 in the forward pass and, with stride 1, for the image's gradient.

The platform is that which a program is lowered for, which need not be the one that
traces it: a step may be compiled, and a trained network exported, for a GPU or a TPU
on a machine that has none.
"""

import contextlib
import contextvars
import functools
from collections.abc import Iterator

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Images = Float[Array, "batch height width inputs"]
Kernel = Float[Array, "window window inputs outputs"]
Result = Float[Array, "batch height2 width2 outputs"]

_is_for_cpu = contextvars.ContextVar("is_for_cpu", default=False)


@contextlib.contextmanager
def for_cpu() -> Iterator[None]:
    """What is traced within it has the form for CPUs and no choice by platform.

    For tools that read traced programs and do not know such choices.
    """
    token = _is_for_cpu.set(True)
    try:
        yield
    finally:
        _is_for_cpu.reset(token)


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolve(x: Images, kernel: Kernel, stride: int, pad: int) -> Result:
    """The convolution of x, padded by zeros on all sides."""

    def by_xla(x, kernel):
        return _convolve_by_xla(x, kernel, stride, pad)

    def as_product(x, kernel):
        return x[:, ::stride, ::stride] @ kernel[0, 0]

    if kernel.shape[0] > 1 or pad:
        return by_xla(x, kernel)
    if _is_for_cpu.get():
        return as_product(x, kernel)
    return lax.platform_dependent(x, kernel, cpu=as_product, default=by_xla)


def _convolve_by_xla(x, kernel, stride, pad):
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _forward(x, kernel, stride, pad):
    return convolve(x, kernel, stride, pad), (x, kernel)


def _backward(stride, pad, saved, gradient):
    return lax.platform_dependent(
        *saved,
        gradient,
        cpu=functools.partial(_gradients_by_products, stride, pad),
        default=functools.partial(_gradients_by_xla, stride, pad),
    )


def _gradients_by_xla(stride, pad, x, kernel, gradient):
    def transposed(of, argument):
        return jax.linear_transpose(of, argument)(gradient)[0]

    return (
        transposed(lambda x: _convolve_by_xla(x, kernel, stride, pad), x),
        transposed(lambda kernel: _convolve_by_xla(x, kernel, stride, pad), kernel),
    )


def _gradients_by_products(stride, pad, x, kernel, gradient):
    window = kernel.shape[0]
    padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    batch, height, width, inputs = padded.shape
    rows, columns = ((n - 1) * stride + 1 for n in gradient.shape[1:3])
    # Where nothing was left out, the image's gradient is a convolution like any other.
    is_plain = stride == 1 and window > 1
    of_x = jnp.zeros_like(padded)
    of_kernel = []
    # XLA copies the left factor of the kernel's products, transposed. Gradients on the
    # left are copied once for all places, and if they are narrower for less.
    is_turned = window > 1 or kernel.shape[3] < inputs
    for i in range(window):
        for j in range(window):
            shifted = lax.slice(
                padded,
                (0, i, j, 0),
                (batch, i + rows, j + columns, inputs),
                (1, stride, stride, 1),
            )
            if is_turned:
                of_kernel.append(jnp.einsum("bhwo,bhwi->oi", gradient, shifted).T)
            else:
                of_kernel.append(jnp.einsum("bhwi,bhwo->io", shifted, gradient))
            if is_plain:
                continue
            # Back to the places that this slice was taken from.
            places = (
                (0, 0, 0),
                (i, height - i - rows, stride - 1),
                (j, width - j - columns, stride - 1),
                (0, 0, 0),
            )
            zero = jnp.zeros((), x.dtype)
            of_x = of_x + lax.pad(gradient @ kernel[i, j].T, zero, places)
    if is_plain:
        turned = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)
        inner = _convolve_by_xla(gradient, turned, 1, window - 1 - pad)
    else:
        inner = of_x[:, pad : height - pad, pad : width - pad]
    return inner, jnp.stack(of_kernel).reshape(kernel.shape)


convolve.defvjp(_forward, _backward)
