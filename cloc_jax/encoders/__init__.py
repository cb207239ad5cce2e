"""Encoders: images in, one feature vector an image out.

An encoder is an NNX module built as `build(name, channels=…, rngs=…)`. It takes uint8
images [batch, height, width, channels] and scales them itself, because the scaling
belongs to its weights. Its parts are called stem, layer1, layer2, …: those names are
the parameter groups that stages train or freeze. `features` is the width of the output,
`is_signed` whether it can be negative (then cosines span [-1, 1], otherwise [0, 1]).
"""

from typing import Protocol, runtime_checkable

from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import small


@runtime_checkable
class Encoder(Protocol):
    """What every encoder has."""

    features: int
    is_signed: bool

    def __call__(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch features"]: ...


ENCODERS = {"small": small.SmallResNet}


def build(name: str, *, channels: int, rngs: nnx.Rngs, **options) -> Encoder:
    """The encoder called `name`; `options` are its own keyword arguments."""
    if name not in ENCODERS:
        raise ValueError(
            f"encoder.name is {name!r}; this version has {', '.join(ENCODERS)}."
        )
    return ENCODERS[name](channels=channels, rngs=rngs, **options)
