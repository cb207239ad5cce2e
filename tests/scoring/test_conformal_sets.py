"""Prediction sets: equal to the slow way, and holding what they promise."""

import numpy as np
import pytest
from drawn_probabilities import coarse, drawn
from hypothesis import given, settings
from hypothesis import strategies as st

from cloc_jax.runtime import files
from cloc_jax.scoring import conformal_sets, decisions, intervals
from cloc_jax.scoring.conformal_sets import PredictionSets
from cloc_jax.scoring.decisions import Decision

RANKS = ("0", "1", "2", "3", "4")


def grown(row):
    """The ranks of a set in the order in which they enter, and what was in before."""
    first = int(np.argmax(row))
    order, before, inside = [first], [0.0], row[first]
    while len(order) < len(row):
        around = {min(order) - 1, max(order) + 1} & set(range(len(row)))
        best = max(sorted(around), key=lambda rank: row[rank])
        order.append(best)
        before.append(min(inside, 1.0))
        inside += row[best]
    return order, before


def normalised(weights):
    return np.array(weights, np.float64) / np.sum(weights, axis=1, keepdims=True)


probabilities = st.integers(2, 9).flatmap(
    lambda k: st.lists(
        st.lists(st.integers(0, 6), min_size=k, max_size=k).filter(sum), min_size=1
    ).map(normalised)
)


@given(probabilities, st.floats(0, 1))
@settings(deadline=None, max_examples=60)
def test_sets_grow_one_rank_at_a_time(p, level):
    shares = conformal_sets.share_before(p)
    low, high = PredictionSets(0.9, level, 1).apply(p)
    for i, row in enumerate(p):
        order, before = grown(row)
        assert shares[i, order].tolist() == before == sorted(before)
        inside = [
            rank for rank, share in zip(order, before, strict=True) if share <= level
        ]
        assert sorted(inside) == list(range(low[i], high[i] + 1))  # no gap, not empty
        assert low[i] <= row.argmax() <= high[i]


@given(probabilities, st.floats(0, 3))
@settings(deadline=None, max_examples=60)
def test_sets_by_the_score_lie_around_the_median(p, level):
    low, high = PredictionSets(0.9, level, 1, "rps").apply(p)
    for row, first, last in zip(p, low, high, strict=True):
        below = np.cumsum(row)[:-1]
        median = int((below < 0.5).sum())
        for y in range(len(row)):
            score = sum((below - (y <= np.arange(len(below)))) ** 2)
            if y != median and abs(score - level) > 1e-9:
                assert (first <= y <= last) == (score < level)
        assert first <= median <= last  # so that it is not empty


kinds = pytest.mark.parametrize("kind", conformal_sets.ENTRIES)


@kinds
@pytest.mark.parametrize("make", [drawn, coarse])
@pytest.mark.parametrize("coverage", [0.5, 0.8, 0.9])
def test_the_level_is_the_least_that_holds_enough(make, coverage, kind):
    p, true = make(3, count=50)
    sets = conformal_sets.fit(p, true, coverage, kind)

    def held(level):
        low, high = PredictionSets(coverage, level, 50, kind).apply(p)
        return int(((low <= true) & (true <= high)).sum())

    assert held(sets.level) / 51 >= coverage and sets.images == 50
    lower = [share for share in np.unique(conformal_sets.ENTRIES[kind](p))]
    lower = [share for share in lower if share < sets.level]
    assert not lower or held(lower[-1]) / 51 < coverage


@kinds
@pytest.mark.parametrize("sharpness", [0.3, 1.0, 3.0])
def test_coverage_holds_over_slices_however_wrong_the_probabilities(sharpness, kind):
    """Between c and c + 1 / (n + 1), the exact bounds where no scores are equal."""
    rounds, count, coverage = 400, 60, 0.9
    p, true = drawn(0, count=rounds * (count + 50), spread=1.0)
    p = decisions.apply_temperature(p, 1 / sharpness)  # too sure, or not enough
    shares = []
    for part in np.split(np.random.default_rng(1).permutation(len(true)), rounds):
        held, fresh = part[:count], part[count:]
        sets = conformal_sets.fit(p[held], true[held], coverage, kind)
        low, high = sets.apply(p[fresh])
        shares.append(np.mean((low <= true[fresh]) & (true[fresh] <= high)))
    error = np.std(shares) / np.sqrt(rounds)
    assert coverage - 4 * error < np.mean(shares)
    assert np.mean(shares) < coverage + 1 / (count + 1) + 4 * error


def test_coverage_on_fresh_images_lies_in_its_binomial_interval():
    p, true = drawn(5, count=8000)
    sets = conformal_sets.fit(p[:4000], true[:4000], 0.9)
    low, high = sets.apply(p[4000:])
    overall, by_rank = conformal_sets.fare(low, high, true[4000:], 5)
    assert overall.interval.low <= 0.9 <= overall.interval.high
    assert overall.interval == intervals.binomial(overall.held, 4000)
    assert overall.verdict(0.9) == "agrees with"
    assert overall.verdict(0.5) == "is above" and overall.verdict(0.99) == "is below"
    assert sum(found.held for found in by_rank) == overall.held
    assert [found.images for found in by_rank] == np.bincount(true[4000:]).tolist()
    mean = sum(found.mean_size * found.images for found in by_rank) / 4000
    assert mean == pytest.approx(overall.mean_size)
    assert np.mean(high - low + 1) == pytest.approx(overall.mean_size)


def test_a_rank_without_images_has_no_coverage():
    one = np.zeros(3, np.int64)
    _, by_rank = conformal_sets.fare(one, one, one, 2)
    assert by_rank[0].coverage == 1 and by_rank[0].mean_size == 1
    assert np.isnan(by_rank[1].coverage) and np.isnan(by_rank[1].mean_size)


@pytest.mark.parametrize(
    ("coverage", "needed"), [(0.5, 1), (0.8, 4), (0.9, 9), (0.95, 19), (0.99, 99)]
)
def test_how_many_images_a_coverage_takes(coverage, needed):
    assert conformal_sets.images_needed(coverage) == needed
    p, true = drawn(0, count=needed)
    conformal_sets.fit(p, true, coverage)
    if needed > 1:
        with pytest.raises(ValueError, match=f"at least {needed} calibration images"):
            conformal_sets.fit(p[1:], true[1:], coverage)


# --- in a decision ---


def test_a_decision_keeps_its_sets():
    p, true = drawn(2, count=200)
    sets = conformal_sets.fit(decisions.apply_temperature(p, 2.0), true, 0.9)
    for choice in (
        {},
        {"costs": {"1|2": (5.0, 1.0)}},
        {"thresholds": {"1|2": 0.3}, "max_missed": {"1|2": 0.05}},
    ):
        decision = Decision(RANKS, 2.0, sets=sets, **choice)
        assert files.from_plain(Decision, decision.to_json()) == decision
        assert decision.chooses_labels == bool(choice)
        low, high = decision.apply_sets(p)
        at = sets.apply(decisions.apply_temperature(p, 2.0))
        assert low.tolist() == at[0].tolist() and high.tolist() == at[1].tolist()
        assert any("at least 90% of images" in line for line in decision.describe())
        if not choice:
            assert decision.apply(p).tolist() == p.argmax(1).tolist()
