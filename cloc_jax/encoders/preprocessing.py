"""From uint8 images to what a network was trained on, by name.

Weights are bound to the preprocessing they were trained with; with another one they
still run, and are wrong. So it belongs to the encoder and has a name that weight files
state.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8

GREYS = ("repeat", "sum")


class Preprocessing(NamedTuple):
    """(pixel / unit - mean) / std, channels in the network's own order."""

    order: str  # "rgb" or "bgr"
    unit: float  # the pixel value that becomes 1
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


PREPROCESSINGS = {
    # torchvision, timm and, for some networks, Keras.
    "imagenet_rgb": Preprocessing(
        "rgb", 255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ),
    # Caffe, and from it Keras' ResNets v1 and VGGs.
    "caffe_bgr": Preprocessing("bgr", 1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0)),
    "signed": Preprocessing("rgb", 127.5, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
}


def normalise(
    images: UInt8[Array, "batch height width channels"], preprocessing: str, grey: str
) -> Float[Array, "batch height width planes"]:
    """The network's input: three colours, or for summed grey images two planes.

    A grey image is the same in all colours ("repeat"), or, three times cheaper and the
    same to rounding, normalised once and beside a plane of ones ("sum"), for a kernel
    that `sum_over_colours` made. The ones are there for the borders: colours have
    different means, so that a padded zero is no one grey value.
    """
    order, unit, mean, std = PREPROCESSINGS[preprocessing]
    x = images.astype(jnp.float32) / unit
    if images.shape[-1] == 1 and grey == "sum":
        x = (x - _average(mean)) / _average(std)
        return jnp.concatenate([x, jnp.ones_like(x)], -1)
    if images.shape[-1] == 1:
        x = jnp.repeat(x, 3, -1)
    elif order == "bgr":
        x = x[..., ::-1]
    return (x - _row(mean)) / _row(std)


def sum_over_colours(
    kernel: Float[Array, "height width 3 outputs"], preprocessing: str
) -> Float[Array, "height width 2 outputs"]:
    """The kernel on planes [x, 1] that does to grey what `kernel` does to colours.

    With a the average of the means m_c, and d that of the deviations s_c, the colours
    of a grey value v are (v - m_c) / s_c = x d / s_c + (a - m_c) / s_c, where
    x = (v - a) / d.
    """
    _, _, mean, std = PREPROCESSINGS[preprocessing]
    slope = _average(std) / _row(std).reshape(1, 1, 3, 1)
    offset = (_average(mean) - _row(mean)) / _row(std)
    return jnp.concatenate(
        [
            (kernel * slope).sum(2, keepdims=True),
            (kernel * offset.reshape(1, 1, 3, 1)).sum(2, keepdims=True),
        ],
        axis=2,
    )


def _row(values: tuple[float, float, float]) -> Float[Array, "1 1 1 3"]:
    return jnp.array(values, jnp.float32).reshape(1, 1, 1, 3)


def _average(values: tuple[float, float, float]) -> float:
    return sum(values) / len(values)
