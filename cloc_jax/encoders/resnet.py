"""ResNet-18, 34 and 50 (He et al., 2016), and a small network of the same blocks."""

from collections.abc import Callable

import jax
from flax import nnx

from cloc_jax.encoders.layers import Activations, Make, Stem

STRIDES = ("3x3", "1x1")
BLOCKS = {"resnet18": (2, 2, 2, 2), "resnet34": (3, 4, 6, 3), "resnet50": (3, 4, 6, 3)}


def make_parts(
    architecture: str, stride: str, make: Make
) -> tuple[dict[str, nnx.Module], int]:
    """A stem and four layers of residual blocks, and the width of the last.

    `stride` is which convolution of a downsampling bottleneck has its stride: "3x3" as
    in torchvision ("version 1.5"), or "1x1", the first one, as in the paper and Keras.
    Shapes do not show it. ResNet-18 and 34 have no such choice.
    """
    is_deep = architecture == "resnet50"
    parts: dict[str, nnx.Module] = {"stem": Stem(make)}
    inputs = 64
    for number, count in enumerate(BLOCKS[architecture], 1):
        width = 32 * 2**number
        blocks: list[Basic | Bottleneck] = []
        for index in range(count):
            step = 2 if number > 1 and index == 0 else 1
            if is_deep:
                steps = (step, 1) if stride == "1x1" else (1, step)
                blocks.append(Bottleneck(inputs, width, steps, make))
            else:
                blocks.append(Basic(inputs, width, step, make))
            inputs = 4 * width if is_deep else width
        parts[f"layer{number}"] = nnx.Sequential(*blocks)
    return parts, inputs


def make_small_parts(
    channels: int, widths: tuple[int, ...], make: Make
) -> tuple[dict[str, nnx.Module], int]:
    """A strided stem and one residual block per width; the width of the last.

    It is for the quick start and for images without much detail.
    """
    if len(widths) != 4 or min(widths) < 1:
        raise ValueError(
            f"encoder.widths is {widths}; give the channels of the four layers, such "
            "as (16, 32, 64, 128)."
        )

    def shortcut(inputs, outputs, stride, make):
        return make.conv(inputs, outputs, 1, stride=stride)  # without a norm

    inputs = widths[0]
    first = make.conv(channels, inputs, 3, stride=2)
    stem = nnx.Sequential(first, make.norm(inputs), jax.nn.relu)
    parts: dict[str, nnx.Module] = {"stem": stem}
    for number, width in enumerate(widths, 1):
        stride = 1 if number == 1 else 2
        parts[f"layer{number}"] = Basic(inputs, width, stride, make, shortcut)
        inputs = width
    return parts, inputs


class Shortcut(nnx.Module):
    """A 1x1 convolution where a block changes the size or the width."""

    def __init__(self, inputs: int, outputs: int, stride: int, make: Make):
        self.conv = make.conv(inputs, outputs, 1, stride=stride)
        self.norm = make.norm(outputs)

    def __call__(self, x: Activations) -> Activations:
        return self.norm(self.conv(x))


class Basic(nnx.Module):
    """Two 3x3 convolutions and a shortcut."""

    def __init__(
        self,
        inputs: int,
        width: int,
        stride: int,
        make: Make,
        shortcut: Callable[..., nnx.Module] = Shortcut,
    ):
        self.conv1 = make.conv(inputs, width, 3, stride=stride)
        self.norm1 = make.norm(width)
        self.conv2 = make.conv(width, width, 3)
        self.norm2 = make.norm(width)
        changes = stride != 1 or inputs != width
        self.shortcut = shortcut(inputs, width, stride, make) if changes else None

    def __call__(self, x: Activations) -> Activations:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return jax.nn.relu(y + (self.shortcut(x) if self.shortcut else x))


class Bottleneck(nnx.Module):
    """A 3x3 convolution between two 1x1, and a shortcut; four times as wide behind."""

    def __init__(self, inputs: int, width: int, strides: tuple[int, int], make: Make):
        outputs, stride = 4 * width, max(strides)
        self.conv1 = make.conv(inputs, width, 1, stride=strides[0])
        self.norm1 = make.norm(width)
        self.conv2 = make.conv(width, width, 3, stride=strides[1])
        self.norm2 = make.norm(width)
        self.conv3 = make.conv(width, outputs, 1)
        self.norm3 = make.norm(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = Shortcut(inputs, outputs, stride, make) if changes else None

    def __call__(self, x: Activations) -> Activations:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        y = jax.nn.relu(self.norm2(self.conv2(y)))
        y = self.norm3(self.conv3(y))
        return jax.nn.relu(y + (self.shortcut(x) if self.shortcut else x))
