"""VGG16 (Simonyan and Zisserman, 2015), plain or with batch norm."""

import jax
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import layers

POOLINGS = ("fc", "average")
WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = (2, 2, 3, 3, 3)


def make_parts(
    conv: layers.Make,
    norm: layers.Make | None,
    linear: layers.Make | None,
    hidden: int,
) -> tuple[dict[str, nnx.Module], int]:
    """Five blocks of 3x3 convolutions and what follows, and the width of the last.

    The original drops out half of the fully connected layers' values in training. Here
    nothing is dropped: images are compared by their embeddings, which would then
    differ between two looks at one image.

    Args:
      conv: makes a convolution.
      norm: makes the batch norms after convolutions; None for none.
      linear: makes fc6 and fc7 behind 7x7 average pooling; None for the mean over the
        image, 512 features, a tenth of the parameters.
      hidden: width of fc6 and fc7.
    """
    parts: dict[str, nnx.Module] = {}
    inputs = 3
    for number, (width, count) in enumerate(zip(WIDTHS, CONVOLUTIONS, strict=True)):
        part = f"layer{number}" if number else "stem"
        parts[part] = Block(inputs, width, count, conv, norm)
        inputs = width
    if linear is None:
        return parts, inputs
    return parts | {"layer5": FullyConnected(inputs, hidden, linear)}, hidden


class Block(nnx.Module):
    """3x3 convolutions, each with a ReLU, then half the size."""

    def __init__(
        self,
        inputs: int,
        width: int,
        count: int,
        conv: layers.Make,
        norm: layers.Make | None,
    ):
        sources = [inputs] + [width] * (count - 1)
        self.convs = nnx.List(conv(n, width, 3, bias=True) for n in sources)
        self.norms = nnx.List(norm(width) for _ in sources) if norm else None

    def __call__(
        self, x: layers.Activations
    ) -> Float[Array, "batch height2 width2 outputs"]:
        for index, conv in enumerate(self.convs):
            x = conv(x)
            x = jax.nn.relu(self.norms[index](x) if self.norms else x)
        return layers.max_pool(x, 2, stride=2)


class FullyConnected(nnx.Module):
    """7x7 average pooling for any size, then fc6 and fc7, each with a ReLU."""

    def __init__(self, inputs: int, hidden: int, linear: layers.Make):
        self.fc6 = linear(7 * 7 * inputs, hidden)
        self.fc7 = linear(hidden, hidden)

    def __call__(self, x: layers.Activations) -> Float[Array, "batch hidden"]:
        x = layers.adaptive_average_pool(x, 7)
        x = jax.nn.relu(self.fc6(x.reshape(len(x), -1)))
        return jax.nn.relu(self.fc7(x))
