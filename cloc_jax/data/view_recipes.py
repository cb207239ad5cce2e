"""Random views of uint8 images for contrastive and self-supervised methods.

Every view takes the same number of draws, whatever the recipe and the image: changing
one strength leaves the other changes as they were.
"""

import itertools
import math
from collections.abc import Sequence
from typing import NamedTuple

import cv2
import numpy as np

from cloc_jax.data import augment, images

_TRIES = 10  # candidate boxes of a crop, as in torchvision
CROP_DRAWS = 2 * _TRIES + 2  # numbers that `crop` takes
_OTHER_DRAWS = 11
_BLUR_SIDE = 224  # pixels of the shorter side for which blur_sigma is given
_ORDERS = tuple(itertools.permutations(range(4)))  # of the four changes of the jitter


class Recipe(NamedTuple):
    """Strengths and probabilities of the random changes; 0 is off."""

    crop_area: tuple[float, float]  # fraction of the image's area, uniform
    crop_ratio: tuple[float, float] = (3 / 4, 4 / 3)  # width / height, log-uniform
    flip: float = 0.0  # probability; left and right
    brightness: float = 0.0  # factor uniform in [max(0, 1 - x), 1 + x]
    contrast: float = 0.0  # likewise, about the mean luminance
    saturation: float = 0.0  # likewise; colour images only
    hue: float = 0.0  # fraction of the circle, uniform in [-x, x]; colour images only
    jitter_probability: float = 0.0  # of these four together, in random order
    grey_probability: float = 0.0  # colour images only
    blur_probability: float = 0.0
    # In pixels, uniform, where the view's shorter side has 224; scaled with that side.
    blur_sigma: tuple[float, float] = (0.1, 2.0)
    solarise_probability: float = 0.0  # levels from 128 on are inverted


_RNC = Recipe(
    crop_area=(0.2, 1.0),
    flip=0.5,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    jitter_probability=0.8,
    grey_probability=0.2,
)
_DINO = _RNC._replace(crop_area=(0.14, 1.0), saturation=0.2)
# The values of the papers' released code. All jitter as torchvision does, although
# SimCLR's own code takes the mean of each channel for contrast. DINO has two pairs of
# crop areas; these are for ResNets, since all encoders here are convolutional (vision
# transformers: 0.4 to 1 and 0.05 to 0.4).
RECIPES: dict[str, Recipe] = {
    "simclr": _RNC._replace(
        crop_area=(0.08, 1.0),
        brightness=0.8,
        contrast=0.8,
        saturation=0.8,
        hue=0.2,
        blur_probability=0.5,
    ),
    "rnc": _RNC,  # and SupCon
    "dino_global_1": _DINO._replace(blur_probability=1.0),
    "dino_global_2": _DINO._replace(blur_probability=0.1, solarise_probability=0.2),
    "dino_local": _DINO._replace(
        crop_area=(0.05, 0.14),
        blur_probability=0.5,
        # DINO blurs its local views by 0.1 to 2 pixels too, and they have 96.
        blur_sigma=(0.1 * _BLUR_SIDE / 96, 2.0 * _BLUR_SIDE / 96),
    ),
}


def apply(
    recipe: Recipe, image: np.ndarray, size: tuple[int, int], rng: np.random.Generator
) -> np.ndarray:
    """A random view of the image: uint8 [*size, channels], in memory of its own.

    The image is never written to. A grey image skips saturation, hue and greyscale.

    A side of the crop that shrinks is averaged over areas, one that grows is
    interpolated linearly. 33 numbers are drawn, whatever the recipe.
    """
    draws = rng.random(CROP_DRAWS + _OTHER_DRAWS).tolist()
    flip, jitter, *strengths, grey, blur, sigma, solarise = draws[CROP_DRAWS:]

    height, width, channels = image.shape
    top, left, rows, columns = crop(recipe, (height, width), draws[:CROP_DRAWS])
    window = image[top : top + rows, left : left + columns]
    view = images.resize(window, size)
    if flip < recipe.flip:
        view = cv2.flip(view, 1).reshape(view.shape)
    elif view is window:  # nothing to resize
        view = window.copy()

    if jitter < recipe.jitter_probability:
        view = _jitter(recipe, view, strengths)
    if channels == 3 and grey < recipe.grey_probability:
        view = _greyscale(view)
    if blur < recipe.blur_probability:
        low, high = recipe.blur_sigma
        sigma = (low + (high - low) * sigma) * min(size) / _BLUR_SIDE
        view = augment.blur_image(view, sigma)
    if solarise < recipe.solarise_probability:
        # Of a level and its inverse, exactly one is below 128.
        view = np.minimum(view, 255 - view)
    return view


