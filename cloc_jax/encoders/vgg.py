"""VGG16 (Simonyan and Zisserman, 2015), plain or with batch norm."""

import functools
from typing import Any

import jax
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax.encoders import layers
from cloc_jax.encoders.backbone import Pretrainable

POOLINGS = ("fc", "average")
WIDTHS = (64, 128, 256, 512, 512)
CONVOLUTIONS = (2, 2, 3, 3, 3)


class VGG16(Pretrainable):
    """Five blocks of 3x3 convolutions, then two fully connected layers or an average.

    The original drops out half of the fully connected layers' values in training. Here
    nothing is dropped: images are compared by their embeddings, which would then
    differ between two looks at one image.

    Args:
      architecture: "vgg16" or "vgg16_bn", which has batch norm after convolutions.
      pooling: "fc" for 7x7 average pooling and the layers fc6 and fc7, 4096 features;
        "average" for the mean over the image, 512 features, a tenth of the parameters.
      hidden: width of fc6 and fc7; pretrained ones have 4096.
      options: those of `Pretrainable`.
    """

    def __init__(
        self,
        architecture: str,
        *,
        pooling: str = "fc",
        hidden: int = 4096,
        rngs: nnx.Rngs,
        **options: Any,
    ):
        is_full = pooling == "fc"
        parts = ("stem", "layer1", "layer2", "layer3", "layer4", "layer5")
        super().__init__(
            architecture=architecture,
            parts=parts if is_full else parts[:-1],
            features=hidden if is_full else WIDTHS[-1],
            **options,
        )
        self.pooling = pooling
        conv, norm = self.layer_makers(rngs)
        conv = functools.partial(conv, bias=True)
        first = self.first_kernel()
        for part, width, count in zip(parts[:-1], WIDTHS, CONVOLUTIONS, strict=True):
            kind = norm if architecture == "vgg16_bn" else None
            setattr(self, part, Block(first, width, count, conv, kind))
            first = {"inputs": width}
        if is_full:
            self.layer5 = FullyConnected(WIDTHS[-1], hidden, self.dtype, rngs=rngs)


class Block(nnx.Module):
    """3x3 convolutions, each with a ReLU, then half the size."""

    def __init__(
        self,
        first: dict,
        width: int,
        count: int,
        conv: layers.Make,
        norm: layers.Make | None,
    ):
        sources = [first] + [{"inputs": width}] * (count - 1)
        self.convs = nnx.List(conv(**s, outputs=width, kernel=3) for s in sources)
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

    def __init__(self, inputs: int, hidden: int, dtype: str, *, rngs: nnx.Rngs):
        linear = functools.partial(
            nnx.Linear,
            kernel_init=nnx.initializers.he_normal(),
            dtype=dtype,
            rngs=rngs,
        )
        self.fc6 = linear(7 * 7 * inputs, hidden)
        self.fc7 = linear(hidden, hidden)

    def __call__(self, x: layers.Activations) -> Float[Array, "batch hidden"]:
        x = layers.adaptive_average_pool(x, 7)
        x = jax.nn.relu(self.fc6(x.reshape(len(x), -1)))
        return jax.nn.relu(self.fc7(x))
