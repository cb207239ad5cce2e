"""ResNet-18, 34 and 50 (He et al., 2016), and a small network of the same blocks."""

from collections.abc import Callable

import jax
from flax import nnx

from cloc_jax.encoders.layers import Activations, Make, Stem

Convolutions = tuple[tuple[int, int, int], ...]  # features, window, stride of each
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
    parts: dict[str, nnx.Module] = {"stem": Stem(make)}
    inputs = 64
    for number, count in enumerate(BLOCKS[architecture], 1):
        width = 32 * 2**number
        blocks: list[Residual] = []
        for index in range(count):
            step = 2 if number > 1 and index == 0 else 1
            convs: Convolutions = ((width, 3, step), (width, 3, 1))
            if architecture == "resnet50":
                first, second = (step, 1) if stride == "1x1" else (1, step)
                convs = ((width, 1, first), (width, 3, second), (4 * width, 1, 1))
            blocks.append(Residual(inputs, convs, make))
            inputs = convs[-1][0]
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
        convs = ((width, 3, stride), (width, 3, 1))
        parts[f"layer{number}"] = Residual(inputs, convs, make, shortcut)
        inputs = width
    return parts, inputs


class Shortcut(nnx.Module):
    """A 1x1 convolution where a block changes the size or the width."""

    def __init__(self, inputs: int, outputs: int, stride: int, make: Make):
        self.conv = make.conv(inputs, outputs, 1, stride=stride)
        self.norm = make.norm(outputs)

    def __call__(self, x: Activations) -> Activations:
        return self.norm(self.conv(x))


class Residual(nnx.Module):
    """Convolutions, each with a batch norm, and a shortcut past all of them."""

    def __init__(
        self,
        inputs: int,
        convs: Convolutions,
        make: Make,
        shortcut: Callable[..., nnx.Module] = Shortcut,
    ):
        features, self.numbers = inputs, tuple(range(1, len(convs) + 1))
        for number, (width, window, step) in zip(self.numbers, convs, strict=True):
            conv = make.conv(features, width, window, stride=step)
            setattr(self, f"conv{number}", conv)
            setattr(self, f"norm{number}", make.norm(width))
            features = width
        stride = max(step for _, _, step in convs)
        changes = stride != 1 or inputs != features
        self.shortcut = shortcut(inputs, features, stride, make) if changes else None

    def __call__(self, x: Activations) -> Activations:
        y = x
        for number in self.numbers:
            y = jax.nn.relu(y) if number > 1 else y
            y = getattr(self, f"norm{number}")(getattr(self, f"conv{number}")(y))
        return jax.nn.relu(y + (self.shortcut(x) if self.shortcut else x))
