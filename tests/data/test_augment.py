"""Augmentations: exact where they can be, otherwise against their definition."""

import math

import cv2
import numpy as np
import pytest
from fixed_draws import Fixed, noise
from hypothesis import given, settings
from hypothesis import strategies as st

from cloc_jax.data import augment, autoaugment, images
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


def smooth(height=96, width=80, channels=1) -> np.ndarray:
    y, x = np.mgrid[:height, :width]
    planes = [
        127 + 60 * np.sin(x / 9 + k) + 60 * np.cos(y / 11 - k) for k in range(channels)
    ]
    return np.stack(planes, axis=-1).round().astype(np.uint8)


def test_off_returns_the_image_itself_and_draws_nothing():
    rng = np.random.default_rng(0)
    before = rng.bit_generator.state
    image = noise()
    assert augment.apply(Augment(), image, rng) is image
    assert augment.apply(Augment(perspective_probability=1.0), image, rng) is image
    assert rng.bit_generator.state == before


@pytest.mark.parametrize("shape", [(20, 30, 1), (21, 30, 3), (1, 5, 3), (1, 1, 1)])
def test_flips_are_exact(shape):
    image = noise(shape)
    rng = np.random.default_rng(0)
    flipped = augment.apply(Augment(flip_horizontal=1.0), image, rng)
    np.testing.assert_array_equal(flipped, image[:, ::-1])
    flipped = augment.apply(Augment(flip_vertical=1.0), image, rng)
    np.testing.assert_array_equal(flipped, image[::-1])
    both = Augment(flip_horizontal=1.0, flip_vertical=1.0)
    np.testing.assert_array_equal(augment.apply(both, image, rng), image[::-1, ::-1])


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
        (
            Augment(translate=0.1, rotate_degrees=90),
            LOWEST,
            (32 - 6.5, 12 - 6.5),
        ),
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
    change = Augment(perspective=0.1, perspective_probability=1.0)
    bent = augment.matrix(change, Fixed(0.75), (40, 60))  # shifts of 0.05 of each side
    corner = bent @ (-0.5, -0.5, 1)
    np.testing.assert_allclose(corner[:2] / corner[2], (2.5, 1.5), atol=1e-4)


def single_parts(change: Augment) -> list[Augment]:
    """The geometric changes of an Augment one by one, in the order of the warp."""
    off = Augment(perspective_probability=change.perspective_probability)
    names = ["scale", "shear_degrees", "rotate_degrees", "translate", "perspective"]
    flips = off._replace(
        flip_horizontal=change.flip_horizontal, flip_vertical=change.flip_vertical
    )
    return [flips] + [off._replace(**{n: getattr(change, n)}) for n in names]


@pytest.mark.parametrize("seed", range(10))
def test_one_warp_equals_the_warps_one_after_the_other(seed):
    change = GEOMETRY._replace(perspective_probability=1.0)
    image = smooth(channels=3)
    once = augment.matrix(change, np.random.default_rng(seed), image.shape[:2])
    product, stepwise = np.eye(3), image
    inside = np.full(image.shape[:2], 255, np.uint8)
    for part in single_parts(change):
        step = augment.matrix(part, np.random.default_rng(seed), image.shape[:2])
        product = step @ product
        stepwise = augment.warp(stepwise, step)
        inside = cv2.warpPerspective(inside, step, inside.shape[::-1])
    np.testing.assert_allclose(once, product, rtol=1e-4, atol=1e-7)

    # Away from the mirrored borders, up to interpolating five times instead of once.
    inside = cv2.erode(inside, np.ones((5, 5), np.uint8)) == 255
    assert inside.mean() > 0.2
    difference = augment.warp(image, once).astype(int) - stepwise.astype(int)
    assert abs(difference[inside]).max() <= 8
    assert abs(difference[inside]).mean() < 1.5


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
@pytest.mark.parametrize(("rng", "sign"), [(LOWEST, -1), (HIGHEST, 1)])
def test_brightness_is_exact(channels, rng, sign):
    image = noise((20, 30, channels))
    out = augment.apply(Augment(brightness=0.2), image, rng)
    np.testing.assert_array_equal(out, np.clip(image.astype(int) + sign * 51, 0, 255))


@pytest.mark.parametrize("channels", [1, 3])
@pytest.mark.parametrize(("rng", "factor"), [(LOWEST, 0.5), (HIGHEST, 1.5)])
def test_contrast_is_exact_about_the_mean_luminance(rng, factor, channels):
    image = noise((20, 30, channels))
    out = augment.apply(Augment(contrast=0.5), image, rng)
    weights = np.array([0.299, 0.587, 0.114]) if channels == 3 else np.ones(1)
    mean = (image @ weights).mean()
    expected = np.clip((image - mean) * factor + mean, 0, 255)
    np.testing.assert_allclose(out, expected, rtol=0, atol=0.51)
    if channels == 1:
        np.testing.assert_array_equal(out, np.rint(expected))


def test_levels_do_not_move_by_the_middle_draw():
    image = noise()
    change = Augment(brightness=0.5, contrast=0.5, saturation=0.5, hue=0.5)
    assert augment.apply(change, image, MIDDLE) is image


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


