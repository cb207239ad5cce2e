"""Convolution with gradients as matrix products, for CPUs.

XLA's gradients of a convolution are convolutions whose windows are as large as the
image or have holes, and on a CPU those are slow, most of all the gradient of a 1x1
kernel, which is no more than a matrix product. Here a k x k convolution is a sum over
the k x k places of the window, each a matrix product of a shifted image with one
[inputs, outputs] slice of the kernel. XLA's forward pass is kept where it is good, for
windows above 1x1.
"""

import functools

import jax
import jax.numpy as jnp
from jax import lax
from jaxtyping import Array, Float

Images = Float[Array, "batch height width inputs"]
Kernel = Float[Array, "window window inputs outputs"]
Result = Float[Array, "batch height2 width2 outputs"]


@functools.partial(jax.custom_vjp, nondiff_argnums=(2, 3))
def convolve(x: Images, kernel: Kernel, stride: int, pad: int) -> Result:
    """The convolution of x, padded by zeros on all sides."""
    if kernel.shape[0] == 1 and not pad:
        return x[:, ::stride, ::stride] @ kernel[0, 0]
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
    x, kernel = saved
    window = kernel.shape[0]
    padded = jnp.pad(x, ((0, 0), (pad, pad), (pad, pad), (0, 0)))
    batch, height, width, inputs = padded.shape
    rows, columns = ((n - 1) * stride + 1 for n in gradient.shape[1:3])
    of_x = jnp.zeros_like(padded)
    of_kernel = []
    for i in range(window):
        for j in range(window):
            shifted = lax.slice(
                padded,
                (0, i, j, 0),
                (batch, i + rows, j + columns, inputs),
                (1, stride, stride, 1),
            )
            of_kernel.append(jnp.einsum("bhwi,bhwo->io", shifted, gradient))
            # Back to the places that this slice was taken from.
            places = (
                (0, 0, 0),
                (i, height - i - rows, stride - 1),
                (j, width - j - columns, stride - 1),
                (0, 0, 0),
            )
            zero = jnp.zeros((), x.dtype)
            of_x = of_x + lax.pad(gradient @ kernel[i, j].T, zero, places)
    inner = of_x[:, pad : height - pad, pad : width - pad]
    return inner, jnp.stack(of_kernel).reshape(kernel.shape)


convolve.defvjp(_forward, _backward)
