"""DenseNet-121 (Huang et al., 2017)."""

import jax
import jax.numpy as jnp
from flax import nnx

from cloc_jax.encoders.layers import Activations, Make, Stem, halve

GROWTH = 32  # features that each layer adds
LAYERS = (6, 12, 24, 16)


def make_parts(make: Make) -> tuple[dict[str, nnx.Module], int]:
    """Blocks whose layers see all layers before them, and the width of the last.

    A part is a dense block and a transition; the last ends in a batch norm and ReLU.
    """
    parts: dict[str, nnx.Module] = {"stem": Stem(make)}
    width = 64
    for number, count in enumerate(LAYERS, 1):
        blocks: list[nnx.Module] = []
        for _ in range(count):
            blocks.append(DenseLayer(width, make))
            width += GROWTH
        if number == len(LAYERS):
            # Of everything, as no layer behind it does it.
            blocks.append(nnx.Sequential(make.norm(width), jax.nn.relu))
        else:
            blocks.append(Transition(width, make))
            width //= 2
        parts[f"layer{number}"] = nnx.Sequential(*blocks)
    return parts, width


class DenseLayer(nnx.Module):
    """Adds features computed from all that came before."""

    def __init__(self, inputs: int, make: Make):
        self.norm1 = make.norm(inputs)
        self.conv1 = make.conv(inputs, 4 * GROWTH, 1)
        self.norm2 = make.norm(4 * GROWTH)
        self.conv2 = make.conv(4 * GROWTH, GROWTH, 3)

    def __call__(self, x: Activations) -> Activations:
        y = self.conv1(jax.nn.relu(self.norm1(x)))
        y = self.conv2(jax.nn.relu(self.norm2(y)))
        return jnp.concatenate([x, y], -1)


class Transition(nnx.Module):
    """Half the features and half the size."""

    def __init__(self, inputs: int, make: Make):
        self.norm = make.norm(inputs)
        self.conv = make.conv(inputs, inputs // 2, 1)

    def __call__(self, x: Activations) -> Activations:
        return halve(self.conv(jax.nn.relu(self.norm(x))))
