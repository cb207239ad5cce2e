"""Augmentations: exact where they can be, otherwise against their definition."""

import collections
import math

import cv2
import numpy as np
import pytest
from fixed_draws import Fixed, noise
from hypothesis import given, settings
from hypothesis import strategies as st
from PIL import Image

from cloc_jax.data import augment, images
from cloc_jax.data.augment import Augment

EVERYTHING = Augment(
    flip_horizontal=0.5,
    flip_vertical=0.5,
    rotate_degrees=30,
    translate=0.1,
    scale=0.2,
    shear_degrees=10,
    perspective=0.1,
    blur_sigma=1.5,
    brightness=0.2,
    contrast=0.3,
    saturation=0.4,
    hue=0.1,
    autoaugment=0.5,
)
GEOMETRY = EVERYTHING._replace(
    blur_sigma=0, brightness=0, contrast=0, saturation=0, hue=0, autoaugment=0
)


LOWEST, MIDDLE, HIGHEST = Fixed(0.0), Fixed(0.5), Fixed(1.0)


def test_off_returns_the_image_itself_and_draws_nothing():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    image = noise()
    assert augment.apply(Augment(), image, rng) is image
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("shape", [(20, 30, 1), (21, 30, 3), (1, 5, 3), (1, 1, 1)])
def test_flips_are_exact(shape):
    image = noise(shape)
    for across, down in [(1, 0), (0, 1), (1, 1)]:
        change = Augment(flip_horizontal=across, flip_vertical=down)
        flipped = augment.apply(change, image, np.random.default_rng(0))
        expected = image[:: 1 - 2 * down, :: 1 - 2 * across]
        np.testing.assert_array_equal(flipped, expected)


def dot(x: int, y: int, size=65) -> np.ndarray:
    image = np.zeros((size, size, 1), np.uint8)
    image[y, x] = 255
    return image


def position(image: np.ndarray, near: tuple[float, float]) -> tuple[float, float]:
    """Centre of brightness (x, y) within 4 pixels of a place: mirrors are elsewhere."""
    y, x = np.mgrid[: image.shape[0], : image.shape[1]]
    is_near = (abs(x - near[0]) <= 4) & (abs(y - near[1]) <= 4)
    weights = np.where(is_near, image[:, :, 0], 0).astype(np.float64)
    return (weights * x).sum() / weights.sum(), (weights * y).sum() / weights.sum()


@pytest.mark.parametrize(
    ("change", "rng", "expected"),
    [
        (Augment(rotate_degrees=90), HIGHEST, (32, 52)),  # clockwise as displayed
        (Augment(rotate_degrees=90), LOWEST, (32, 12)),
        (
            Augment(rotate_degrees=30),
            HIGHEST,
            (32 + 20 * math.cos(math.pi / 6), 32 + 20 * math.sin(math.pi / 6)),
        ),
        (Augment(scale=0.5), LOWEST, (42, 32)),
        (Augment(scale=0.5), HIGHEST, (62, 32)),
        (Augment(translate=0.2), LOWEST, (52 - 13, 32 - 13)),
        (Augment(flip_horizontal=0.1), LOWEST, (12, 32)),
        (Augment(shear_degrees=45), HIGHEST, (52, 32)),  # on the axis: stays
    ],
)
def test_a_dot_moves_where_it_should(change, rng, expected):
    moved = augment.matrix(change, rng, (65, 65)) @ (52, 32, 1)
    np.testing.assert_allclose(moved, (*expected, 1), atol=1e-9)
    seen = position(augment.apply(change, dot(52, 32), rng), near=expected)
    np.testing.assert_allclose(seen, expected, atol=0.3)


def test_shear_moves_rows_sideways_and_perspective_the_corners():
    moved = augment.matrix(Augment(shear_degrees=45), HIGHEST, (65, 65)) @ (32, 42, 1)
    np.testing.assert_allclose(moved, (42, 42, 1), atol=1e-9)
    bent = augment.matrix(Augment(perspective=0.1), Fixed(0.25), (40, 60))
    corner = bent @ (-0.5, -0.5, 1)  # moved by 0.05 of each side
    np.testing.assert_allclose(corner[:2] / corner[2], (-3.5, -2.5), atol=1e-4)


def single_parts(change: Augment) -> list[Augment]:
    """The geometric changes of an Augment one by one, in the order of the warp."""
    off = Augment()
    names = ["scale", "shear_degrees", "rotate_degrees", "translate", "perspective"]
    flips = off._replace(
        flip_horizontal=change.flip_horizontal, flip_vertical=change.flip_vertical
    )
    return [flips] + [off._replace(**{n: getattr(change, n)}) for n in names]


