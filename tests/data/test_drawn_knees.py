"""Drawn knees: pure, of the shape asked for, and graded as documented."""

import numpy as np
import pytest

from cloc_jax.data import drawn_knees


def test_items_do_not_depend_on_order_or_on_the_instance():
    knees = drawn_knees.Knees(12)
    forwards = [knees[i] for i in range(12)]
    backwards = [knees[i] for i in reversed(range(12))][::-1]
    np.testing.assert_array_equal(forwards, backwards)
    tail = drawn_knees.Knees(5, start=7)
    np.testing.assert_array_equal(forwards[7:], [tail[i] for i in range(5)])
    np.testing.assert_array_equal(knees.labels[7:], tail.labels)
    np.testing.assert_array_equal(knees.severities[7:], tail.severities)
    assert knees.ids[7:] == tail.ids
    assert tail.ids[0] == "knee-0-000007"


def test_seeds_and_indices_give_other_knees():
    first, second = drawn_knees.Knees(20), drawn_knees.Knees(20, seed=1)
    assert not set(first.ids) & set(second.ids)
    images = [source[i].tobytes() for source in (first, second) for i in range(20)]
    assert len(set(images)) == 40
    severities = np.concatenate([first.severities, second.severities])
    assert len(np.unique(severities)) == 40


@pytest.mark.parametrize("size", [(16, 16), (32, 32), (64, 64), (48, 96), (224, 160)])
def test_shape_and_type(size):
    knees = drawn_knees.Knees(6, size=size)
    assert len(knees) == len(knees.ids) == 6
    for image in [knees[i] for i in range(6)]:
        assert image.shape == (*size, 1)
        assert image.dtype == np.uint8
        assert image.std() > 5  # something is drawn
    assert knees.labels.dtype == np.int32
    assert knees.severities.dtype == np.float64


def test_a_threshold_belongs_to_the_grade_above():
    thresholds = np.array(drawn_knees.THRESHOLDS)
    below = np.nextafter(thresholds, 0.0)
    np.testing.assert_array_equal(drawn_knees.grade(below), [0, 1, 2, 3])
    np.testing.assert_array_equal(drawn_knees.grade(thresholds), [1, 2, 3, 4])
