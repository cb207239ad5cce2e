"""Intervals: equal to drawing images one by one, and covering what they promise."""

import json
import math

import numpy as np
import pytest
from scipy import stats

from cloc_jax.scoring import intervals, metrics

RANKS = ["0", "1", "2", "3"]


def labels(seed, count=300):
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 4, count)
    return true, np.clip(true + rng.integers(-1, 3, count), 0, 3)


def test_bootstrap_is_that_of_images_drawn_one_by_one():
    true, predicted = labels(0)
    rng = np.random.default_rng(1)
    slow = []
    for _ in range(600):
        some = rng.integers(0, len(true), len(true))
        slow.append(metrics.ordinal_metrics(true[some], predicted[some], RANKS)["qwk"])
    confusion = metrics.ordinal_metrics(true, predicted, RANKS)["confusion"]
    low, high = intervals.of_scores(confusion, metrics.boundary_names(RANKS))["qwk"]
    # Both ends are estimates; 600 draws leave about a tenth of the width.
    assert np.quantile(slow, [0.025, 0.975]) == pytest.approx(
        [low, high], abs=(high - low) / 7
    )


def test_intervals_of_all_scores_are_of_the_same_draws():
    true, predicted = labels(0)
    whole = metrics.ordinal_metrics(true, predicted, RANKS)
    names = metrics.boundary_names(RANKS)
    found = intervals.of_scores(whole["confusion"], names)
    rates = found.pop("boundaries")
    drawn = intervals.draws_of(whole["confusion"])
    of_draws = metrics.scores(drawn)
    assert of_draws.keys() - found.keys() == {"gmsec"}
    for name in found:
        values = of_draws[name]
        low, high = found[name]
        assert (low, high) == intervals.percentiles(values)
        assert low < whole[name] < high
    assert list(rates) == names
    of_boundaries = metrics.boundary_rates(drawn)
    for h, boundary in enumerate(names):
        assert rates[boundary].keys() == of_boundaries.keys()
        for name, values in of_boundaries.items():
            if 0 < whole["boundaries"][boundary][name] < 1:
                ends = intervals.percentiles(values[:, h])
                assert rates[boundary][name] == list(ends), name


def test_intervals_at_the_ends_and_of_nothing_are_strict_json():
    confusion = [[7, 0, 0], [0, 5, 0], [0, 0, 0]]
    found = intervals.of_scores(confusion, ["0|1", "1|2"])
    json.dumps(found, allow_nan=False)
    # Right for all twelve, which drawing again would call certain.
    assert found["accuracy"] == pytest.approx(intervals.binomial(12, 12))
    assert found["mae"] == [0, 0]
    assert found["minimum_sensitivity"] == pytest.approx(intervals.binomial(7, 7))
    rates = found["boundaries"]
    assert rates["0|1"]["missed_rate"] == pytest.approx(intervals.binomial(0, 5))
    assert rates["0|1"]["error_rate"] == pytest.approx(intervals.binomial(0, 12))
    assert rates["1|2"]["missed_rate"] is None  # nobody is above
    assert rates["1|2"]["crossing_missed_rate"] is None
    assert intervals.of_scores([[5, 0], [0, 0]], ["a|b"])["qwk"] is None


def test_binomial_by_textbook_values():
    # Clopper-Pearson of 0 and of 5 in 10.
    assert intervals.binomial(0, 10) == pytest.approx((0, 0.3085), abs=1e-4)
    assert intervals.binomial(5, 10) == pytest.approx((0.1871, 0.8129), abs=1e-4)
    assert np.isnan(intervals.binomial(0, 0)).all()


def test_redrawn_is_drawing_runs_and_images_one_by_one():
    rng = np.random.default_rng(0)
    true = rng.integers(0, 3, 120)
    shift = rng.random((4, 120)) < np.array([0.1, 0.2, 0.3, 0.6])[:, None]
    predicted = np.clip(true + shift, 0, 2)
    slow = []
    for _ in range(2000):
        runs, images = rng.integers(0, 4, 4), rng.integers(0, 120, 120)
        slow.append((predicted[runs][:, images] == true[images]).mean())
    drawn = metrics.scores(intervals.redrawn(true, predicted, 3))["accuracy"]
    assert drawn.mean() == pytest.approx((predicted == true).mean(), abs=0.01)
    assert drawn.std() == pytest.approx(np.std(slow), rel=0.1)


