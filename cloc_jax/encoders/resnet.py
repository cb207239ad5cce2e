"""ResNet-18, 34 and 50 (He et al., 2016)."""

import jax
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import layers

STRIDES = ("3x3", "1x1")
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


def make_parts(
    architecture: str, stride: str, conv: layers.Make, norm: layers.Make
) -> tuple[dict[str, nnx.Module], int]:
    """A stem and four layers of residual blocks, and the width of the last.

    `stride` is which convolution of a downsampling bottleneck has its stride: "3x3" as
    in torchvision ("version 1.5"), or "1x1", the first one, as in the paper and Keras.
    Shapes do not show it. ResNet-18 and 34 have no such choice.
    """
    is_deep = architecture == "resnet50"
    parts: dict[str, nnx.Module] = {"stem": layers.Stem(conv, norm)}
    inputs = 64
    for number, count in enumerate(BLOCKS[architecture], 1):
        width = 32 * 2**number
        blocks: list[Basic | Bottleneck] = []
        for index in range(count):
            step = 2 if number > 1 and index == 0 else 1
            if is_deep:
                steps = (step, 1) if stride == "1x1" else (1, step)
                blocks.append(Bottleneck(inputs, width, steps, conv, norm))
            else:
                blocks.append(Basic(inputs, width, step, conv, norm))
            inputs = 4 * width if is_deep else width
        parts[f"layer{number}"] = layers.Chain(blocks)
    return parts, inputs


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
