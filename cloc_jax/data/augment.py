"""Random changes to uint8 images: one composed warp, a blur, one pass over colours.

A random crop, flips, affine and perspective changes are that warp. AutoAugment, which
strings operations of Pillow together, comes last.

Everything is a pure function of the image and of the generator's state. Draws do not
depend on the strengths: changing one strength leaves the other changes as they were.
"""

import math
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageEnhance, ImageOps

from cloc_jax.data import images

_STAY = np.eye(3).tolist()
_LUMINANCE = np.array([0.299, 0.587, 0.114])
_TO_YIQ = np.array(
    [_LUMINANCE, [0.595716, -0.274453, -0.321263], [0.211456, -0.522591, 0.311135]]
)
_FROM_YIQ = np.linalg.inv(_TO_YIQ)


class Augment(NamedTuple):
    """Strengths of the random changes; 0 is off."""

    flip_horizontal: float = 0.0  # probability
    flip_vertical: float = 0.0  # probability
    rotate_degrees: float = 0.0  # angle uniform in [-x, x], clockwise
    translate: float = 0.0  # fraction of each side, uniform in [-x, x]
    scale: float = 0.0  # factor uniform in [1 - x, 1 + x]
    shear_degrees: float = 0.0  # angle of horizontal shear, uniform in [-x, x]
    perspective: float = 0.0  # shift of each corner in every other image
    blur_sigma: float = 0.0  # in pixels, uniform in [0, x]
    brightness: float = 0.0  # added, fraction of 255, uniform in [-x, x]
    contrast: float = 0.0  # factor about the mean level, uniform in [1 - x, 1 + x]
    saturation: float = 0.0  # factor uniform in [1 - x, 1 + x]; colour images only
    hue: float = 0.0  # fraction of the circle, uniform in [-x, x]; colour images only
    random_crop: float = 0.0  # fraction of each side that is cut away
    autoaugment: float = 0.0  # probability of a sub-policy of AutoAugment (CIFAR-10)

    @property
    def is_on(self) -> bool:
        """Whether any change is made at all."""
        return any(self)


