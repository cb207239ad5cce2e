"""ResNet-18, 34 and 50 (He et al., 2016)."""

from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import layers
from cloc_jax.encoders.backbone import Pretrainable

STRIDES = ("3x3", "1x1")
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


class ResNet(Pretrainable):
    """Residual blocks, averaged over the image.

    Args:
      architecture: "resnet18", "resnet34" or "resnet50".
      stride: which convolution of a downsampling bottleneck has its stride: "3x3" as
        in torchvision ("version 1.5"), or "1x1", the first one, as in the paper and
        Keras. Shapes do not show it. ResNet-18 and 34 have no such choice.
      options: those of `Pretrainable`.
    """

    def __init__(
        self, architecture: str, *, stride: str = "3x3", rngs: nnx.Rngs, **options: Any
    ):
        is_deep = architecture == "resnet50"
        if stride != STRIDES[0] and not is_deep:
            raise ValueError(
                f"encoder.stride is {stride!r}; {architecture} has {STRIDES[0]}."
            )
        super().__init__(
            architecture=architecture,
            parts=("stem", "layer1", "layer2", "layer3", "layer4"),
            features=2048 if is_deep else 512,
            **options,
        )
        self.stride = stride
        conv, norm = self.layer_makers(rngs)

        def layer(inputs: int, width: int, count: int, step: int) -> layers.Chain:
            blocks: list[Basic | Bottleneck] = []
            for first in [step] + [1] * (count - 1):
                if is_deep:
                    steps = (first, 1) if stride == "1x1" else (1, first)
                    blocks.append(Bottleneck(inputs, width, steps, conv, norm))
                else:
                    blocks.append(Basic(inputs, width, first, conv, norm))
                inputs = width * expansion
            return layers.Chain(blocks)

        expansion = 4 if is_deep else 1
        counts = BLOCKS[architecture]
        self.stem = layers.Stem(self.first_kernel(), conv, norm)
        self.layer1 = layer(64, 64, counts[0], 1)
        self.layer2 = layer(64 * expansion, 128, counts[1], 2)
        self.layer3 = layer(128 * expansion, 256, counts[2], 2)
        self.layer4 = layer(256 * expansion, 512, counts[3], 2)


class Basic(nnx.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(
        self, inputs: int, width: int, stride: int, conv: layers.Make, norm: layers.Make
    ):
        self.conv1 = conv(inputs, width, 3, stride=stride)
        self.norm1 = norm(width)
        self.conv2 = conv(width, width, 3)
        self.norm2 = norm(width)
        changes = stride != 1 or inputs != width
        self.shortcut = Shortcut(inputs, width, stride, conv, norm) if changes else None

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height2 width2 outputs"]:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return jax.nn.relu(y + (self.shortcut(x) if self.shortcut else x))


class Bottleneck(nnx.Module):
    """A 3x3 convolution between two 1x1, and a shortcut; four times as wide behind."""

    def __init__(
        self,
        inputs: int,
        width: int,
        strides: tuple[int, int],
        conv: layers.Make,
        norm: layers.Make,
    ):
        outputs, stride = 4 * width, max(strides)
        self.conv1 = conv(inputs, width, 1, stride=strides[0])
        self.norm1 = norm(width)
        self.conv2 = conv(width, width, 3, stride=strides[1])
        self.norm2 = norm(width)
        self.conv3 = conv(width, outputs, 1)
        self.norm3 = norm(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = (
            Shortcut(inputs, outputs, stride, conv, norm) if changes else None
        )

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height2 width2 outputs"]:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        y = jax.nn.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return jax.nn.relu(y + (self.shortcut(x) if self.shortcut else x))


class Shortcut(nnx.Module):
    """A 1x1 convolution where a block changes the size or the width."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int,
        conv: layers.Make,
        norm: layers.Make,
    ):
        self.conv = conv(inputs, outputs, 1, stride=stride)
        self.norm = norm(outputs)

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height2 width2 outputs"]:
        return self.norm(self.conv(x))
