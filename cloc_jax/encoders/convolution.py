"""Convolution with gradients as matrix products on CPUs, and as XLA has it elsewhere.

XLA's gradients of a convolution are convolutions whose windows are as large as the
image or have holes, and on a CPU those are slow. Here a k x k convolution is a sum over
the k x k places of the window, each a matrix product of a shifted image with one
[inputs, outputs] slice of the kernel. XLA's convolution is kept where it is good, for
windows above 1x1 in the forward pass and, with stride 1, for the image's gradient.

CPUs that multiply bfloat16 can do so at twice the speed of float32. XLA does only for
products whose factors are [rows, inputs] and [inputs, outputs] in memory and whose
result is float32; all others, convolutions too, it computes in float32. So in bfloat16
all is such products, except windows over few channels.

The platform is that which a program is lowered for, not the one that traces it.
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

# Channels from which on products in bfloat16 beat XLA's convolution in float32.
MANY_CHANNELS = 256

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
    by_xla = functools.partial(_convolve_by_xla, stride, pad)
    by_products = functools.partial(_convolve_by_products, stride, pad)
    if kernel.shape[0] > 1 and not _has_fast_products(x):
        return by_xla(x, kernel)
    if _is_for_cpu.get():
        return by_products(x, kernel)
    return lax.platform_dependent(x, kernel, cpu=by_products, default=by_xla)


def _convolve_by_xla(stride, pad, x, kernel):
    return lax.conv_general_dilated(
        x,
        kernel,
        (stride, stride),
        ((pad, pad), (pad, pad)),
        dimension_numbers=("NHWC", "HWIO", "NHWC"),
    )


def _has_fast_products(x) -> bool:
    return x.dtype == jnp.bfloat16 and x.shape[-1] >= MANY_CHANNELS


def _convolve_by_products(stride, pad, x, kernel):
    window = kernel.shape[0]
    if window > 1 and not _has_fast_products(x):
        return _convolve_by_xla(stride, pad, x, kernel)
    padded = _padded(x, pad)
    height, width = (
        (n + 2 * pad - window) // stride * stride + 1 for n in x.shape[1:3]
    )
    places = [
        _product(padded[:, i : i + height : stride, j : j + width : stride], slice_)
        for i, row in enumerate(kernel)
        for j, slice_ in enumerate(row)
    ]
    return sum(places[1:], places[0]).astype(x.dtype)


def _product(rows, columns):
    """Sums over the last axis of one and the first of the other, in float32 or more."""
    precise = jnp.promote_types(rows.dtype, jnp.float32)
    axes = (((rows.ndim - 1,), (0,)), ((), ()))
    return lax.dot_general(rows, columns, axes, preferred_element_type=precise)


def _padded(x, pad):
    return jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0))) if pad else x


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
    of_image = functools.partial(_convolve_by_xla, stride, pad, kernel=kernel)
    of_kernel = functools.partial(_convolve_by_xla, stride, pad, x)
    return (
        *jax.linear_transpose(of_image, x)(gradient),
        *jax.linear_transpose(of_kernel, kernel)(gradient),
    )


def _gradients_by_products(stride, pad, x, kernel, gradient):
    of_kernel = _kernel_gradient(stride, pad, x, kernel, gradient)
    if stride == 1 and kernel.shape[0] > 1:
        # Nothing was left out, so it is a convolution like any other.
        turned = _transposed(jnp.flip(kernel, (0, 1)), (0, 1, 3, 2))
        around = kernel.shape[0] - 1 - pad
        return _convolve_by_products(1, around, gradient, turned), of_kernel
    return _image_gradient(stride, pad, x, kernel, gradient), of_kernel


def _kernel_gradient(stride, pad, x, kernel, gradient):
    window, _, inputs, outputs = kernel.shape
    padded = _padded(x, pad)
    rows, columns = ((n - 1) * stride + 1 for n in gradient.shape[1:3])
    # XLA copies the left factor of these products, transposed. Gradients on the left
    # are copied once for all places, and if they are narrower for less.
    is_turned = (window > 1 or outputs < inputs) and x.dtype != jnp.bfloat16
    places = []
    for i in range(window):
        for j in range(window):
            shifted = padded[:, i : i + rows : stride, j : j + columns : stride]
            if is_turned:
                places.append(jnp.einsum("bhwo,bhwi->oi", gradient, shifted).T)
            elif x.dtype != jnp.bfloat16:
                places.append(jnp.einsum("bhwi,bhwo->io", shifted, gradient))
            else:
                turned = _transposed(shifted, (3, 0, 1, 2)).reshape(inputs, -1)
                places.append(_product(turned, gradient.reshape(-1, outputs)))
    return jnp.stack(places).reshape(kernel.shape).astype(kernel.dtype)


def _transposed(x, axes):
    """x transposed; in bfloat16 so that XLA does not make that a part of a product.

    It would compute such products in float32, or refuse them.
    """
    turned = x.transpose(axes)
    return lax.optimization_barrier(turned) if x.dtype == jnp.bfloat16 else turned


def _image_gradient(stride, pad, x, kernel, gradient):
    batch, height, width, inputs = x.shape
    height, width = height + 2 * pad, width + 2 * pad
    rows, columns = ((n - 1) * stride + 1 for n in gradient.shape[1:3])
    precise = jnp.promote_types(x.dtype, jnp.float32)
    zero = jnp.zeros((), precise)
    total = jnp.zeros((batch, height, width, inputs), precise)
    turned = _transposed(kernel, (0, 1, 3, 2))
    for i in range(kernel.shape[0]):
        for j in range(kernel.shape[1]):
            # Back to the places that the product was made from.
            places = (
                (0, 0, 0),
                (i, height - i - rows, stride - 1),
                (j, width - j - columns, stride - 1),
                (0, 0, 0),
            )
            total = total + lax.pad(_product(gradient, turned[i, j]), zero, places)
    return total[:, pad : height - pad, pad : width - pad].astype(x.dtype)


convolve.defvjp(_forward, _backward)
