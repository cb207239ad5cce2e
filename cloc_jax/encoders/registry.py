"""Encoders by name."""

import functools
import inspect
from collections.abc import Callable
from typing import Protocol, runtime_checkable

from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import densenet, resnet, small, vgg
from cloc_jax.encoders.backbone import Backbone


@runtime_checkable
class Encoder(Protocol):
    """What every encoder has."""

    features: int
    is_signed: bool

    def __call__(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch features"]: ...


ENCODERS: dict[str, Callable[..., Backbone]] = {
    "small": small.SmallResNet,
    "resnet18": functools.partial(resnet.ResNet, "resnet18"),
    "resnet34": functools.partial(resnet.ResNet, "resnet34"),
    "resnet50": functools.partial(resnet.ResNet, "resnet50"),
    "vgg16": functools.partial(vgg.VGG16, "vgg16"),
    "vgg16_bn": functools.partial(vgg.VGG16, "vgg16_bn"),
    "densenet121": functools.partial(densenet.DenseNet, "densenet121"),
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
    return ENCODERS[name](channels=channels, rngs=rngs, **own)


def options_of(name: str) -> tuple[str, ...]:
    """The options that an encoder takes."""
    make = ENCODERS[name]
    kind = make.func if isinstance(make, functools.partial) else make
    # Not of the class itself, whose signature is that of its metaclass.
    parameters = inspect.signature(kind.__init__).parameters
    given = ("self", "architecture", "channels", "rngs")
    return tuple(key for key in parameters if key not in given)