def apply(augment: Augment, image: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """The image, changed at random: uint8 of the same shape.

    Smaller only by `random_crop`; see `images.cropped`. The image is never written to,
    and itself returned where nothing changes it.
    """
    if not augment.is_on:
        return image
    height, width = image.shape[:2]
    size = images.cropped((height, width), augment.random_crop)
    move = matrix(augment, rng, size)
    blur, brightness, contrast, saturation, hue = rng.random(5).tolist()
    across, down, policy, *rest = rng.random(8).tolist()
    if size != (height, width):
        # Whole pixels, so that a crop alone copies them. The window is cut out first:
        # what other changes bring in from beyond it is image, not mirrored, if it can.
        left = min(int(across * (width - size[1] + 1)), width - size[1])
        top = min(int(down * (height - size[0] + 1)), height - size[0])
        move[:, 2] -= move[:, :2] @ (left, top)
    image = warp(image, move, size)
    if sigma := augment.blur_sigma * blur:
        image = blur_image(image, sigma)
    image = _recolour(
        image,
        brightness=255.0 * augment.brightness * (2.0 * brightness - 1.0),
        contrast=1.0 + augment.contrast * (2.0 * contrast - 1.0),
        saturation=1.0 + augment.saturation * (2.0 * saturation - 1.0),
        hue=augment.hue * (2.0 * hue - 1.0),
    )
    return autoaugment(image, rest) if policy < augment.autoaugment else image


def matrix(
    augment: Augment, rng: np.random.Generator, size: tuple[int, int]
) -> np.ndarray:
    """A random homography, float64 [3, 3], from old to new pixel positions (x, y, 1).

    In order: flips, scale, shear, rotation and translation about the centre of the
    image, then perspective. Sixteen numbers are drawn, whatever the strengths.
    """
    height, width = size
    draws = rng.random(16)
    flip_x, flip_y, bend = draws[:3].tolist()
    angle, shift_x, shift_y, factor, slant = (2.0 * draws[3:8] - 1.0).tolist()
    corners = 2.0 * draws[8:].reshape(4, 2) - 1.0

    # The linear part: rotation @ shear @ scale @ flips.
    angle = math.radians(augment.rotate_degrees * angle)
    cos, sin = math.cos(angle), math.sin(angle)
    slope = math.tan(math.radians(augment.shear_degrees * slant))
    factor = 1.0 + augment.scale * factor
    along_x = -factor if flip_x < augment.flip_horizontal else factor
    along_y = -factor if flip_y < augment.flip_vertical else factor
    xx, xy = cos * along_x, (cos * slope - sin) * along_y
    yx, yy = sin * along_x, (sin * slope + cos) * along_y

    centre_x, centre_y = (width - 1) / 2, (height - 1) / 2
    move_x = centre_x - xx * centre_x - xy * centre_y
    move_y = centre_y - yx * centre_x - yy * centre_y
    move_x += augment.translate * width * shift_x
    move_y += augment.translate * height * shift_y
    affine = np.array([[xx, xy, move_x], [yx, yy, move_y], [0.0, 0.0, 1.0]])

    if not augment.perspective or bend >= 0.5:
        return affine
    # The corners of the area, half a pixel outside the centres of the outer pixels,
    # so that images one pixel wide still span a quadrilateral.
    right, bottom = width - 0.5, height - 0.5
    old = np.array([[-0.5, -0.5], [right, -0.5], [right, bottom], [-0.5, bottom]])
    new = old + augment.perspective * corners * (width, height)
    bent = cv2.getPerspectiveTransform(old.astype(np.float32), new.astype(np.float32))
    return bent @ affine


def warp(
    image: np.ndarray, matrix: np.ndarray, size: tuple[int, int] | None = None
) -> np.ndarray:
    """The image moved by a homography [3, 3]; outside it is mirrored."""
    height, width, channels = image.shape
    rows, columns = size or (height, width)
    if (rows, columns) == (height, width) and matrix.tolist() == _STAY:
        return image
    move = cv2.warpPerspective
    if matrix[2].tolist() == _STAY[2]:
        move, matrix = cv2.warpAffine, matrix[:2]  # the faster one
    warped = move(
        image,
        matrix,
        (columns, rows),
        flags=cv2.INTER_LINEAR,
        borderMode=cv2.BORDER_REFLECT_101,
    )
    return warped.reshape(rows, columns, channels)  # OpenCV drops a lone channel


def blur_image(image: np.ndarray, sigma: float) -> np.ndarray:
    """The image smoothed by a Gaussian of that many pixels."""
    # GaussianBlur takes a window just as wide, and two to five times as long.
    kernel = cv2.getGaussianKernel(round(6.0 * sigma + 1.0) | 1, sigma)
    return cv2.sepFilter2D(image, -1, kernel, kernel).reshape(image.shape)


def _recolour(
    image: np.ndarray,
    *,
    brightness: float,
    contrast: float,
    saturation: float,
    hue: float,
) -> np.ndarray:
    """Changes levels linearly: (level - mean) * contrast + mean + brightness.

    The mean is that of the luminance, so contrast alone keeps brightness. Saturation
    and hue scale and turn the chroma plane of YIQ: it is linear and keeps luminance.
    """
    is_colour = image.shape[2] == 3
    is_level = brightness == 0.0 and contrast == 1.0
    is_chroma = is_colour and not (saturation == 1.0 and hue == 0.0)
    if is_level and not is_chroma:
        return image
    means = cv2.mean(image)
    mean = float(_LUMINANCE @ means[:3]) if is_colour else means[0]
    offset = (1.0 - contrast) * mean + brightness
    if not is_chroma:
        table = np.arange(256, dtype=np.float64) * contrast + offset
        table = np.clip(np.rint(table), 0, 255).astype(np.uint8)
        return cv2.LUT(image, table).reshape(image.shape)
    angle = 2.0 * math.pi * hue
    cos, sin = saturation * math.cos(angle), saturation * math.sin(angle)
    turn = np.array([[1.0, 0.0, 0.0], [0.0, cos, -sin], [0.0, sin, cos]])
    linear = contrast * (_FROM_YIQ @ turn @ _TO_YIQ)
    return cv2.transform(image, np.column_stack([linear, np.full(3, offset)]))


# --- AutoAugment ---

# Operation, probability, magnitude. Some have no use for a magnitude.
_Step = tuple[str, float, int]
CIFAR10: tuple[tuple[_Step, _Step], ...] = (
    (("invert", 0.1, 7), ("contrast", 0.2, 6)),
    (("rotate", 0.7, 2), ("translate_x", 0.3, 9)),
    (("sharpness", 0.8, 1), ("sharpness", 0.9, 3)),
    (("shear_y", 0.5, 8), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.5, 8), ("equalize", 0.9, 2)),
    (("shear_y", 0.2, 7), ("posterize", 0.3, 7)),
    (("colour", 0.4, 3), ("brightness", 0.6, 7)),
    (("sharpness", 0.3, 9), ("brightness", 0.7, 9)),
    (("equalize", 0.6, 5), ("equalize", 0.5, 1)),
    (("contrast", 0.6, 7), ("sharpness", 0.6, 5)),
    (("colour", 0.7, 7), ("translate_x", 0.5, 8)),
    (("equalize", 0.3, 7), ("autocontrast", 0.4, 8)),
    (("translate_y", 0.4, 3), ("sharpness", 0.2, 6)),
    (("brightness", 0.9, 6), ("colour", 0.2, 8)),
    (("solarize", 0.5, 2), ("invert", 0.0, 3)),
    (("equalize", 0.2, 0), ("autocontrast", 0.6, 0)),
    (("equalize", 0.2, 8), ("equalize", 0.6, 4)),
    (("colour", 0.9, 9), ("equalize", 0.6, 6)),
    (("autocontrast", 0.8, 4), ("solarize", 0.2, 8)),
    (("brightness", 0.1, 3), ("colour", 0.7, 0)),
    (("solarize", 0.4, 5), ("autocontrast", 0.9, 3)),
    (("translate_y", 0.9, 9), ("translate_y", 0.7, 9)),
    (("autocontrast", 0.9, 2), ("solarize", 0.8, 3)),
    (("equalize", 0.8, 8), ("invert", 0.1, 3)),
    (("translate_y", 0.7, 9), ("autocontrast", 0.9, 1)),
)
_Operation = Callable[[Image.Image, float], Image.Image]


