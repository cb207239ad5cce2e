"""What all encoders are: parts in a row, from uint8 images to features."""

from collections.abc import Mapping

import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, UInt8

from cloc_jax.encoders import layers
from cloc_jax.encoders import preprocessing as pixels


class Backbone(nnx.Module):
    """A network cut into parts, which are also the parameter groups.

    It can be left and entered between any two parts, so that what a frozen beginning
    computes can be kept.

    Args:
      architecture: what it is called in errors and in files of weights.
      parts: what runs one after another, by the name of the attribute it becomes.
      features: width of the output.
      channels: of the images.
      smallest: height and width that images have at least.
      preprocessing: name of how pixels are scaled, in `preprocessing.PREPROCESSINGS`;
        "" for -1 to 1 in as many channels as the images have.
      epsilon: of the batch norms.
      stride: see `resnet.make_parts`; kept to compare with that of weights.
      dtype: type of the computation. Parameters, batch statistics and the features are
        float32 in any case.
      remat: compute activations within blocks again for the gradient instead of
        keeping them; less memory for more time.
    """

    is_signed = False  # all here end in a ReLU

    def __init__(
        self,
        architecture: str,
        parts: Mapping[str, nnx.Module],
        features: int,
        *,
        channels: int,
        smallest: int,
        preprocessing: str,
        epsilon: float,
        stride: str,
        dtype: str,
        remat: bool,
    ):
        self.architecture = architecture
        self.parts = tuple(parts)
        for name, part in parts.items():
            setattr(self, name, part)
        self.entrance: str | None = None  # where the first parts are missing
        self.features = features
        self.channels = channels
        self.smallest = smallest
        self.preprocessing = preprocessing
        self.epsilon = epsilon
        self.stride = stride
        self.dtype = dtype
        self.remat = remat

    def prepare(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch height width planes"]:
        """What enters the first part: pixels scaled as the weights want them."""
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
        if self.preprocessing:
            return pixels.normalise(images, self.preprocessing)
        return images.astype(jnp.float32) / 127.5 - 1

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
        return _mean(x) if part is None else x

    def after(
        self, x: Float[Array, "batch *rest"], part: str
    ) -> Float[Array, "batch features"]:
        """The features of what entered a part."""
        if x.dtype == jnp.float16:  # as it may have been kept
            x = x.astype(self.dtype)
        return _mean(self._run(x, self.parts[self._place(part) :]))

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


def _mean(
    x: Float[Array, "batch *positions features"],
) -> Float[Array, "batch features"]:
    """The mean over positions, if there are any."""
    return jnp.mean(x.astype(jnp.float32), axis=tuple(range(1, x.ndim - 1)))


@nnx.remat
def _run_again(block, x):
    return block(x)
