"""DenseNet-121 (Huang et al., 2017)."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import layers

GROWTH = 32  # features that each layer adds
LAYERS = (6, 12, 24, 16)


def make_parts(
    conv: layers.Make, norm: layers.Make
) -> tuple[dict[str, nnx.Module], int]:
    """Blocks whose layers see all layers before them, and the width of the last.

    A part is a dense block with the transition behind it; the last one ends with the
    final batch norm and ReLU instead.
    """
    parts: dict[str, nnx.Module] = {"stem": layers.Stem(conv, norm)}
    width = 64
    for number, count in enumerate(LAYERS, 1):
        blocks: list[nnx.Module] = []
        for _ in range(count):
            blocks.append(DenseLayer(width, conv, norm))
            width += GROWTH
        if number == len(LAYERS):
            blocks.append(Last(width, norm))
        else:
            blocks.append(Transition(width, conv, norm))
            width //= 2
        parts[f"layer{number}"] = layers.Chain(blocks)
    return parts, width


class DenseLayer(nnx.Module):
    """Adds features computed from all that came before."""

    def __init__(self, inputs: int, conv: layers.Make, norm: layers.Make):
        self.norm1 = norm(inputs)
        self.conv1 = conv(inputs, 4 * GROWTH, 1)
        self.norm2 = norm(4 * GROWTH)
        self.conv2 = conv(4 * GROWTH, GROWTH, 3)

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height width outputs"]:
        y = self.conv1(jax.nn.relu(self.norm1(x)))
        y = self.conv2(jax.nn.relu(self.norm2(y)))
        return jnp.concatenate([x, y], -1)


class Transition(nnx.Module):
    """Half the features and half the size."""

    def __init__(self, inputs: int, conv: layers.Make, norm: layers.Make):
        self.norm = norm(inputs)
        self.conv = conv(inputs, inputs // 2, 1)

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height2 width2 outputs"]:
        return layers.halve(self.conv(jax.nn.relu(self.norm(x))))


class Last(nnx.Module):
    """The norm of everything, which no layer behind it does."""

    def __init__(self, inputs: int, norm: layers.Make):
        self.norm = norm(inputs)

    def __call__(self, x: layers.Activations) -> layers.Activations:
        return jax.nn.relu(self.norm(x))
