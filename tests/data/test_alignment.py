"""Aligned faces: the eyes come to lie where they belong, whatever the face did."""

import numpy as np
import pytest

from cloc_jax.data import images


def align(image, eyes):
    return images.align_face(image, tuple(map(float, eyes)))


def face(eyes, size=(300, 400), radius=3):
    """A dark image with a red spot at the first eye and a green one at the second."""
    rows, columns = np.mgrid[: size[0], : size[1]]
    image = np.zeros((*size, 3), np.uint8)
    for channel, (x, y) in enumerate((eyes[:2], eyes[2:])):
        near = (columns - x) ** 2 + (rows - y) ** 2 <= radius**2
        image[near, channel] = 250
    return image


def centre(image, channel):
    rows, columns = np.mgrid[: image.shape[0], : image.shape[1]]
    weights = image[:, :, channel].astype(float)
    return [(places * weights).sum() / weights.sum() for places in (columns, rows)]


@pytest.mark.parametrize(
    ("eyes", "size"),
    [
        ((150, 100, 230, 100), (300, 400)),  # level
        ((150, 100, 210, 160), (300, 400)),  # turned by 45 degrees
        ((150, 160, 210, 100), (300, 400)),  # the other way
        ((100, 80, 140, 85), (300, 400)),  # small: enlarged
        ((500, 700, 1300, 900), (1500, 1900)),  # large: shrunk first
    ],
)
def test_eyes_come_to_their_places(eyes, size):
    distance = np.hypot(eyes[2] - eyes[0], eyes[3] - eyes[1])
    image = face(eyes, size, radius=max(distance / 15, 3))
    aligned = align(image, eyes)
    assert aligned.shape == (256, 256, 3) and aligned.dtype == np.uint8
    np.testing.assert_allclose(centre(aligned, 0), (0.35 * 256,) * 2, atol=1)
    other = (0.65 * 256, 0.35 * 256)
    np.testing.assert_allclose(centre(aligned, 1), other, atol=1)


def test_either_eye_may_come_first():
    eyes = (150, 100, 210, 140)
    image = face(eyes)
    np.testing.assert_array_equal(
        align(image, eyes), align(image, (*eyes[2:], *eyes[:2]))
    )


def test_colour_stays_and_the_outside_is_black():
    image = np.full((50, 50, 3), (10, 20, 200), np.uint8)
    aligned = align(image, (20, 25, 30, 25))
    assert aligned.shape == (256, 256, 3)
    assert aligned[90, 128].tolist() == [10, 20, 200]
    far = align(image, (0, 0, 49, 0))
    assert far[0, 0].tolist() == [0, 0, 0]


def test_one_point_is_not_two_eyes():
    with pytest.raises(ValueError, match="both eyes are at .*two points"):
        align(np.zeros((9, 9, 1), np.uint8), (3, 4, 3, 4))