@pytest.mark.parametrize("seed", range(10))
def test_one_warp_equals_the_warps_one_after_the_other(seed):
    size, product = (96, 80), np.eye(3)
    for part in single_parts(GEOMETRY):
        product = augment.matrix(part, np.random.default_rng(seed), size) @ product
    once = augment.matrix(GEOMETRY, np.random.default_rng(seed), size)
    np.testing.assert_allclose(once, product, rtol=1e-4, atol=1e-7)


def test_borders_are_mirrored():
    image = noise((16, 16, 1))
    shifted = augment.apply(Augment(translate=0.25), image, LOWEST)  # by 4, up and left
    np.testing.assert_array_equal(shifted[:12, :12], image[4:, 4:])
    np.testing.assert_array_equal(shifted[:12, 12:], image[4:, 14:10:-1])


@settings(max_examples=40, deadline=None)
@given(
    seed=st.integers(0, 2**32),
    height=st.integers(1, 40),
    width=st.integers(1, 40),
    channels=st.sampled_from([1, 3]),
    crop=st.sampled_from([0.0, 0.3]),
)
def test_pure_and_of_the_same_shape(seed, height, width, channels, crop):
    change = EVERYTHING._replace(random_crop=crop)
    image = noise((height, width, channels), seed)
    image.flags.writeable = False
    rngs = [np.random.default_rng(seed) for _ in range(2)]
    first, second = (augment.apply(change, image, rng) for rng in rngs)
    np.testing.assert_array_equal(first, second)
    assert rngs[0].bit_generator.state == rngs[1].bit_generator.state
    assert first.shape == (*images.cropped((height, width), crop), channels)
    assert first.dtype == np.uint8
    assert crop or first.shape == image.shape


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("rng", "factor"), [(LOWEST, 0.5), (HIGHEST, 1.5)])
def test_brightness_and_contrast_about_the_mean_are_exact(rng, factor, channels):
    image = noise((20, 30, channels))
    out = augment.apply(Augment(contrast=0.5), image, rng)
    weights = np.array([0.299, 0.587, 0.114]) if channels == 3 else np.ones(1)
    mean = (image @ weights).mean()
    expected = np.clip((image - mean) * factor + mean, 0, 255)
    np.testing.assert_allclose(out, expected, rtol=0, atol=0.51)
    if channels == 1:
        np.testing.assert_array_equal(out, np.rint(expected))
    out = augment.apply(Augment(brightness=0.2), image, rng)
    expected = image.astype(int) + (51 if factor > 1 else -51)
    np.testing.assert_array_equal(out, np.clip(expected, 0, 255))


def test_saturation_moves_towards_and_from_grey():
    image = noise()
    grey = (image @ np.array([0.299, 0.587, 0.114]))[:, :, None]
    out = augment.apply(Augment(saturation=1.0), image, LOWEST)
    np.testing.assert_allclose(out, np.broadcast_to(grey, image.shape), atol=1.5)
    out = augment.apply(Augment(saturation=0.5), image, HIGHEST)
    expected = np.clip(grey + 1.5 * (image - grey), 0, 255)
    np.testing.assert_allclose(out, expected, atol=1.5)


def test_hue_turns_colour_and_keeps_luminance_and_grey():
    weights = np.array([0.299, 0.587, 0.114])
    image = np.full((4, 4, 3), (150, 120, 110), np.uint8)
    out = augment.apply(Augment(hue=0.5), image, HIGHEST)  # the opposite hue
    grey = image[0, 0] @ weights
    np.testing.assert_allclose(out[0, 0], 2 * grey - image[0, 0], atol=1.5)
    third = augment.apply(Augment(hue=1 / 3), image, HIGHEST)
    assert abs(third[0, 0] @ weights - grey) < 1.5
    assert third[0, 0].argmax() != image[0, 0].argmax()
    around = third
    for _ in range(2):
        around = augment.apply(Augment(hue=1 / 3), around, HIGHEST)
    np.testing.assert_allclose(around.astype(int), image.astype(int), atol=4)
    flat = np.full((4, 4, 3), 90, np.uint8)
    np.testing.assert_allclose(augment.apply(Augment(hue=0.5), flat, LOWEST), flat, 1)


