"""Temperature and reliability: known truths found again, and counted the slow way."""

import numpy as np
import pytest
from drawn_probabilities import drawn

from cloc_jax.scoring import calibration, intervals, metrics


@pytest.mark.parametrize("known", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_found_again(known):
    p, true = drawn(0, count=20000)
    too_sure = p**known / (p**known).sum(1, keepdims=True)  # calibrated at T = known
    found = calibration.fit_temperature(too_sure, true)
    assert found == pytest.approx(known, rel=0.03)
    back = calibration.apply_temperature(too_sure, known)
    np.testing.assert_allclose(back, p, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_temperature_has_a_lower_nll(seed):
    p, true = drawn(seed, count=60)
    p = p**3 / (p**3).sum(1, keepdims=True)
    best = calibration.fit_temperature(p, true)
    assert calibration.COLDEST < best < calibration.HOTTEST

    def nll(t):
        warmed = p ** (1 / t) / (p ** (1 / t)).sum(1, keepdims=True)
        return -np.mean([np.log(row[k]) for row, k in zip(warmed, true, strict=True)])

    for other in np.geomspace(calibration.COLDEST, calibration.HOTTEST, 200):
        assert nll(best) <= nll(other) + 1e-12
    assert nll(best) < min(nll(best * 1.01), nll(best / 1.01))
    at_best = calibration.apply_temperature(p, best)
    found = metrics.negative_log_likelihood(at_best, true)
    assert found == pytest.approx(nll(best))


def test_zeros_float32_and_extremes_are_safe():
    sure = np.eye(3, dtype=np.float32)
    right, wrong = np.array([0, 1, 2]), np.array([1, 2, 0])
    assert calibration.fit_temperature(sure, right) == calibration.COLDEST
    assert calibration.fit_temperature(sure, wrong) == calibration.HOTTEST
    even = np.full((3, 3), 1 / 3)
    assert calibration.fit_temperature(even, right) == 1.0
    for t in (calibration.COLDEST, 1.0, calibration.HOTTEST):
        warmed = calibration.apply_temperature(sure, t)
        assert warmed.dtype == np.float64 and np.isfinite(warmed).all()
        np.testing.assert_allclose(warmed.sum(1), 1)
        assert (warmed.argmax(1) == right).all()


def test_reliability_counted_one_by_one():
    p, true = drawn(2, count=103)
    bins = calibration.reliability(p, true)
    assert [b.images for b in bins] == [11, 11, 11, 10, 10, 10, 10, 10, 10, 10]
    by_confidence = sorted(range(103), key=lambda i: p[i].max())
    for number, found in enumerate(bins):
        start = sum(b.images for b in bins[:number])
        some = by_confidence[start : start + found.images]
        right = sum(int(p[i].argmax()) == int(true[i]) for i in some)
        assert found.observed == right / len(some)
        assert found.predicted == pytest.approx(np.mean([p[i].max() for i in some]))
        assert found.interval == intervals.binomial(right, len(some))
    assert len(calibration.reliability(p[:4], true[:4])) == 4


def calibration_error(p, true):
    """Mean distance of the bins' probabilities from what came true."""
    bins = calibration.reliability(p, true)
    off = sum(b.images * abs(b.predicted - b.observed) for b in bins)
    return off / len(true)


def test_drawn_from_the_probabilities_they_hold_and_sharpened_they_do_not():
    p, true = drawn(3)
    sharp = p**3 / (p**3).sum(1, keepdims=True)
    for h in range(4):
        holds = [
            b.interval.low <= b.predicted <= b.interval.high
            for b in calibration.reliability_above(p, true, h)
        ]
        assert sum(holds) >= 8
        broken = calibration.reliability_above(sharp, true, h)
        assert sum(b.interval.low <= b.predicted <= b.interval.high for b in broken) < 6
    good, bad = (calibration_error(q, true) for q in (p, sharp))
    assert good < 0.03 < 0.1 < bad
    mended = calibration.apply_temperature(
        sharp, calibration.fit_temperature(sharp, true)
    )
    assert calibration_error(mended, true) < 0.03


def test_above_a_boundary_is_summed_from_above():
    p = np.array([[1 - 3e-20, 1e-20, 2e-20]])
    assert calibration.probability_above(p, 0)[0] == pytest.approx(3e-20, rel=1e-12)


@pytest.mark.parametrize(
    ("p", "true", "message"),
    [
        (np.zeros((0, 3)), np.zeros(0, int), "at least one"),
        (np.array([[3.0, -1.0, 0.5]]), np.array([0]), "Are they logits"),
        (np.array([[np.nan, 0.5, 0.5]]), np.array([0]), "Are they logits"),
    ],
)
def test_what_is_no_probability_is_refused(p, true, message):
    for function in (calibration.fit_temperature, calibration.reliability):
        with pytest.raises(ValueError, match=message):
            function(p, true)
