"""What all encoders are: parts in a row, from uint8 images to features."""

import functools
from typing import NamedTuple, Protocol, runtime_checkable

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.config import check_choice
from cloc_jax.encoders import densenet, layers, resnet, vgg

Images = UInt8[Array, "batch height width channels"]
Features = Float[Array, "batch features"]
SMALL = "small"  # the one that there are no weights for
ENCODERS = (SMALL, *resnet.BLOCKS, "vgg16", "vgg16_bn", "densenet121")


@runtime_checkable
class Encoder(Protocol):
    """What every encoder has."""

    features: int
    is_signed: bool

    def __call__(self, images: Images) -> Features: ...


class Identity(nnx.Module):
    """The encoder of features that were computed before: it gives back what it gets.

    It stands where a whole encoder is frozen and its features are kept.
    """

    def __init__(self, features: int, *, is_signed: bool):
        self.features = features
        self.is_signed = is_signed

    def __call__(self, features: Features) -> Features:
        return features


class Preprocessing(NamedTuple):
    """(pixel / unit - mean) / std, channels in the network's own order.

    It belongs to the encoder, as weights are bound to it, and weight files name it.
    """

    order: str  # "rgb" or "bgr"
    unit: float  # the pixel value that becomes 1
    mean: tuple[float, float, float]
    std: tuple[float, float, float]


PREPROCESSINGS = {
    # torchvision and timm.
    "imagenet_rgb": Preprocessing(
        "rgb", 255.0, (0.485, 0.456, 0.406), (0.229, 0.224, 0.225)
    ),
    # Caffe, and from it the ResNets v1 of Keras.
    "caffe_bgr": Preprocessing("bgr", 1.0, (103.939, 116.779, 123.68), (1.0, 1.0, 1.0)),
    "signed": Preprocessing("rgb", 127.5, (1.0, 1.0, 1.0), (1.0, 1.0, 1.0)),
}


def normalise(
    images: Images, preprocessing: str
) -> Float[Array, "batch height width 3"]:
    """The network's input; a grey image is the same in all colours."""
    order, unit, *scaling = PREPROCESSINGS[preprocessing]
    mean, std = (jnp.array(v, jnp.float32).reshape(1, 1, 1, 3) for v in scaling)
    x = images.astype(jnp.float32) / unit
    if images.shape[-1] == 1:
        x = jnp.repeat(x, 3, -1)
    elif order == "bgr":
        x = x[..., ::-1]
    return (x - mean) / std


class Backbone(nnx.Module):
    """A network cut into parts, which are also the parameter groups.

    It starts with random weights. It can be left and entered between any two parts, so
    that what a frozen beginning computes can be kept. Options of other architectures
    have no effect, since one configuration has those of all.

    Args:
      widths: of the four layers of small.
      pooling: what VGG16 ends in, see `vgg.make_parts`.
      hidden: width of VGG16's fc6 and fc7; pretrained ones have 4096.
      stride: which convolution of ResNet-50's bottlenecks strides.
      preprocessing: how pixels are scaled; small scales them to -1 to 1, in as many
        channels as the images have.
      dtype: of the computation; parameters, statistics and features are float32.
    """

    is_signed = False  # all here end in a ReLU

    def __init__(
        self,
        architecture: str,
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
    ):
        is_resnet50 = architecture == "resnet50"
        for key, given, choices in (
            ("name", architecture, ENCODERS),
            ("dtype", dtype, ("float32", "bfloat16")),
            ("pooling", pooling, vgg.POOLINGS),
            ("preprocessing", preprocessing, tuple(PREPROCESSINGS)),
            ("stride", stride, resnet.STRIDES if is_resnet50 else ("3x3",)),
        ):
            check_choice(f"encoder.{key}", given, choices)
        make = layers.Make(
            conv=functools.partial(layers.conv, dtype=dtype, rngs=rngs),
            # Running statistics keep nine tenths a step, as torch's do.
            norm=functools.partial(
                layers.BatchNorm, momentum=0.9, epsilon=epsilon, rngs=rngs
            ),
            linear=functools.partial(
                nnx.Linear,
                kernel_init=nnx.initializers.he_normal(),
                dtype=dtype,
                rngs=rngs,
            ),
        )
        if architecture == SMALL:
            parts, width = resnet.make_small_parts(channels, tuple(widths), make)
        elif architecture in resnet.BLOCKS:
            parts, width = resnet.make_parts(architecture, stride, make)
        elif architecture == "densenet121":
            parts, width = densenet.make_parts(make)
        else:
            has_norms = architecture == "vgg16_bn"
            parts, width = vgg.make_parts(
                make, has_norms=has_norms, pooling=pooling, hidden=hidden
            )
        self.parts = tuple(parts)
        for name, part in parts.items():
            setattr(self, name, part)
        self.entrance: str | None = None  # where the first parts are missing
        self.architecture = architecture
        self.features = width
        self.smallest = 1 if architecture == SMALL else 32  # or pooling leaves nothing
        self.preprocessing = preprocessing
        self.epsilon = epsilon
        self.stride = stride
        self.dtype = dtype

    def prepare(self, images: Images) -> Float[Array, "batch height width planes"]:
        """What enters the first part: pixels scaled as the weights want them."""
        if self.architecture == SMALL:
            return images.astype(jnp.float32) / 127.5 - 1
        return normalise(images, self.preprocessing)

    def __call__(self, images: Images | Float[Array, "batch *rest"]) -> Features:
        if self.entrance is None:
            return self.before(images, None)
        return self.after(images, self.entrance)

    def keep_from(self, part: str) -> None:
        """Drops the parts before this one.

        The encoder then takes what `before` gives in place of images.
        """
        place = self.parts.index(part)
        for name in self.parts[:place]:
            delattr(self, name)
        self.parts, self.entrance = self.parts[place:], part

    def before(self, images: Images, part: str | None) -> Float[Array, "batch *rest"]:
        """What enters a part; the features for None."""
        end = len(self.parts) if part is None else self.parts.index(part)
        x = self._run(self.prepare(images), self.parts[:end])
        return _mean(x) if part is None else x

    def after(self, x: Float[Array, "batch *rest"], part: str) -> Features:
        """The features of what entered a part."""
        if x.dtype == jnp.float16:  # as it may have been kept
            x = x.astype(self.dtype)
        return _mean(self._run(x, self.parts[self.parts.index(part) :]))

    def _run(self, x: Array, parts: tuple[str, ...]) -> Array:
        for name in parts:
            x = getattr(self, name)(x)
        return x


def _mean(x: Float[Array, "batch *positions features"]) -> Features:
    """The mean over positions, if there are any."""
    return jnp.mean(x.astype(jnp.float32), axis=tuple(range(1, x.ndim - 1)))
