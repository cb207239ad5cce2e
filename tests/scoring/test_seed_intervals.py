"""Intervals over seeds and images: known cases, and how often they hold the truth."""

import math

import numpy as np
import pytest
from scipy import stats

from cloc_jax.scoring import intervals, seed_intervals


def test_without_images_it_is_student_s():
    values = [0.6, 0.64, 0.71]
    found = seed_intervals.of_mean(values, 0.0)
    assert found == pytest.approx(intervals.over_seeds(values))


def test_of_one_run_it_is_that_of_its_images():
    low, high = seed_intervals.of_mean([0.7], 0.0016)
    assert (low, high) == pytest.approx(
        (0.7 - 1.96 * 0.04, 0.7 + 1.96 * 0.04), abs=1e-4
    )
    assert math.isnan(seed_intervals.of_mean([0.7], 0.0).low)
    assert math.isnan(seed_intervals.of_mean([0.7, 0.8], math.nan).low)


def test_variance_of_images_is_that_of_a_mean():
    right = np.array([[1.0] * 70 + [0.0] * 33] * 3)  # three runs that agree
    share = 70 / 103
    expected = share * (1 - share) / 102
    assert seed_intervals.of_images(right) == pytest.approx(expected)
    # Runs that err on other images vary less together.
    mixed = np.stack([np.roll(right[0], 20 * n) for n in range(3)])
    assert seed_intervals.of_images(mixed) < 0.7 * expected


def test_a_rate_of_none_is_not_certain():
    assert seed_intervals.of_images(np.zeros((3, 37))) > 0
    assert seed_intervals.of_images(np.ones((1, 37))) == pytest.approx(
        seed_intervals.of_images(np.zeros((1, 37)))
    )


def test_holds_the_truth_as_often_as_it_says():
    """Seeds and images each move the score; three seeds, as in the tables."""
    rng = np.random.default_rng(0)
    of_seed, of_images, held = 0.02, 0.03, []
    for _ in range(2000):
        scores = 0.7 + rng.normal(0, of_images) + rng.normal(0, of_seed, 3)
        low, high = seed_intervals.of_mean(list(scores), of_images**2)
        held.append(low <= 0.7 <= high)
    assert 0.935 <= np.mean(held) <= 0.985
    assert stats.binomtest(int(np.sum(held)), 2000, 0.95, "less").pvalue > 1e-3