def test_redrawn_pairs_settings_draw_by_draw():
    true = np.random.default_rng(0).integers(0, 3, 80)
    worse = np.clip(true[None] + np.ones((3, 1), int), 0, 2)
    same = np.repeat(true[None], 3, 0)
    a = metrics.scores(intervals.redrawn(true, same, 3))["accuracy"]
    b = metrics.scores(intervals.redrawn(true, worse, 3))["accuracy"]
    top = intervals.redrawn(true, same, 3)[:, 2, 2] / 80
    np.testing.assert_allclose(a, 1)
    np.testing.assert_allclose(b, top, rtol=1e-6)  # of worse, rank 2 alone is right


@pytest.mark.parametrize("better, least, most", [(0.0, 0, 4), (0.08, 25, 30)])
def test_redrawn_finds_differences_and_few_that_are_not_there(
    better, least, most, monkeypatch
):
    """Runs differ in how good they are, images in how hard they are."""
    monkeypatch.setattr(intervals, "DRAWS", 400)
    rng = np.random.default_rng(0)
    found = 0
    for _ in range(30):
        true = rng.integers(0, 2, 400)
        hard = rng.beta(1, 2, 400)
        drawn = []
        for gain in (0.0, better):
            of_run = rng.normal(-gain, 0.02, (6, 1))
            wrong = rng.random((6, 400)) < np.clip(hard + of_run, 0, 1)
            confusions = intervals.redrawn(true, true ^ wrong, 2)
            drawn.append(metrics.scores(confusions)["accuracy"])
        ends = intervals.percentiles(drawn[1] - drawn[0])
        found += not ends.low <= 0 <= ends.high
    # Drawing runs and images both counts what varies with neither twice: the test is
    # a little too careful, never too bold.
    assert least <= found <= most


def test_interval_of_a_mean_covers_it_as_often_as_it_says():
    rng = np.random.default_rng(0)
    covered = 0
    for _ in range(200):
        low, high = intervals.of_mean(rng.exponential(size=80))
        covered += low <= 1 <= high
    assert 0.88 <= covered / 200 <= 0.99  # skewed data fall a little short of 95%


# --- the mean of several runs ---


def test_without_images_it_is_student_s():
    # t of two degrees of freedom is 4.3027; the standard error of 1, 2, 3 is 0.5774.
    found = intervals.of_run_mean([1.0, 2.0, 3.0], 0.0)
    assert found == pytest.approx((-0.4841, 4.4841), abs=1e-4)
    # Minus other runs, whose variance is as large: four degrees of freedom, 2.7764.
    apart = intervals.of_run_mean([1.0, 2.0, 3.0], 0.0, minus=[4.0, 5.0, 6.0])
    half = 2.7764 * 0.5774 * math.sqrt(2)
    assert apart == pytest.approx((-3 - half, -3 + half), abs=1e-3)


def test_of_one_run_it_is_that_of_its_images():
    low, high = intervals.of_run_mean([0.7], 0.0016)
    assert (low, high) == pytest.approx(
        (0.7 - 1.96 * 0.04, 0.7 + 1.96 * 0.04), abs=1e-4
    )
    assert math.isnan(intervals.of_run_mean([0.7], 0.0).low)
    assert math.isnan(intervals.of_run_mean([0.7, 0.8], math.nan).low)


def test_variance_of_images_is_that_of_a_mean():
    right = np.array([[1.0] * 70 + [0.0] * 33] * 3)  # three runs that agree
    share = 70 / 103
    expected = share * (1 - share) / 102
    assert intervals.variance_over_images(right) == pytest.approx(expected)
    # Runs that err on other images vary less together.
    mixed = np.stack([np.roll(right[0], 20 * n) for n in range(3)])
    assert intervals.variance_over_images(mixed) < 0.7 * expected


def test_a_rate_of_none_is_not_certain():
    assert intervals.variance_over_images(np.zeros((3, 37))) > 0
    assert intervals.variance_over_images(np.ones((1, 37))) == pytest.approx(
        intervals.variance_over_images(np.zeros((1, 37)))
    )


def test_holds_the_truth_as_often_as_it_says():
    """Seeds and images each move the score; three seeds, as in the tables."""
    rng = np.random.default_rng(0)
    of_seed, of_images, held = 0.02, 0.03, []
    for _ in range(2000):
        scores = 0.7 + rng.normal(0, of_images) + rng.normal(0, of_seed, 3)
        low, high = intervals.of_run_mean(list(scores), of_images**2)
        held.append(low <= 0.7 <= high)
    assert 0.935 <= np.mean(held) <= 0.985
    assert stats.binomtest(int(np.sum(held)), 2000, 0.95, "less").pvalue > 1e-3
