"""A small residual network, for the quick start and for images without much detail."""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import layers
from cloc_jax.encoders.backbone import Backbone


class Block(nnx.Module):
    """Two 3x3 convolutions with a shortcut, as in ResNet-18."""

    def __init__(
        self, inputs: int, outputs: int, stride: int, dtype: str, *, rngs: nnx.Rngs
    ):
        conv = functools.partial(layers.conv, dtype=dtype, rngs=rngs)
        self.conv1 = conv(inputs, outputs, 3, stride=stride)
        self.norm1 = layers.norm(outputs, rngs=rngs)
        self.conv2 = conv(outputs, outputs, 3)
        self.norm2 = layers.norm(outputs, rngs=rngs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv(inputs, outputs, 1, stride=stride) if changes else None

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height2 width2 outputs"]:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return jax.nn.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class SmallResNet(Backbone):
    """A strided stem and one residual block a width, averaged over the image."""

    def __init__(
        self,
        *,
        channels: int,
        widths: tuple[int, ...] = (16, 32, 64, 128),
        rngs: nnx.Rngs,
        **options: Any,
    ):
        if len(widths) != 4 or min(widths) < 1:
            raise ValueError(
                f"encoder.widths is {tuple(widths)}; give the channels of the four "
                "layers, such as (16, 32, 64, 128)."
            )
        super().__init__(
            architecture="small",
            parts=("stem", "layer1", "layer2", "layer3", "layer4"),
            features=widths[-1],
            **options,
        )
        dtype = self.dtype
        self.stem = nnx.Sequential(
            layers.conv(channels, widths[0], 3, stride=2, dtype=dtype, rngs=rngs),
            layers.norm(widths[0], rngs=rngs),
            jax.nn.relu,
        )
        self.layer1 = Block(widths[0], widths[0], 1, dtype, rngs=rngs)
        self.layer2 = Block(widths[0], widths[1], 2, dtype, rngs=rngs)
        self.layer3 = Block(widths[1], widths[2], 2, dtype, rngs=rngs)
        self.layer4 = Block(widths[2], widths[3], 2, dtype, rngs=rngs)

    def prepare(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch height width channels"]:
        """Pixels from -1 to 1, as the preprocessing "signed" without its colours."""
        return images.astype(jnp.float32) / 127.5 - 1