@pytest.mark.parametrize("sigma", [0.1, 0.4, 1.0, 3.7])
@pytest.mark.parametrize("shape", [(30, 20, 3), (30, 20, 1), (1, 5, 3)])
def test_blur_equals_that_of_opencv(sigma, shape):
    image = noise(shape)
    out = augment.apply(Augment(blur_sigma=sigma), image, HIGHEST)
    expected = cv2.GaussianBlur(image, (0, 0), sigma).reshape(shape)
    np.testing.assert_allclose(out.astype(int), expected.astype(int), atol=2)
    assert augment.apply(Augment(blur_sigma=sigma), image, LOWEST) is image


# --- random crop ---


def test_crop_alone_copies_windows_and_reaches_every_one():
    image = noise((8, 12, 3))
    rng = np.random.default_rng(0)
    seen = set()
    for _ in range(300):
        out = augment.apply(Augment(random_crop=0.25), image, rng)
        assert out.shape == (6, 9, 3)
        places = [
            (top, left)
            for top in range(3)
            for left in range(4)
            if (image[top : top + 6, left : left + 9] == out).all()
        ]
        assert len(places) == 1
        seen |= set(places)
    assert len(seen) == 12


@given(
    height=st.integers(1, 600),
    width=st.integers(1, 600),
    fraction=st.floats(0.0, 0.5),
)
def test_room_for_a_crop_leaves_the_size_to_the_pixel(height, width, fraction):
    room = images.uncropped((height, width), fraction)
    assert images.cropped(room, fraction) == (height, width)
    assert min(room) >= 1 and room[0] >= height and room[1] >= width


# --- AutoAugment ---


def test_autoaugments_table_is_whole():
    assert len(augment.CIFAR10) == 25
    steps = [step for pair in augment.CIFAR10 for step in pair]
    assert {name for name, _, _ in steps} == set(augment.OPERATIONS)
    assert all(0 <= p <= 0.9 and m in range(10) for _, p, m in steps)
    # Sums over the published table.
    assert sum(p for _, p, _ in steps) == pytest.approx(26.5)
    counts = collections.Counter(name for name, _, _ in steps)
    assert counts["equalize"] == 9 and counts["autocontrast"] == 7
    assert counts["translate_y"] == 5 and counts["sharpness"] == 5


@pytest.mark.parametrize("shape", [(33, 41, 1), (60, 50, 3), (2, 3, 3), (1, 1, 1)])
@pytest.mark.parametrize("name", augment.OPERATIONS)
def test_operations_of_autoaugment_take_images_of_any_kind(name, shape, monkeypatch):
    monkeypatch.setattr(augment, "CIFAR10", (((name, 1.0, 9), (name, 0.0, 0)),))
    image = noise(shape)
    image.flags.writeable = False
    seen = [
        augment.autoaugment(image, (0.0, 0.0, side, 0.0, 0.0)) for side in (0.0, 0.9)
    ]
    assert {one.dtype for one in seen} == {np.dtype(np.uint8)}
    assert {one.shape for one in seen} == {shape}


@pytest.mark.parametrize(
    "name, expected",
    [
        ("translate_x", (32 + 65 * 150 / 331 / 2, 22)),
        ("translate_y", (32, 22 + 65 * 150 / 331 / 2)),
        ("shear_y", (32, 22 + 0.15 * 32)),
        (
            "rotate",
            (32 + 10 * math.sin(math.pi / 12), 32 - 10 * math.cos(math.pi / 12)),
        ),
    ],
)
def test_operations_of_autoaugment_move_a_dot_where_they_should(name, expected):
    picture = Image.fromarray(dot(32, 22)[:, :, 0])
    moved = np.asarray(augment.OPERATIONS[name](picture, 0.5))[:, :, None]
    np.testing.assert_allclose(position(moved, near=expected), expected, atol=0.6)


def test_posterising_and_solarising_are_as_strong_as_the_paper_says():
    ramp = Image.fromarray(np.arange(256, dtype=np.uint8).reshape(8, 32))
    levels = np.arange(256)
    done = {
        (name, share): np.asarray(augment.OPERATIONS[name](ramp, share)).ravel()
        for name in ("posterize", "solarize")
        for share in (4 / 9, -1.0)
    }
    np.testing.assert_array_equal(done["posterize", 4 / 9], levels >> 2 << 2)
    np.testing.assert_array_equal(done["posterize", -1.0], levels >> 4 << 4)
    np.testing.assert_array_equal(done["solarize", -1.0], 255 - levels)
    above = np.where(levels < 142, levels, 255 - levels)
    np.testing.assert_array_equal(done["solarize", 4 / 9], above)