def test_saturation_and_hue_leave_grey_images_alone():
    image = noise((9, 9, 1))
    rng = np.random.default_rng(0)
    assert augment.apply(Augment(saturation=0.5, hue=0.2), image, rng) is image


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


def test_the_usual_crop():
    assert images.uncropped((224, 224), 0.125) == (256, 256)
    image = noise((256, 256, 1))
    middle = images.centre(image, 0.125)
    np.testing.assert_array_equal(middle, image[16:240, 16:240])
    assert images.centre(image, 0.0).shape == image.shape


@pytest.mark.parametrize("seed", range(5))
def test_crop_is_part_of_the_one_warp(seed):
    change = GEOMETRY._replace(random_crop=0.2, perspective_probability=1.0)
    image = smooth(channels=3)
    whole = augment.apply(change, image, np.random.default_rng(seed))
    # The same numbers, one after the other: a crop, then the warp within the window.
    window = augment.apply(Augment(random_crop=0.2), image, np.random.default_rng(seed))
    within = change._replace(random_crop=0.0)
    move = augment.matrix(within, np.random.default_rng(seed), window.shape[:2])
    stepwise = augment.warp(window, move)
    inside = np.full(window.shape[:2], 255, np.uint8)
    inside = cv2.warpPerspective(inside, move, inside.shape[::-1])
    inside = cv2.erode(inside, np.ones((3, 3), np.uint8)) == 255
    assert whole.shape == window.shape and 0.2 < inside.mean() < 1
    difference = abs(whole.astype(int) - stepwise.astype(int))
    assert difference[inside].max() <= 2
    assert difference[~inside].max() > 10  # beyond it is image there, and mirrored here


# --- AutoAugment ---


@pytest.mark.parametrize("channels", [1, 3])
def test_autoaugment_changes_images_as_often_as_asked(channels):
    image = smooth(40, 30, channels)
    rng = np.random.default_rng(0)
    changed = [
        augment.apply(Augment(autoaugment=0.2), image, rng) is not image
        for _ in range(3000)
    ]
    # Of those drawn, some do nothing: the sub-policy's own probabilities.
    does = np.mean(
        [1 - (1 - a) * (1 - b) for (_, a, _), (_, b, _) in autoaugment.CIFAR10]
    )
    if channels == 3:
        assert abs(np.mean(changed) - 0.2 * does) < 0.03
    else:
        assert 0.5 * 0.2 * does < np.mean(changed) < 0.2 * does + 0.03


@pytest.mark.parametrize("which", range(25))
def test_autoaugment_in_one_warp_equals_one_operation_after_the_other(which):
    """The operations in the published order, each on the result of the one before."""
    image = smooth(channels=3)
    draws = [(which + 0.5) / 25, 0.0, 0.2, 0.0, 0.2]  # both are done unless never

    class Chosen(Fixed):
        def random(self, size=None):
            drawn = np.full(size, 0.999)
            if size == 8:  # the last that are drawn
                drawn[2], drawn[3:] = 0.0, draws
            return drawn

    whole = augment.apply(Augment(autoaugment=1.0), image, Chosen(0.0))
    stepwise = image
    inside = np.full(image.shape[:2], 255, np.uint8)
    for change in autoaugment.choose(draws):
        move = autoaugment.matrix([change], image.shape[:2])
        stepwise = autoaugment.recolour([change], augment.warp(stepwise, move))
        inside = cv2.warpPerspective(inside, move, inside.shape[::-1])
    inside = cv2.erode(inside, np.ones((5, 5), np.uint8)) == 255
    assert inside.mean() > 0.02
    difference = abs(whole.astype(int) - stepwise.astype(int))[inside]
    assert difference.max() <= 4 and difference.mean() < 0.6


def test_a_strength_of_one_change_leaves_the_other_draws_alone():
    image = smooth()
    turned = Augment(rotate_degrees=20, brightness=0.1)
    plain = augment.apply(turned, image, np.random.default_rng(5))
    rarely = turned._replace(autoaugment=1e-9)
    again = augment.apply(rarely, image, np.random.default_rng(5))
    np.testing.assert_array_equal(plain, again)


@pytest.mark.parametrize("name", Augment._fields)
def test_any_strength_alone_is_on(name):
    change = Augment()._replace(**{name: 0.25})
    assert change.is_on == (name != "perspective_probability")
    assert not Augment().is_on


@pytest.mark.parametrize("seed", range(20))
def test_strongest_perspective_stays_convex(seed):
    change = Augment(perspective=0.24, perspective_probability=1.0)
    bent = augment.matrix(change, np.random.default_rng(seed), (50, 50))
    corners = np.array([[0, 0, 1], [49, 0, 1], [49, 49, 1], [0, 49, 1]]) @ bent.T
    assert (corners[:, 2] > 0).all()
    assert cv2.isContourConvex((corners[:, :2] / corners[:, 2:]).astype(np.float32))


def test_apply_refuses_floats():
    with pytest.raises(ValueError, match="uint8"):
        augment.apply(EVERYTHING, np.zeros((4, 4, 1)), np.random.default_rng(0))
