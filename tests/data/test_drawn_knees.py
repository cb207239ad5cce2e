"""Drawn knees: pure, graded as documented, and not to be read without an eye."""

import cv2
import numpy as np
import pytest
from sklearn import metrics

from cloc_jax.data import drawn_knees


def kappa(labels, predicted):
    return metrics.cohen_kappa_score(labels, predicted, weights="quadratic")


@pytest.fixture(scope="module")
def population():
    """Many grades, and those without the grader's error; nothing is drawn."""
    knees = drawn_knees.Knees(20_000, seed=5)
    return knees, drawn_knees.grade(knees.severities)


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


def test_sizes_show_the_same_knee():
    for index in range(8):
        small = drawn_knees.Knees(8, size=(64, 64))[index]
        large = drawn_knees.Knees(8, size=(192, 192))[index]
        shrunk = cv2.resize(large, (64, 64), interpolation=cv2.INTER_AREA)
        assert np.corrcoef(small.ravel(), shrunk.ravel())[0, 1] > 0.93


def test_a_threshold_belongs_to_the_grade_above():
    thresholds = np.array(drawn_knees.THRESHOLDS)
    below = np.nextafter(thresholds, 0.0)
    np.testing.assert_array_equal(drawn_knees.grade(below), [0, 1, 2, 3])
    np.testing.assert_array_equal(drawn_knees.grade(thresholds), [1, 2, 3, 4])


def test_shares_and_centres_are_the_documented_ones(population):
    knees, true_labels = population
    counts = np.bincount(true_labels, minlength=5)
    np.testing.assert_allclose(counts / len(knees), drawn_knees.SHARES, atol=0.012)
    observed = np.bincount(knees.labels, minlength=5) / len(knees)
    np.testing.assert_allclose(observed, drawn_knees.SHARES, atol=0.02)
    sums = np.bincount(true_labels, knees.severities)
    np.testing.assert_allclose(sums / counts, [0.08, 0.21, 0.38, 0.67, 0.92], atol=0.01)


def test_graders_err_only_near_a_threshold(population):
    knees, true_labels = population
    wrong = knees.labels != true_labels
    assert 0.05 < wrong.mean() < 0.15
    assert np.abs(knees.labels - true_labels).max() == 1
    distances = np.abs(knees.severities[:, None] - np.array(drawn_knees.THRESHOLDS))
    distance = distances.min(axis=1)
    assert distance[wrong].max() <= 3 * drawn_knees.GRADER_NOISE
    assert 0.95 < kappa(knees.labels, true_labels) < 0.98


def test_severity_alone_changes_a_knee_gradually():
    def knee(severity):
        return drawn_knees.draw(severity, np.random.default_rng(3)).astype(float)

    healthy = knee(0.0)
    change = [np.abs(knee(s) - healthy).mean() for s in np.linspace(0.0, 1.0, 6)]
    assert change[0] == 0.0
    assert (np.diff(change) > 0).all()
    # Pose, exposure and noise stay, or hardly a pixel would.
    assert (knee(1.0) == healthy).mean() > 0.5
