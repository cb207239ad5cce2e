"""Encoders by name."""

import functools
from typing import Protocol, runtime_checkable

from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import densenet, layers, resnet, small, vgg
from cloc_jax.encoders.backbone import Backbone
from cloc_jax.encoders.preprocessing import PREPROCESSINGS


@runtime_checkable
class Encoder(Protocol):
    """What every encoder has."""

    features: int
    is_signed: bool

    def __call__(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch features"]: ...


class Identity(nnx.Module):
    """The encoder of features that were computed before: it gives back what it gets.

    It stands where a whole encoder is frozen and its features are kept.
    """

    def __init__(self, features: int, *, is_signed: bool):
        self.features = features
        self.is_signed = is_signed

    def __call__(
        self, features: Float[Array, "batch features"]
    ) -> Float[Array, "batch features"]:
        return features


SMALL = "small"  # the one that there are no weights for
ENCODERS = (SMALL, *resnet.BLOCKS, "vgg16", "vgg16_bn", "densenet121")


def build(
    name: str,
    *,
    channels: int,
    rngs: nnx.Rngs,
    widths: tuple[int, ...] = (16, 32, 64, 128),
    pooling: str = "fc",
    hidden: int = 4096,
    stride: str = "3x3",
    epsilon: float = 1e-5,
    preprocessing: str = "imagenet_rgb",
    dtype: str = "float32",
    remat: bool = False,
) -> Backbone:
    """The encoder called `name`, with random weights.

    Options of other encoders have no effect, since one configuration has those of all.

    Args:
      name: one of ENCODERS.
      channels: of the images, 1 or 3.
      rngs: draws the weights.
      widths: of the four layers of small.
      pooling: what VGG16 ends in, see `vgg.make_parts`.
      hidden: width of VGG16's fc6 and fc7; pretrained ones have 4096.
      stride: which convolution of ResNet-50's bottlenecks strides.
      epsilon: of the batch norms.
      preprocessing: how pixels are scaled, except for small.
      dtype: of the computation.
      remat: compute activations again for the gradient.
    """
    if name not in ENCODERS:
        raise ValueError(
            f"encoder.name is {name!r}; this version has {', '.join(ENCODERS)}."
        )
    for key, given, choices in (
        ("dtype", dtype, ("float32", "bfloat16")),
        ("pooling", pooling, vgg.POOLINGS),
        ("preprocessing", preprocessing, tuple(PREPROCESSINGS)),
        ("stride", stride, resnet.STRIDES if name == "resnet50" else ("3x3",)),
    ):
        if given not in choices:
            raise ValueError(
                f"encoder.{key} is {given!r}; use one of {', '.join(choices)}."
            )
    if epsilon <= 0:
        raise ValueError(f"encoder.epsilon is {epsilon}; it must be above 0.")
    conv = functools.partial(layers.conv, dtype=dtype, rngs=rngs)
    norm = functools.partial(layers.norm, epsilon=epsilon, rngs=rngs)
    if name == SMALL:
        parts, features = small.make_parts(channels, tuple(widths), conv, norm)
    elif name in resnet.BLOCKS:
        parts, features = resnet.make_parts(name, stride, conv, norm)
    elif name == "densenet121":
        parts, features = densenet.make_parts(conv, norm)
    else:
        linear = functools.partial(
            nnx.Linear,
            kernel_init=nnx.initializers.he_normal(),
            dtype=dtype,
            rngs=rngs,
        )
        given_norm = norm if name == "vgg16_bn" else None
        parts, features = vgg.make_parts(
            conv, given_norm, linear if pooling == "fc" else None, hidden
        )
    return Backbone(
        name,
        parts,
        features,
        channels=channels,
        smallest=1 if name == SMALL else 32,  # below, pooling would leave nothing
        preprocessing="" if name == SMALL else preprocessing,
        epsilon=epsilon,
        stride=stride,
        dtype=dtype,
        remat=remat,
    )
