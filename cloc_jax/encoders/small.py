"""A small residual network, for the quick start and for images without much detail."""

import jax
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import layers


def make_parts(
    channels: int, widths: tuple[int, ...], conv: layers.Make, norm: layers.Make
) -> tuple[dict[str, nnx.Module], int]:
    """A strided stem and one residual block per width; the width of the last."""
    if len(widths) != 4 or min(widths) < 1:
        raise ValueError(
            f"encoder.widths is {widths}; give the channels of the four layers, such "
            "as (16, 32, 64, 128)."
        )
    stem = nnx.Sequential(
        conv(channels, widths[0], 3, stride=2), norm(widths[0]), jax.nn.relu
    )
    parts: dict[str, nnx.Module] = {"stem": stem}
    inputs = widths[0]
    for number, width in enumerate(widths, 1):
        stride = 1 if number == 1 else 2
        parts[f"layer{number}"] = Block(inputs, width, stride, conv, norm)
        inputs = width
    return parts, inputs


class Block(nnx.Module):
    """Two 3x3 convolutions with a shortcut, as in ResNet-18."""

    def __init__(
        self,
        inputs: int,
        outputs: int,
        stride: int,
        conv: layers.Make,
        norm: layers.Make,
    ):
        self.conv1 = conv(inputs, outputs, 3, stride=stride)
        self.norm1 = norm(outputs)
        self.conv2 = conv(outputs, outputs, 3)
        self.norm2 = norm(outputs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = conv(inputs, outputs, 1, stride=stride) if changes else None

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height2 width2 outputs"]:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return jax.nn.relu(y + (x if self.shortcut is None else self.shortcut(x)))
