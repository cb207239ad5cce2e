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
    of_kernel = _kernel_gradient(stride, pad, x, kernel, gradient)
    if stride == 1 and kernel.shape[0] > 1:
        # Nothing was left out, so it is a convolution like any other.
        turned = jnp.flip(kernel, (0, 1)).swapaxes(2, 3)
        around = kernel.shape[0] - 1 - pad
        return _convolve_by_xla(gradient, turned, 1, around), of_kernel
    return _image_gradient(stride, pad, x, kernel, gradient), of_kernel


def _kernel_gradient(stride, pad, x, kernel, gradient):
    window, _, inputs, outputs = kernel.shape
    padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    rows, columns = ((n - 1) * stride + 1 for n in gradient.shape[1:3])
    # XLA copies the left factor of these products, transposed. Gradients on the left
    # are copied once for all places, and if they are narrower for less.
    is_turned = window > 1 or outputs < inputs
    places = []
    for i in range(window):
        for j in range(window):
            shifted = padded[:, i : i + rows : stride, j : j + columns : stride]
            if is_turned:
                places.append(jnp.einsum("bhwo,bhwi->oi", gradient, shifted).T)
            else:
                places.append(jnp.einsum("bhwi,bhwo->io", shifted, gradient))
    return jnp.stack(places).reshape(kernel.shape)


def _image_gradient(stride, pad, x, kernel, gradient):
    batch, height, width, inputs = x.shape
    height, width = height + 2 * pad, width + 2 * pad
    rows, columns = ((n - 1) * stride + 1 for n in gradient.shape[1:3])
    zero = jnp.zeros((), x.dtype)
    total = jnp.zeros((batch, height, width, inputs), x.dtype)
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            # Back to the places that the product was made from.
            places = (
                (0, 0, 0),
                (i, height - i - rows, stride - 1),
                (j, width - j - columns, stride - 1),
                (0, 0, 0),
            )
            total = total + lax.pad(gradient @ kernel[i, j].T, zero, places)
    return total[:, pad : height - pad, pad : width - pad]


convolve.defvjp(_forward, _backward)