def autoaugment(image: np.ndarray, draws: Sequence[float]) -> np.ndarray:
    """The image after a sub-policy of AutoAugment's policy for CIFAR-10.

    Cubuk et al., "AutoAugment: Learning Augmentation Strategies from Data" (CVPR 2019),
    appendix. Magnitudes from 0 to 9 are spread evenly over the range the paper gives an
    operation. As usual, enhancements move by up to 0.9 either way from 1, and lengths
    are those of images 331 pixels wide, scaled. What is outside of the image is black.

    `draws` are five numbers from [0, 1): which sub-policy, then for both of its
    operations whether it is done, and to which side.
    """
    which, *rest = draws
    steps = CIFAR10[min(int(which * len(CIFAR10)), len(CIFAR10) - 1)]
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    for (name, probability, magnitude), is_done, side in zip(
        steps, rest[::2], rest[1::2], strict=True
    ):
        if is_done < probability:
            share = magnitude / 9  # of the largest; below 0 to the other side
            picture = OPERATIONS[name](picture, share if side < 0.5 else -share)
    return np.array(picture).reshape(image.shape)


def _enhance(kind: Callable[[Image.Image], Any]) -> _Operation:
    return lambda picture, share: kind(picture).enhance(1.0 + 0.9 * share)


def _move(
    picture: Image.Image, *, x: float = 0.0, y: float = 0.0, slope: float = 0.0
) -> Image.Image:
    """Moved by shares of the longest ways, and sheared up and down."""
    # Pillow wants the way back, from new to old positions.
    left, up = -150 / 331 * x * picture.width, -150 / 331 * y * picture.height
    how = (1.0, 0.0, left, -slope, 1.0, up), Image.Resampling.BILINEAR
    return picture.transform(picture.size, Image.Transform.AFFINE, *how)


OPERATIONS: dict[str, _Operation] = {
    "shear_y": lambda picture, share: _move(picture, slope=0.3 * share),
    "translate_x": lambda picture, share: _move(picture, x=share),
    "translate_y": lambda picture, share: _move(picture, y=share),
    # Clockwise, which for Pillow is below 0.
    "rotate": lambda picture, share: picture.rotate(
        -30 * share, Image.Resampling.BILINEAR
    ),
    "invert": lambda picture, _: ImageOps.invert(picture),
    "solarize": lambda picture, share: ImageOps.solarize(
        picture, round(255 * (1 - abs(share)))
    ),
    "posterize": lambda picture, share: ImageOps.posterize(
        picture, 8 - round(4 * abs(share))
    ),
    "autocontrast": lambda picture, _: ImageOps.autocontrast(picture),
    "equalize": lambda picture, _: ImageOps.equalize(picture),
    "brightness": _enhance(ImageEnhance.Brightness),
    "contrast": _enhance(ImageEnhance.Contrast),
    "colour": _enhance(ImageEnhance.Color),
    "sharpness": _enhance(ImageEnhance.Sharpness),
}