def crop(
    recipe: Recipe, size: tuple[int, int], draws: Sequence[float]
) -> tuple[int, int, int, int]:
    """Top, left, height and width of a random crop, in whole pixels.

    The first of ten candidates that fits, else the largest allowed box at the centre.

    `draws` are CROP_DRAWS numbers from [0, 1): area and ratio of each candidate, then
    the position down and across.
    """
    height, width = size
    *candidates, down, across = draws
    smallest, largest = (fraction * height * width for fraction in recipe.crop_area)
    narrowest, widest = map(math.log, recipe.crop_ratio)
    for draw_area, draw_ratio in zip(candidates[::2], candidates[1::2], strict=True):
        area = smallest + (largest - smallest) * draw_area
        ratio = math.exp(narrowest + (widest - narrowest) * draw_ratio)
        rows, columns = round(math.sqrt(area / ratio)), round(math.sqrt(area * ratio))
        if 0 < rows <= height and 0 < columns <= width:
            top = min(int(down * (height - rows + 1)), height - rows)
            left = min(int(across * (width - columns + 1)), width - columns)
            return top, left, rows, columns
    low, high = recipe.crop_ratio
    rows = max(min(height, round(width / low)), 1)
    columns = max(min(width, round(height * high)), 1)
    return (height - rows) // 2, (width - columns) // 2, rows, columns


def _jitter(recipe: Recipe, image: np.ndarray, draws: Sequence[float]) -> np.ndarray:
    """As torchvision's ColorJitter: each change rounds and clips the levels.

    Writes to the image: a new array for each change would cost half as much again,
    since the memory of large ones goes back to the system each time.
    """
    brightness, contrast, saturation, hue, order = draws
    changes = [
        (_linear, _factor(recipe.brightness, brightness)),
        (_scale_contrast, _factor(recipe.contrast, contrast)),
        (_scale_saturation, _factor(recipe.saturation, saturation)),
        (_shift_hue, recipe.hue * (2.0 * hue - 1.0)),
    ]
    for index in _ORDERS[min(int(order * len(_ORDERS)), len(_ORDERS) - 1)]:
        change, amount = changes[index]
        image = change(image, amount)
    return image


def _factor(strength: float, draw: float) -> float:
    low = max(0.0, 1.0 - strength)
    return low + (1.0 + strength - low) * draw


def _scale_contrast(image: np.ndarray, factor: float) -> np.ndarray:
    is_colour = image.shape[2] == 3
    luminance = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY) if is_colour else image
    return _linear(image, factor, (1.0 - factor) * cv2.mean(luminance)[0])


def _scale_saturation(image: np.ndarray, factor: float) -> np.ndarray:
    if image.shape[2] == 1:
        return image
    grey = _greyscale(image)
    return cv2.addWeighted(image, factor, grey, 1.0 - factor, 0.0, dst=image)


def _shift_hue(image: np.ndarray, shift: float) -> np.ndarray:
    """Turns the hue of HSV, in steps of 1/256 of the circle."""
    steps = round(256 * shift) % 256
    if image.shape[2] == 1 or steps == 0:
        return image
    hsv = cv2.cvtColor(image, cv2.COLOR_RGB2HSV_FULL)
    hsv[:, :, 0] += np.uint8(steps)  # wraps around, as the circle does
    return cv2.cvtColor(hsv, cv2.COLOR_HSV2RGB_FULL, dst=image)


def _greyscale(image: np.ndarray) -> np.ndarray:
    luminance = cv2.cvtColor(image, cv2.COLOR_RGB2GRAY)
    return cv2.cvtColor(luminance, cv2.COLOR_GRAY2RGB)


def _linear(image: np.ndarray, factor: float, offset: float = 0.0) -> np.ndarray:
    # Faster than a table; convertScaleAbs would make negative levels positive.
    changed = cv2.addWeighted(image, factor, image, 0.0, offset, dst=image)
    return changed.reshape(image.shape)
