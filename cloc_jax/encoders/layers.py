"""Layers the encoders share.

Paddings are explicit: "SAME" pads strided windows by the size of the image, unevenly,
and is not what the pretrained networks did. `dtype` is the type of the computation;
parameters and statistics are float32 in any case.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import convolution

Activations = Float[Array, "batch _ _ _"]  # height, width, features


class Make(NamedTuple):
    """What makes the layers of a network, with its settings."""

    conv: Callable[..., "Conv"]
    norm: Callable[..., "BatchNorm"]
    linear: Callable[..., nnx.Linear]


class Conv(nnx.Conv):
    """nnx.Conv, with `convolution.convolve` in its place where that pays on a CPU."""

    def __call__(self, x: Activations) -> Activations:  # type: ignore[override]
        # Many products of few channels are no gain, and take long to compile.
        window = self.kernel_size[0]
        pays = window == 1 or (window == 3 and self.in_features >= 128)
        if not pays:
            return super().__call__(x)
        kernel = self.kernel[...].astype(self.dtype)
        stride: Any = self.strides  # as `conv` gave it, one number
        pad = kernel.shape[0] // 2
        y = convolution.convolve(x.astype(self.dtype), kernel, stride, pad)
        if self.bias is None:
            return y
        return y + self.bias[...].astype(self.dtype)[None, None, None]


def conv(
    inputs: int,
    outputs: int,
    kernel: int,
    *,
    stride: int = 1,
    bias: bool = False,
    dtype: str = "float32",
    rngs: nnx.Rngs,
) -> Conv:
    """A square convolution, padded so that stride 1 keeps the size."""
    pad = kernel // 2
    return Conv(
        inputs,
        outputs,
        (kernel, kernel),
        strides=stride,
        padding=((pad, pad), (pad, pad)),
        use_bias=bias,
        kernel_init=nnx.initializers.he_normal(),
        dtype=dtype,
        rngs=rngs,
    )


class BatchNorm(nnx.BatchNorm):
    """Batch norm computed in float32; gives back the type it got.

    nnx.BatchNorm with a dtype would round its statistics to it, and without one it
    would leave all activations behind it in float32. The running variance is the biased
    one, as Keras', where torch keeps the unbiased.

    Attributes:
      groups: equal parts of the batch that each get statistics of their own in
        training. Where every device holds one, statistics need no communication.
      is_frozen: normalise by the running statistics in training too.
    """

    groups = 1
    is_frozen = False

    def __call__(self, x, use_running_average=None, *, mask=None):
        given = use_running_average
        evaluates = self.use_running_average if given is None else given
        evaluates = evaluates or self.is_frozen
        if evaluates or self.groups == 1:
            return super().__call__(x, evaluates, mask=mask).astype(x.dtype)
        return self._by_groups(x)

    def _by_groups(self, x):
        """The batch normalised part by part; running statistics follow the mean."""
        parts = x.astype(jnp.float32).reshape(self.groups, -1, *x.shape[1:])
        axes = tuple(range(1, parts.ndim - 1))
        mean = jnp.mean(parts, axes, keepdims=True)
        var = jnp.mean(parts**2, axes, keepdims=True) - mean**2
        var = jnp.maximum(var, 0.0)  # rounding may take it below
        for running, of_parts in ((self.mean, mean), (self.var, var)):
            now = jnp.mean(jax.lax.stop_gradient(of_parts).reshape(self.groups, -1), 0)
            running[...] = self.momentum * running[...] + (1 - self.momentum) * now
        factor = jax.lax.rsqrt(var + self.epsilon)
        normal = ((parts - mean) * factor).reshape(x.shape)
        shape = (1,) * (x.ndim - 1) + (-1,)
        scale, bias = (p[...].reshape(shape) for p in (self.scale, self.bias))
        return (normal * scale + bias).astype(x.dtype)


def set_statistics(network: nnx.Module, *, groups: int, is_frozen: bool) -> None:
    """Sets what all batch norms of a network normalise by in training."""
    for _, module in nnx.iter_graph(network):
        if isinstance(module, BatchNorm):
            module.groups, module.is_frozen = groups, is_frozen


def max_pool(x: Activations, window: int, *, stride: int, pad: int = 0) -> Activations:
    """Largest value of each window; padding never wins."""
    # window_shape by name and padding apart from it: jax2onnx refuses the one and
    # passes over the other. XLA makes one window of both.
    if pad:
        edges = ((0, 0), (pad, pad), (pad, pad), (0, 0))
        x = jnp.pad(x, edges, constant_values=-jnp.inf)
    return nnx.max_pool(
        x, window_shape=(window, window), strides=(stride, stride), padding="VALID"
    )


def halve(x: Activations) -> Activations:
    """Average of each 2x2 window, without the last row or column of an odd size."""
    return nnx.avg_pool(x, window_shape=(2, 2), strides=(2, 2), padding="VALID")


def adaptive_average_pool(x: Activations, size: int) -> Activations:
    """Averages over size x size windows that cover an image of any size.

    As torch.nn.AdaptiveAvgPool2d: window i of n positions is floor(i n / size) up to
    ceil((i + 1) n / size), so windows can overlap, and repeat if the image is smaller.
    """
    rows, columns = (_windows(n, size, x.dtype) for n in x.shape[1:3])
    # Without it, some accelerators multiply with fewer bits than the activations have.
    precision = jax.lax.Precision.HIGHEST
    return jnp.einsum("ih,bhwc,jw->bijc", rows, x, columns, precision=precision)


def _windows(length: int, size: int, dtype) -> Float[Array, "size length"]:
    places = np.arange(size)
    start, end = places * length // size, -(-(places + 1) * length // size)
    positions = np.arange(length)
    inside = (start[:, None] <= positions) & (positions < end[:, None])
    return jnp.asarray(inside / (end - start)[:, None], dtype)


class Stem(nnx.Module):
    """The first layers of ResNet and DenseNet: a quarter of the size, 64 features."""

    def __init__(self, make: Make):
        self.conv = make.conv(3, 64, 7, stride=2)
        self.norm = make.norm(64)

    def __call__(self, x: Activations) -> Activations:
        x = jax.nn.relu(self.norm(self.conv(x)))
        return max_pool(x, 3, stride=2, pad=1)
