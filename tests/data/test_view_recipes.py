"""Random views: each change against a slow definition of it, in plain numpy."""

import colorsys

import cv2
import numpy as np
import pytest
from fixed_draws import Fixed, noise

from cloc_jax.data import view_recipes
from cloc_jax.data.view_recipes import RECIPES, Recipe

WHOLE = Recipe(crop_area=(1.0, 1.0), crop_ratio=(1.0, 1.0))  # a square image itself
EVERYTHING = Recipe(
    crop_area=(0.2, 1.0),
    flip=0.5,
    brightness=0.4,
    contrast=0.4,
    saturation=0.4,
    hue=0.1,
    jitter_probability=0.8,
    grey_probability=0.2,
    blur_probability=0.5,
    solarise_probability=0.3,
)
LUMINANCE = np.array([0.299, 0.587, 0.114])


def view(recipe, image, size=None, seed=0) -> np.ndarray:
    rng = np.random.default_rng(seed)
    return view_recipes.apply(recipe, image, size or image.shape[:2], rng)


def assert_rounded(levels: np.ndarray, exact: np.ndarray) -> None:
    """Levels are the nearest to the exact ones, either of them at a tie."""
    np.testing.assert_allclose(levels, np.clip(exact, 0, 255), rtol=0, atol=0.501)


# --- the oracle: one change of all pixels, rounded and clipped ---


def luminance(image: np.ndarray) -> np.ndarray:
    return np.rint(image @ LUMINANCE) if image.shape[2] == 3 else image[:, :, 0]


def slow_saturation(image: np.ndarray, factor: float) -> np.ndarray:
    grey = luminance(image)[:, :, None]
    return np.rint(np.clip(factor * (image - grey) + grey, 0, 255))


def slow_hue(image: np.ndarray, shift: float) -> np.ndarray:
    turned = np.zeros(image.shape)
    for index in np.ndindex(image.shape[:2]):
        hue, saturation, value = colorsys.rgb_to_hsv(*(image[index] / 255.0))
        turned[index] = colorsys.hsv_to_rgb((hue + shift) % 1.0, saturation, value)
    return np.rint(255.0 * turned)


# --- shapes, purity, draws ---


@pytest.mark.parametrize("recipe", [WHOLE, EVERYTHING, *RECIPES.values()])
@pytest.mark.parametrize("channels", [1, 3])
def test_views_have_the_size_asked_for_and_memory_of_their_own(recipe, channels):
    for seed, (height, width) in enumerate([(24, 24), (33, 57), (2, 90), (5, 1)]):
        image = noise((height, width, channels), seed)
        before = image.copy()
        image.flags.writeable = False
        for size in [(24, 24), (64, 48), (8, 100), (1, 1), (height, width)]:
            seen = view(recipe, image, size, seed)
            assert seen.shape == (*size, channels)
            assert seen.dtype == np.uint8
            assert not np.shares_memory(seen, image)
        np.testing.assert_array_equal(image, before)


# --- crop, flip, resizing ---


@pytest.mark.parametrize("area", [(0.08, 1.0), (0.05, 0.14)])
def test_crops_are_within_bounds_and_spread_over_them(area):
    recipe = Recipe(crop_area=area)
    height, width = 1000, 1100
    rng = np.random.default_rng(0)
    boxes = np.array(
        [
            view_recipes.crop(recipe, (height, width), rng.random(22).tolist())
            for _ in range(3000)
        ]
    )
    top, left, rows, columns = boxes.T
    assert min(top.min(), left.min()) >= 0
    assert (top + rows).max() <= height
    assert (left + columns).max() <= width
    areas, ratios = rows * columns / (height * width), columns / rows
    slack = 0.006  # sides are whole pixels
    assert area[0] * (1 - slack) < areas.min()
    assert areas.max() < area[1] * (1 + slack)
    assert 3 / 4 * (1 - slack) < ratios.min()
    assert ratios.max() < 4 / 3 * (1 + slack)
    for start, free in [(top, height - rows), (left, width - columns)]:
        share = start[free > 20] / free[free > 20]
        assert share.min() < 0.01 and share.max() > 0.99


def test_view_is_the_pixels_of_the_crop():
    image = noise((200, 250, 3))
    recipe = Recipe(crop_area=(0.1, 0.6))
    for seed in range(20):
        draws = np.random.default_rng(seed).random(22).tolist()
        top, left, rows, columns = view_recipes.crop(recipe, (200, 250), draws)
        expected = image[top : top + rows, left : left + columns]
        seen = view(recipe, image, (rows, columns), seed)
        np.testing.assert_array_equal(seen, expected)
        flipped = view(recipe._replace(flip=1.0), image, (rows, columns), seed)
        np.testing.assert_array_equal(flipped, expected[:, ::-1])


