"""AutoAugment: every operation against Pillow, and the policy against its table."""

import collections

import numpy as np
import pytest
from fixed_draws import noise
from PIL import Image, ImageEnhance, ImageOps

from cloc_jax.data import augment, autoaugment
from cloc_jax.data.autoaugment import Change

MAGNITUDES = np.arange(10) / 9  # shares of the largest


def narrow(shape=(60, 50, 3), seed=0) -> np.ndarray:
    """Levels that cover a part of the scale, another one in each channel."""
    levels = np.random.default_rng(seed).normal(100, 12, shape)
    return (levels + 15 * np.arange(shape[2])).clip(0, 255).astype(np.uint8)


def pillow(image: np.ndarray) -> Image.Image:
    return Image.fromarray(image[:, :, 0] if image.shape[2] == 1 else image)


def array(image: Image.Image) -> np.ndarray:
    found = np.asarray(image)
    return found[:, :, None] if found.ndim == 2 else found


def done(name: str, share: float, image: np.ndarray) -> np.ndarray:
    before = image.copy()
    image.flags.writeable = False
    out = autoaugment.recolour([Change(name, share)], image)
    np.testing.assert_array_equal(image, before)
    assert out.dtype == np.uint8 and out.shape == image.shape
    return out


IMAGES = {
    "colour": noise(),
    "grey": noise((33, 41, 1)),
    "narrow": narrow(),
    "small": noise((2, 3, 3)),
    "one pixel": noise((1, 1, 1)),
    "one level": np.full((9, 9, 3), 77, np.uint8),
}
every_image = pytest.mark.parametrize("image", IMAGES.values(), ids=IMAGES)


@every_image
@pytest.mark.parametrize(
    ("name", "share", "oracle"),
    [
        ("solarize", 0.4, lambda image: ImageOps.solarize(image, 255 * 0.6)),
        ("solarize", -1.0, lambda image: ImageOps.solarize(image, 0)),
        ("posterize", 1 / 9, lambda image: ImageOps.posterize(image, 8)),
        ("posterize", -4 / 9, lambda image: ImageOps.posterize(image, 6)),
        ("posterize", 1.0, lambda image: ImageOps.posterize(image, 4)),
        ("invert", -0.4, ImageOps.invert),
        ("autocontrast", 0.0, ImageOps.autocontrast),
        ("equalize", 1.0, ImageOps.equalize),
    ],
)
def test_operations_on_levels(image, name, share, oracle):
    np.testing.assert_array_equal(
        done(name, share, image), array(oracle(pillow(image)))
    )


@every_image
@pytest.mark.parametrize("share", [-1.0, -4 / 9, 0.0, 2 / 9, 1.0])
@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        ("brightness", ImageEnhance.Brightness),
        ("contrast", ImageEnhance.Contrast),
        ("colour", ImageEnhance.Color),
        ("sharpness", ImageEnhance.Sharpness),
    ],
)
def test_enhancements(image, name, oracle, share):
    out = done(name, share, image)
    expected = array(oracle(pillow(image)).enhance(1 + 0.9 * share))
    # Pillow cuts fractions off, and twice at that.
    np.testing.assert_allclose(out.astype(int), expected.astype(int), atol=2)
    if share == 0:
        np.testing.assert_array_equal(out, image)


WAVES = (
    127
    + 50 * np.sin(np.arange(64)[:, None] / 6 + np.arange(50) / 9)
    + 50 * np.cos(np.arange(50) / 5)
)


@pytest.mark.parametrize("magnitude", [1, 4, 9])
@pytest.mark.parametrize("side", [-1, 1])
@pytest.mark.parametrize(
    ("name", "oracle"),
    [
        # Pillow wants the way back, from new to old positions.
        ("shear_y", lambda m: (1, 0, 0, -0.3 * m, 1, 0)),
        ("translate_x", lambda m: (1, 0, -150 / 331 * m * 50, 0, 1, 0)),
        ("translate_y", lambda m: (1, 0, 0, 0, 1, -150 / 331 * m * 64)),
        ("rotate", None),
    ],
)
def test_geometry(name, oracle, magnitude, side):
    image = WAVES.round().astype(np.uint8)[:, :, None]
    share = side * MAGNITUDES[magnitude]
    out = augment.warp(image, autoaugment.matrix([Change(name, share)], (64, 50)))

    def by_pillow(image):
        image = pillow(image)
        if oracle is None:  # counter-clockwise
            return array(image.rotate(-30 * share, Image.Resampling.BILINEAR))
        coefficients = oracle(share)
        how = Image.Transform.AFFINE, coefficients, Image.Resampling.BILINEAR
        return array(image.transform(image.size, *how))

    expected, inside = by_pillow(image), by_pillow(np.full_like(image, 255)) == 255
    assert inside.mean() > 0.4
    difference = abs(out.astype(int) - expected.astype(int))[inside]
    # Pillow cuts fractions off; a tenth of a pixel would make it 0.57 and more.
    assert difference.max() <= 4 and difference.mean() < 0.55


def test_no_change_is_none():
    image = noise()
    assert autoaugment.recolour([], image) is image
    np.testing.assert_array_equal(autoaugment.matrix([], (5, 5)), np.eye(3))
    # What the other half does is left out.
    assert autoaugment.recolour([Change("rotate", 1.0)], image) is image
    only = autoaugment.matrix([Change("invert", 1.0)], (5, 5))
    np.testing.assert_array_equal(only, np.eye(3))


def test_the_table_is_whole():
    assert len(autoaugment.CIFAR10) == 25
    steps = [step for pair in autoaugment.CIFAR10 for step in pair]
    known = set(autoaugment.GEOMETRY) | set(autoaugment.LEVELS)
    assert {name for name, _, _ in steps} == known
    assert not set(autoaugment.GEOMETRY) & set(autoaugment.LEVELS)
    assert all(0 <= p <= 0.9 and m in range(10) for _, p, m in steps)
    # Sums over the published table.
    assert sum(p for _, p, _ in steps) == pytest.approx(26.5)
    counts = collections.Counter(name for name, _, _ in steps)
    assert counts["equalize"] == 9 and counts["autocontrast"] == 7
    assert counts["translate_y"] == 5 and counts["sharpness"] == 5


def test_geometry_may_go_first():
    """Nothing before it in a sub-policy looks further than at one pixel."""
    alone = {"brightness", "colour", "invert", "posterize", "solarize"}
    for first, second in autoaugment.CIFAR10:
        if second[0] in autoaugment.GEOMETRY:
            assert first[0] in alone | set(autoaugment.GEOMETRY)


def test_every_operation_comes_up_as_often_as_the_table_says():
    rng = np.random.default_rng(0)
    count = 20000
    drawn = collections.Counter(
        change
        for draws in rng.random((count, autoaugment.DRAWS)).tolist()
        for change in autoaugment.choose(draws)
    )
    expected: dict[Change, float] = collections.defaultdict(float)
    for pair in autoaugment.CIFAR10:
        for name, probability, magnitude in pair:
            for side in (-1, 1):
                share = side * magnitude / 9
                expected[Change(name, share)] += probability / 2 / 25
    for change, share in expected.items():
        assert abs(drawn[change] / count - share) < 0.006, change
    assert set(drawn) <= set(expected)
