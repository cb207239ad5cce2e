"""AutoAugment's CIFAR-10 policy: 25 sub-policies of two operations each.

The table is that of Cubuk et al., "AutoAugment: Learning Augmentation Strategies from
Data" (CVPR 2019), appendix. Each operation has a probability and a magnitude from 0 to
9, spread evenly over the range the paper gives it; where a range has two sides, the
side is drawn. As usual, enhancements move by up to 0.9 either way from 1, and lengths
are those of images 331 pixels wide, scaled.

No geometric operation of this policy comes after one that looks at the whole image or
at neighbouring pixels. So moving them all to the front changes nothing but how often
pixels are interpolated, and they can join the one warp of `augment`. What is outside is
mirrored there, not black.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import cv2
import numpy as np
from PIL import Image, ImageOps

DRAWS = 5  # numbers that `choose` takes
MAGNITUDES = 9  # the largest
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


class Change(NamedTuple):
    """One operation that is to be done."""

    name: str
    share: float  # of its largest magnitude; below 0 to the other side


def choose(draws: Sequence[float]) -> tuple[Change, ...]:
    """None, one or both operations of one sub-policy.

    Args:
        draws: Five numbers from [0, 1): which sub-policy, then for both of its
            operations whether it is done, and to which side.
    """
    which, *rest = draws
    steps = CIFAR10[min(int(which * len(CIFAR10)), len(CIFAR10) - 1)]
    chosen = []
    for (name, probability, magnitude), is_done, side in zip(
        steps, rest[::2], rest[1::2], strict=True
    ):
        if is_done < probability:
            share = magnitude / MAGNITUDES
            chosen.append(Change(name, share if side < 0.5 else -share))
    return tuple(chosen)


def matrix(changes: Sequence[Change], size: tuple[int, int]) -> np.ndarray:
    """What the geometric ones do to pixel positions (x, y, 1), float64 [3, 3].

    Args:
        changes: The others among them are left out.
        size: Height and width of the image.
    """
    product = np.eye(3)
    for change in changes:
        if change.name in GEOMETRY:
            product = GEOMETRY[change.name](change.share, *size) @ product
    return product


def recolour(changes: Sequence[Change], image: np.ndarray) -> np.ndarray:
    """The image after those that are not geometric; never written to."""
    for change in changes:
        if change.name in LEVELS:
            image = LEVELS[change.name](image, change.share)
    return image


# --- geometry: (share, height, width) -> positions to positions ---


def _shear_y(share: float, height: int, width: int) -> np.ndarray:
    slope = 0.3 * share  # about the left edge
    return np.array([[1.0, 0.0, 0.0], [slope, 1.0, slope / 2], [0.0, 0.0, 1.0]])


def _translation(x: float, y: float) -> np.ndarray:
    return np.array([[1.0, 0.0, x], [0.0, 1.0, y], [0.0, 0.0, 1.0]])


def _rotate(share: float, height: int, width: int) -> np.ndarray:
    angle = math.radians(30.0 * share)  # clockwise, about the centre
    cos, sin = math.cos(angle), math.sin(angle)
    turn = np.array([[cos, -sin, 0.0], [sin, cos, 0.0], [0.0, 0.0, 1.0]])
    x, y = (width - 1) / 2, (height - 1) / 2
    return _translation(x, y) @ turn @ _translation(-x, -y)


GEOMETRY: dict[str, Callable[[float, int, int], np.ndarray]] = {
    "shear_y": _shear_y,
    "translate_x": lambda share, _, width: _translation(150 / 331 * share * width, 0.0),
    "translate_y": lambda share, high, _: _translation(0.0, 150 / 331 * share * high),
    "rotate": _rotate,
}


# --- levels: (image, share) -> image ---


def _pillow(image: np.ndarray, change: Callable[..., Image.Image], *how) -> np.ndarray:
    picture = Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)
    return np.asarray(change(picture, *how)).reshape(image.shape)


def _posterize(image: np.ndarray, share: float) -> np.ndarray:
    """Keeps the highest bits of each level: 8, and 4 at the largest magnitude."""
    lost = round(4 * abs(share))
    return image >> lost << lost


def _contrast(image: np.ndarray, share: float) -> np.ndarray:
    return _from_level(image, float(round(_grey(image).mean())), share)


def _colour(image: np.ndarray, share: float) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    grey = cv2.cvtColor(_grey(image), cv2.COLOR_GRAY2RGB)
    return _away_from(grey, image, share)


def _sharpness(image: np.ndarray, share: float) -> np.ndarray:
    kernel = np.full((3, 3), 1 / 13, np.float32)
    kernel[1, 1] = 5 / 13
    smooth = cv2.filter2D(image, -1, kernel).reshape(image.shape)
    for edge in (np.s_[:1], np.s_[-1:], np.s_[:, :1], np.s_[:, -1:]):
        smooth[edge] = image[edge]  # which have no neighbours beyond
    return _away_from(smooth, image, share)


def _grey(image: np.ndarray) -> np.ndarray:
    if image.shape[2] == 1:
        return image[:, :, 0]
    return cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)


def _from_level(image: np.ndarray, level: float, share: float) -> np.ndarray:
    """Moves all levels away from one, or towards it. Pillow would cut fractions off."""
    table = level + (1.0 + 0.9 * share) * (np.arange(256) - level)
    return np.rint(table).clip(0, 255).astype(np.uint8)[image]


def _away_from(dull: np.ndarray, image: np.ndarray, share: float) -> np.ndarray:
    """The image moved away from a duller one, or towards it."""
    factor = 1.0 + 0.9 * share
    return cv2.addWeighted(image, factor, dull, 1.0 - factor, 0).reshape(image.shape)


LEVELS: dict[str, Callable[[np.ndarray, float], np.ndarray]] = {
    "invert": lambda image, _: 255 - image,
    # Inverts levels from a threshold on: 255, and 0 at the largest magnitude.
    "solarize": lambda image, share: _pillow(
        image, ImageOps.solarize, 255 * (1 - abs(share))
    ),
    "posterize": _posterize,
    "autocontrast": lambda image, _: _pillow(image, ImageOps.autocontrast),
    "equalize": lambda image, _: _pillow(image, ImageOps.equalize),
    "brightness": lambda image, share: _from_level(image, 0.0, share),
    "contrast": _contrast,
    "colour": _colour,
    "sharpness": _sharpness,
}