@pytest.mark.parametrize("probability", [0.2, 0.8])
def test_each_change_has_its_probability_and_its_own_chance(probability):
    image = noise((8, 8, 3))
    changes = [
        dict(flip=probability),
        dict(jitter_probability=probability, brightness=0.8),
        dict(grey_probability=probability),
        dict(blur_probability=probability, blur_sigma=(50.0, 50.0)),
        dict(solarise_probability=probability),
    ]
    happened = np.array(
        [
            [
                (view(WHOLE._replace(**change), image, seed=seed) != image).any()
                for change in changes
            ]
            for seed in range(1000)
        ]
    )  # [seed, change]
    np.testing.assert_allclose(happened.mean(axis=0), probability, atol=0.05)
    np.testing.assert_allclose(np.corrcoef(happened.T), np.eye(5), atol=0.12)


# --- colours ---


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.75, 0.999])
@pytest.mark.parametrize("strength", [0.4, 0.8, 1.5])
@pytest.mark.parametrize("channels", [1, 3])
def test_jitter_of_levels_is_exact(draw, strength, channels):
    image = noise((32, 32, channels))
    low = max(0.0, 1.0 - strength)
    factor = low + draw * (1.0 + strength - low)
    jittering = WHOLE._replace(jitter_probability=1.0)

    def seen(**strengths):
        recipe = jittering._replace(**strengths)
        return view_recipes.apply(recipe, image, (32, 32), Fixed(draw))

    assert_rounded(seen(brightness=strength), factor * image)
    mean = luminance(image).mean()
    atol = 1.1 * strength * (channels == 3) * 0.02  # ties of luminances
    np.testing.assert_allclose(
        seen(contrast=strength),
        np.clip(factor * (image - mean) + mean, 0, 255),
        rtol=0,
        atol=0.501 + atol,
    )
    if channels == 3:
        np.testing.assert_allclose(
            seen(saturation=strength), slow_saturation(image, factor), atol=1
        )
    else:
        np.testing.assert_array_equal(seen(saturation=strength, hue=0.5), image)


@pytest.mark.parametrize("draw", [0.0, 0.3, 0.999])
@pytest.mark.parametrize("strength", [0.1, 0.2, 0.5])
def test_jitter_of_hue(draw, strength):
    image = noise((16, 16, 3))
    recipe = WHOLE._replace(jitter_probability=1.0, hue=strength)
    seen = view_recipes.apply(recipe, image, (16, 16), Fixed(draw))
    off = np.abs(seen - slow_hue(image, strength * (2 * draw - 1)))
    # There are 256 hues, and a sixth of the circle is 255 levels of one channel.
    assert off.mean() < 1.5
    assert off.max() <= 12
    # The largest and the smallest channel only change places.
    np.testing.assert_allclose(seen.max(-1), image.max(-1).astype(int), atol=1)


@pytest.mark.parametrize(
    "draw, order",  # of the 24 of brightness, contrast, saturation and hue
    [(0.01, "bcs"), (0.09, "bsc"), (0.99, "scb")],
)
def test_jitter_applies_its_changes_in_the_order_drawn(draw, order):
    image = noise((32, 32, 3))
    changes = {name: {name: 0.8} for name in ("brightness", "contrast", "saturation")}

    def seen(image, strengths):
        recipe = WHOLE._replace(jitter_probability=1.0, **strengths)
        return view_recipes.apply(recipe, image, (32, 32), Fixed(draw))

    together = seen(image, dict.fromkeys(changes, 0.8))
    for name in sorted(changes, key=lambda name: order.index(name[0])):
        image = seen(image, changes[name])
    np.testing.assert_array_equal(together, image)


@pytest.mark.parametrize("recipe", [EVERYTHING, RECIPES["dino_global_2"]])
@pytest.mark.parametrize("channels", [1, 3])
def test_solarise_and_greyscale(recipe, channels):
    image = noise((40, 40, channels))
    recipe = recipe._replace(grey_probability=0.0, solarise_probability=0.0)
    for seed in range(10):
        plain = view(recipe, image, (24, 24), seed)
        solarised = view(
            recipe._replace(solarise_probability=1.0), image, (24, 24), seed
        )
        expected = np.where(plain >= 128, 255 - plain.astype(int), plain)
        np.testing.assert_array_equal(solarised, expected)
        # Greyscale comes before the blur.
        sharp = recipe._replace(blur_probability=0.0)
        plain = view(sharp, image, (24, 24), seed)
        grey = view(sharp._replace(grey_probability=1.0), image, (24, 24), seed)
        if channels == 1:
            np.testing.assert_array_equal(grey, plain)
        else:
            exact = (plain @ LUMINANCE)[:, :, None].repeat(3, axis=2)
            np.testing.assert_allclose(grey, exact, rtol=0, atol=0.51)


# --- blur ---


def test_blur_scales_with_the_shorter_side():
    image = noise((64, 64, 1))
    recipe = WHOLE._replace(blur_probability=1.0, blur_sigma=(7.0, 7.0))
    for size, sigma in [((64, 128), 2.0), ((128, 64), 2.0), ((96, 96), 3.0)]:
        sharp = view(WHOLE, image, size)
        expected = cv2.GaussianBlur(sharp.astype(np.float64), (31, 31), sigma)
        np.testing.assert_allclose(view(recipe, image, size)[:, :, 0], expected, atol=2)
