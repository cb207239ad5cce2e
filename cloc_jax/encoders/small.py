"""A small residual network, for the quick start and for images without much detail."""

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Float, UInt8


class Block(nnx.Module):
    """Two 3x3 convolutions with a shortcut, as in ResNet-18."""

    def __init__(self, inputs: int, outputs: int, stride: int, *, rngs: nnx.Rngs):
        self.conv1 = _conv(inputs, outputs, 3, stride, rngs)
        self.norm1 = _norm(outputs, rngs)
        self.conv2 = _conv(outputs, outputs, 3, 1, rngs)
        self.norm2 = _norm(outputs, rngs)
        changes = stride != 1 or inputs != outputs
        self.shortcut = _conv(inputs, outputs, 1, stride, rngs) if changes else None

    def __call__(
        self, x: Float[Array, "batch height width inputs"]
    ) -> Float[Array, "batch height2 width2 outputs"]:
        y = jax.nn.relu(self.norm1(self.conv1(x)))
        y = self.norm2(self.conv2(y))
        return jax.nn.relu(y + (x if self.shortcut is None else self.shortcut(x)))


class SmallResNet(nnx.Module):
    """A strided stem and one residual block a width, averaged over the image."""

    is_signed = False  # ends in a ReLU

    def __init__(
        self,
        *,
        channels: int,
        widths: tuple[int, ...] = (16, 32, 64, 128),
        rngs: nnx.Rngs,
    ):
        if len(widths) != 4 or min(widths) < 1:
            raise ValueError(
                f"encoder.widths is {tuple(widths)}; give the channels of the four "
                "layers, such as (16, 32, 64, 128)."
            )
        self.features = widths[-1]
        self.stem = nnx.Sequential(
            _conv(channels, widths[0], 3, 2, rngs), _norm(widths[0], rngs), jax.nn.relu
        )
        self.layer1 = Block(widths[0], widths[0], 1, rngs=rngs)
        self.layer2 = Block(widths[0], widths[1], 2, rngs=rngs)
        self.layer3 = Block(widths[1], widths[2], 2, rngs=rngs)
        self.layer4 = Block(widths[2], widths[3], 2, rngs=rngs)

    def __call__(
        self, images: UInt8[Array, "batch height width channels"]
    ) -> Float[Array, "batch features"]:
        x = images.astype(jnp.float32) / 127.5 - 1
        x = self.stem(x)
        for layer in (self.layer1, self.layer2, self.layer3, self.layer4):
            x = layer(x)
        return jnp.mean(x, axis=(1, 2))


def _conv(inputs: int, outputs: int, kernel: int, stride: int, rngs: nnx.Rngs):
    # Explicit padding: SAME pads strided convolutions by image size, unevenly.
    pad = kernel // 2
    return nnx.Conv(
        inputs,
        outputs,
        (kernel, kernel),
        strides=stride,
        padding=((pad, pad), (pad, pad)),
        use_bias=False,
        kernel_init=nnx.initializers.he_normal(),
        rngs=rngs,
    )


def _norm(features: int, rngs: nnx.Rngs):
    return nnx.BatchNorm(features, momentum=0.9, rngs=rngs)
