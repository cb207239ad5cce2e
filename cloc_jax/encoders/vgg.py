"""VGG16 (Simonyan and Zisserman, 2015), plain or with batch norm."""

import jax
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders.layers import Activations, Make, adaptive_average_pool, max_pool

POOLINGS = ("fc", "average")
WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = (2, 2, 3, 3, 3)


def make_parts(
    make: Make, *, has_norms: bool, pooling: str, hidden: int
) -> tuple[dict[str, nnx.Module], int]:
    """Five blocks of 3x3 convolutions and what follows, and the width of the last.

    The original drops out half of the fully connected layers' values in training. Here
    nothing is dropped: images are compared by their embeddings, which would then
    differ between two looks at one image.

    `pooling` is "fc" for fc6 and fc7 of width `hidden` behind 7x7 average pooling, or
    "average" for the mean over the image: 512 features, a tenth of the parameters.
    """
    parts: dict[str, nnx.Module] = {}
    inputs = 3
    for number, (width, count) in enumerate(zip(WIDTHS, CONVOLUTIONS, strict=True)):
        part = f"layer{number}" if number else "stem"
        parts[part] = Block(inputs, width, count, make, has_norms)
        inputs = width
    if pooling == "average":
        return parts, inputs
    return parts | {"layer5": FullyConnected(inputs, hidden, make)}, hidden


class Block(nnx.Module):
    """3x3 convolutions, each with a ReLU, then half the size."""

    def __init__(
        self, inputs: int, width: int, count: int, make: Make, has_norms: bool
    ):
        sources = [inputs] + [width] * (count - 1)
        self.convs = nnx.List(make.conv(n, width, 3, bias=True) for n in sources)
        self.norms = nnx.List(make.norm(width) for _ in sources) if has_norms else None

    def __call__(self, x: Activations) -> Activations:
        for index, conv in enumerate(self.convs):
            x = conv(x)
            x = jax.nn.relu(self.norms[index](x) if self.norms else x)
        return max_pool(x, 2, stride=2)


class FullyConnected(nnx.Module):
    """7x7 average pooling for any size, then fc6 and fc7, each with a ReLU."""

    def __init__(self, inputs: int, hidden: int, make: Make):
        self.fc6 = make.linear(7 * 7 * inputs, hidden)
        self.fc7 = make.linear(hidden, hidden)

    def __call__(self, x: Activations) -> Float[Array, "batch hidden"]:
        x = adaptive_average_pool(x, 7)
        x = jax.nn.relu(self.fc6(x.reshape(len(x), -1)))
        return jax.nn.relu(self.fc7(x))
