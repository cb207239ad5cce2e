"""From uint8 images to what a network was trained on, by name.

Weights are bound to the preprocessing they were trained with; with another one they
still run, and are wrong. So it belongs to the encoder and has a name that weight files
state.
"""

from typing import NamedTuple

import jax.numpy as jnp
from jaxtyping import Array, Float, UInt8


class Preprocessing(NamedTuple):
    """(pixel / unit - mean) / std, channels in the network's own order."""

    order: str  # "rgb" or "bgr"
    unit: float  # the pixel value that becomes 1
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


PREPROCESSINGS = {
    # torchvision and timm.
    "imagenet_rgb": Preprocessing(
        "rgb", 255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ),
    # Caffe, and from it the ResNets v1 of Keras.
    "caffe_bgr": Preprocessing("bgr", 1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0)),
    "signed": Preprocessing("rgb", 127.5, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
}


def normalise(
    images: UInt8[Array, "batch height width channels"], preprocessing: str
) -> Float[Array, "batch height width 3"]:
    """The network's input; a grey image is the same in all colours."""
    order, unit, mean, std = PREPROCESSINGS[preprocessing]
    x = images.astype(jnp.float32) / unit
    if images.shape[-1] == 1:
        x = jnp.repeat(x, 3, -1)
    elif order == "bgr":
        x = x[..., ::-1]
    return (x - _row(mean)) / _row(std)


def _row(values: tuple[float, float, float]) -> Float[Array, "1 1 1 3"]:
    return jnp.array(values, jnp.float32).reshape(1, 1, 1, 3)
