"""What all encoders are: parts in a row, from uint8 images to features."""

import functools
from typing import Any

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import layers
from cloc_jax.encoders import preprocessing as pixels


class Backbone(nnx.Module):
    """A network cut into parts, which are also the parameter groups.

    It can be left and entered between any two parts, so that what a frozen beginning
    computes can be kept. A subclass makes the parts as attributes, and `prepare`.

    Args:
      architecture: what it is called in errors and in files of weights.
      parts: names of the attributes that run one after another.
      features: width of the output.
      dtype: type of the computation. Parameters, batch statistics and the features are
        float32 in any case.
      remat: compute activations within blocks again for the gradient instead of
        keeping them; less memory for more time.
    """

    is_signed = False  # all here end in a ReLU
    smallest = 1  # height and width of images

    def __init__(
        self,
        *,
        architecture: str,
        parts: tuple[str, ...],
        features: int,
        dtype: str = "float32",
        remat: bool = False,
    ):
        self.architecture = architecture
        self.parts = parts
        self.entrance: str | None = None  # where the first parts are missing
        self.features = features
        self.dtype = dtype
        self.remat = remat

    def prepare(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch height width planes"]:
        """What enters the first part."""
        raise NotImplementedError

    @staticmethod
    def finish(
        x: Float[Array, "batch *positions features"],
    ) -> Float[Array, "batch features"]:
        """Features of what leaves the last part: the mean over positions, if any."""
        positions = tuple(range(1, x.ndim - 1))
        return jnp.mean(x.astype(jnp.float32), axis=positions)

    def __call__(
        self,
        images: UInt8[Array, "batch height width channels"]
        | Float[Array, "batch *rest"],
    ) -> Float[Array, "batch features"]:
        if self.entrance is None:
            return self.before(images, None)
        return self.after(images, self.entrance)

    def keep_from(self, part: str) -> None:
        """Drops the parts before this one.

        The encoder then takes what `before` gives in place of images.
        """
        place = self._place(part)
        for name in self.parts[:place]:
            delattr(self, name)
        self.parts, self.entrance = self.parts[place:], part

    def before(
        self, images: UInt8[Array, "batch height width channels"], part: str | None
    ) -> Float[Array, "batch *rest"]:
        """What enters a part; the features for None."""
        end = len(self.parts) if part is None else self._place(part)
        x = self._run(self.prepare(images), self.parts[:end])
        return self.finish(x) if part is None else x

    def after(
        self, x: Float[Array, "batch *rest"], part: str
    ) -> Float[Array, "batch features"]:
        """The features of what entered a part."""
        if x.dtype == jnp.float16:  # as it may have been kept
            x = x.astype(self.dtype)
        return self.finish(self._run(x, self.parts[self._place(part) :]))

    def set_view(self, use_running_average: bool | None = None) -> None:
        """Nothing; lets `nnx.view` ask networks without batch norm for their mode."""

    def _run(self, x: Array, parts: tuple[str, ...]) -> Array:
        for name in parts:
            part = getattr(self, name)
            for block in part.blocks if isinstance(part, layers.Chain) else [part]:
                x = _run_again(block, x) if self.remat else block(x)
        return x

    def _place(self, part: str) -> int:
        if part not in self.parts:
            raise ValueError(
                f"{self.architecture} has no part {part!r}; its parts are "
                f"{', '.join(self.parts)}."
            )
        return self.parts.index(part)


class Pretrainable(Backbone):
    """A backbone with the input of networks trained on colour photographs.

    Args:
      channels: of the images, 1 or 3.
      grey: how one channel becomes three, "repeat" or "sum"; the same result.
      preprocessing: name of how pixels are scaled, in `preprocessing.PREPROCESSINGS`.
      epsilon: of the batch norms.
      options: those of `Backbone`.
    """

    smallest = 32  # below, pooling would leave nothing

    def __init__(
        self,
        *,
        channels: int,
        grey: str = "repeat",
        preprocessing: str = "imagenet_rgb",
        epsilon: float = 1e-5,
        **options: Any,
    ):
        super().__init__(**options)
        self.channels = channels
        self.grey = grey
        self.preprocessing = preprocessing
        self.epsilon = epsilon

    def prepare(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch height width planes"]:
        """Pixels scaled as the weights want them."""
        _, height, width, channels = images.shape
        if channels != self.channels:
            raise ValueError(
                f"images have {channels} channels, but this encoder was built for "
                f"{self.channels}; set data.channels."
            )
        if min(height, width) < self.smallest:
            raise ValueError(
                f"images are {height}x{width}; {self.architecture} needs at least "
                f"{self.smallest}x{self.smallest}. Set data.size."
            )
        return pixels.normalise(images, self.preprocessing, self.grey)

    def layer_makers(self, rngs: nnx.Rngs) -> tuple[layers.Make, layers.Make]:
        """`layers.conv` and `layers.norm` with this network's settings."""
        return (
            functools.partial(layers.conv, dtype=self.dtype, rngs=rngs),
            functools.partial(layers.norm, epsilon=self.epsilon, rngs=rngs),
        )

    def first_kernel(self) -> dict[str, Any]:
        """The arguments of `layers.conv` that depend on the images' channels."""
        init = nnx.initializers.he_normal()
        if self.channels == 3 or self.grey == "repeat":
            return {"inputs": 3, "init": init}

        def init_summed(key, shape, dtype):
            kernel = init(key, (*shape[:2], 3, shape[3]), dtype)
            return pixels.sum_over_colours(kernel, self.preprocessing)

        return {"inputs": 2, "init": init_summed}


@nnx.remat
def _run_again(block, x):
    return block(x)
