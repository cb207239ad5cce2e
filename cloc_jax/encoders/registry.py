"""Encoders by name."""

import functools
import inspect
from collections.abc import Callable
from typing import Any, Protocol, runtime_checkable

from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import densenet, resnet, small, vgg
from cloc_jax.encoders.backbone import Backbone
from cloc_jax.encoders.preprocessing import GREYS, PREPROCESSINGS


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


ENCODERS: dict[str, Callable[..., Backbone]] = {
    "small": small.SmallResNet,
    "resnet18": functools.partial(resnet.ResNet, "resnet18"),
    "resnet34": functools.partial(resnet.ResNet, "resnet34"),
    "resnet50": functools.partial(resnet.ResNet, "resnet50"),
    "vgg16": functools.partial(vgg.VGG16, "vgg16"),
    "vgg16_bn": functools.partial(vgg.VGG16, "vgg16_bn"),
    "densenet121": functools.partial(densenet.DenseNet, "densenet121"),
}


CHOICES = {
    "dtype": ("float32", "bfloat16"),
    "grey": GREYS,
    "pooling": vgg.POOLINGS,
    "preprocessing": tuple(PREPROCESSINGS),
    "stride": resnet.STRIDES,
}


def build(name: str, *, channels: int, rngs: nnx.Rngs, **options) -> Backbone:
    """The encoder called `name`, with those of the options that it takes.

    Options of other encoders are left out, since one configuration has those of all;
    an option that no encoder has is an error.
    """
    if name not in ENCODERS:
        raise ValueError(
            f"encoder.name is {name!r}; this version has {', '.join(ENCODERS)}."
        )
    known = sorted(set[str]().union(*map(options_of, ENCODERS)))
    unknown = [option for option in options if option not in known]
    if unknown:
        raise ValueError(
            f"no encoder has the option {', '.join(unknown)}; there are "
            f"{', '.join(known)}."
        )
    own = {key: options[key] for key in options_of(name) if key in options}
    for key, choices in CHOICES.items():
        if own.get(key, choices[0]) not in choices:
            raise ValueError(
                f"encoder.{key} is {own[key]!r}; use one of {', '.join(choices)}."
            )
    if own.get("epsilon", 1e-5) <= 0:
        raise ValueError(f"encoder.epsilon is {own['epsilon']}; it must be above 0.")
    return ENCODERS[name](channels=channels, rngs=rngs, **own)


def options_of(name: str) -> tuple[str, ...]:
    """The options that an encoder takes."""
    make = ENCODERS[name]
    kind: Any = make.func if isinstance(make, functools.partial) else make
    given = {"self", "architecture", "parts", "features", "channels", "rngs", "options"}
    return tuple(
        key
        for part in kind.__mro__[: kind.__mro__.index(Backbone) + 1]
        for key in inspect.signature(part.__init__).parameters
        if key not in given
    )
