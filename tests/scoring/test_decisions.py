"""Decisions: equal to the slow way, and keeping what they promise on fresh images."""

import itertools

import numpy as np
import pytest
from drawn_probabilities import coarse, drawn
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from cloc_jax.runtime import files
from cloc_jax.scoring import conformal_sets, decisions, intervals, metrics
from cloc_jax.scoring.decisions import Decision

RANKS = ("0", "1", "2", "3", "4")


# --- the temperature, and how far probabilities hold ---


@pytest.mark.parametrize("known", [0.4, 1.0, 2.5])
def test_a_known_temperature_is_found_again(known):
    p, true = drawn(0, count=20000)
    too_sure = p**known / (p**known).sum(1, keepdims=True)  # calibrated at T = known
    found = decisions.fit_temperature(too_sure, true)
    assert found == pytest.approx(known, rel=0.03)
    back = decisions.apply_temperature(too_sure, known)
    np.testing.assert_allclose(back, p, atol=1e-9)


@pytest.mark.parametrize("seed", range(3))
def test_no_other_temperature_has_a_lower_nll(seed):
    p, true = drawn(seed, count=60)
    p = p**3 / (p**3).sum(1, keepdims=True)
    best = decisions.fit_temperature(p, true)
    assert decisions.COLDEST < best < decisions.HOTTEST

    def nll(t):
        warmed = p ** (1 / t) / (p ** (1 / t)).sum(1, keepdims=True)
        return -np.mean([np.log(row[k]) for row, k in zip(warmed, true, strict=True)])

    for other in np.geomspace(decisions.COLDEST, decisions.HOTTEST, 200):
        assert nll(best) <= nll(other) + 1e-12
    assert nll(best) < min(nll(best * 1.01), nll(best / 1.01))
    at_best = decisions.apply_temperature(p, best)
    found = metrics.ordinal_metrics(true, true, RANKS, at_best)
    assert found["nll"] == pytest.approx(nll(best))


def test_zeros_float32_and_extremes_are_safe():
    sure = np.eye(3, dtype=np.float32)
    right, wrong = np.array([0, 1, 2]), np.array([1, 2, 0])
    assert decisions.fit_temperature(sure, right) == decisions.COLDEST
    assert decisions.fit_temperature(sure, wrong) == decisions.HOTTEST
    even = np.full((3, 3), 1 / 3)
    assert decisions.fit_temperature(even, right) == 1.0
    for t in (decisions.COLDEST, 1.0, decisions.HOTTEST):
        warmed = decisions.apply_temperature(sure, t)
        assert warmed.dtype == np.float64 and np.isfinite(warmed).all()
        np.testing.assert_allclose(warmed.sum(1), 1)
        assert (warmed.argmax(1) == right).all()


def test_reliability_counted_one_by_one():
    p, true = drawn(2, count=103)
    bins = decisions.reliability(p.max(1), p.argmax(1) == true, 10)
    assert [b.images for b in bins] == [11, 11, 11, 10, 10, 10, 10, 10, 10, 10]
    by_confidence = sorted(range(103), key=lambda i: p[i].max())
    for number, found in enumerate(bins):
        start = sum(b.images for b in bins[:number])
        some = by_confidence[start : start + found.images]
        right = sum(int(p[i].argmax()) == int(true[i]) for i in some)
        assert found.observed == right / len(some)
        assert found.predicted == pytest.approx(np.mean([p[i].max() for i in some]))
        assert found.interval == intervals.binomial(right, len(some))
    few = decisions.reliability(p[:4].max(1), p[:4].argmax(1) == true[:4], 10)
    assert len(few) == 4


def test_above_a_boundary_is_summed_from_above():
    p = np.array([[1 - 3e-20, 1e-20, 2e-20]])
    assert decisions.probability_above(p, 0)[0] == pytest.approx(3e-20, rel=1e-12)


# --- labels ---


@pytest.mark.parametrize("seed", range(3))
def test_least_cost_one_label_at_a_time(seed):
    p, _ = drawn(seed, count=50)
    rng = np.random.default_rng(seed)
    missed, alarm = rng.uniform(0.1, 5, (2, 4))

    def cost(true, label):
        low, high = min(true, label), max(true, label)
        crossed = range(low, high)
        return sum((missed if label < true else alarm)[h] for h in crossed)

    expected = [
        min(range(5), key=lambda k: sum(row[t] * cost(t, k) for t in range(5)))
        for row in p
    ]
    names = ["0|1", "1|2", "2|3", "3|4"]
    pairs = {
        n: (float(m), float(a)) for n, m, a in zip(names, missed, alarm, strict=True)
    }
    decision = Decision(RANKS, costs=pairs)
    assert decision.apply(p).tolist() == expected
    matrix = decision.cost_matrix()
    for true, label in itertools.product(range(5), repeat=2):
        assert matrix[true, label] == pytest.approx(cost(true, label))
    # The temperature comes first.
    warm = Decision(RANKS, 2.0, costs=pairs)
    at_two = decisions.apply_temperature(p, 2.0)
    assert warm.apply(p).tolist() == decision.apply(at_two).tolist()
    assert warm.apply(p).tolist() != expected


def test_costs_not_named_are_one_and_a_dear_boundary_is_crossed_less():
    p, true = drawn(0, count=500)
    even = Decision(RANKS, costs={"1|2": (1.0, 1.0)}).apply(p)
    medians = (p.cumsum(1) < 0.5).sum(1)
    assert even.tolist() == medians.tolist()
    missed = [
        ((true > 1) & (Decision(RANKS, costs={"1|2": (c, 1.0)}).apply(p) <= 1)).sum()
        for c in (0.2, 1.0, 5.0, 25.0)
    ]
    assert missed == sorted(missed, reverse=True) and missed[0] > missed[-1]


def slowly(row, thresholds):
    """The label of one image by thresholds, from all that would be consistent."""
    above = {h: sum(row[h + 1 :]) > t for h, t in thresholds.items()}
    # A side below is overruled by any higher boundary that says above.
    sides = {h: any(a for k, a in above.items() if k >= h) for h in above}
    allowed = [
        rank
        for rank in range(len(row))
        if all((rank > h) == is_above for h, is_above in sides.items())
    ]
    return max(allowed, key=lambda rank: (row[rank], -rank))


@settings(max_examples=60, deadline=None)
@given(
    seed=st.integers(0, 1000),
    thresholds=st.dictionaries(
        st.integers(0, 3), st.sampled_from([-1.0, 0.0, 0.1, 0.325, 0.625, 1.0])
    ),
)
def test_thresholds_one_image_at_a_time(seed, thresholds):
    p, _ = coarse(seed)
    found = decisions.by_thresholds(p, thresholds)
    assert found.tolist() == [slowly(row.tolist(), thresholds) for row in p]


# --- thresholds ---


def possible(scores):
    """Every threshold that makes a difference, from all above to all below."""
    return [-0.5, *np.unique(scores)]


@settings(max_examples=80, deadline=None)
@given(
    seed=st.integers(0, 1000),
    h=st.integers(0, 3),
    target=st.sampled_from([0.0, 0.05, 0.1, 0.2, 1 / 3, 0.5, 0.9]),
    guarantee=st.booleans(),
)
def test_the_largest_threshold_of_all(seed, h, target, guarantee):
    assume(target or not guarantee)  # nothing guarantees that none is missed
    p, true = coarse(seed, count=40)
    scores = decisions.probability_above(p, h)
    above = scores[true > h]
    assert len(above)

    def is_allowed(t):
        missed = int((above <= t).sum())
        if guarantee:
            return (missed + 1) / (len(above) + 1) <= target
        return missed / len(above) <= target

    best = [t for t in possible(scores) if is_allowed(t)]
    if not best:
        with pytest.raises(ValueError, match="guarantee"):
            decisions.fit_threshold(p, true, h, target, guarantee)
        return
    found = decisions.fit_threshold(p, true, h, target, guarantee)
    # The same images go above as with the best of all thresholds, and none is on it
    # unless no number lies between it and the next.
    assert ((scores > found) == (scores > max(best))).all()
    assert found not in scores or np.nextafter(found, 2) in scores


def test_neighbouring_floats_are_told_apart():
    low = 0.3
    high = float(np.nextafter(low, 1))
    p = np.array([[1 - low, low], [1 - high, high], [0.1, 0.9]])
    true = np.array([1, 1, 1])
    t = decisions.fit_threshold(p, true, 0, 0.34)
    assert (p[:, 1] > t).tolist() == [False, True, True]
    p = np.array([[1.0, 0.0], [0.5, 0.5]])  # a score of 0, which must not be missed
    t = decisions.fit_threshold(p, np.array([1, 1]), 0, 0.0)
    assert (p[:, 1] > t).all()
    Decision(("0", "1"), thresholds={"0|1": t})


@pytest.mark.parametrize("n", [20, 40, 60, 100, 700])
@pytest.mark.parametrize("target", [0.05, 0.1, 0.15, 0.3])
def test_a_target_that_is_met_exactly_is_used_up(n, target):
    p = np.linspace(0.01, 0.99, n)
    p = np.stack([1 - p, p], 1)
    t = decisions.fit_threshold(p, np.ones(n, int), 0, target)
    assert (p[:, 1] <= t).sum() == round(target * n)
    count = conformal_sets.images_needed(1 - target)
    assert 1 / (count + 1) <= target < 1 / count


def test_the_guarantee_holds_on_average_and_without_it_does_not():
    """Scores are uniform: a threshold t misses the share t of fresh images."""
    rng, target, rates = np.random.default_rng(0), 0.1, {True: [], False: []}
    for scores in rng.random((2000, 20)):
        p, every = np.stack([1 - scores, scores], 1), np.ones(20, int)
        for guarantee, found in rates.items():
            found.append(decisions.fit_threshold(p, every, 0, target, guarantee))
    assert np.mean(rates[True]) <= target
    error = np.std(rates[False]) / len(rates[False]) ** 0.5
    assert np.mean(rates[False]) > target + 3 * error


def test_further_boundaries_never_add_to_what_is_missed():
    p, true = drawn(0, count=400)
    every = {name: h for h, name in enumerate(("0|1", "1|2", "2|3", "3|4"))}
    for target in (0.02, 0.1, 0.4):
        thresholds = {
            name: decisions.fit_threshold(p, true, h, target)
            for name, h in every.items()
        }
        labels = Decision(RANKS, thresholds=thresholds).apply(p)
        for h in every.values():
            assert (labels[true > h] <= h).mean() <= target


def test_too_few_images_say_how_many():
    p, every = np.full((12, 2), 0.5), np.ones(12, int)
    for message in ("at least 19 images .* there are 12", "7.7% can be guaranteed"):
        with pytest.raises(ValueError, match=message):
            decisions.fit_threshold(p, every, 0, 0.05, True)
    decisions.fit_threshold(p, every, 0, 0.077, True)
    with pytest.raises(ValueError, match="no image is truly above 1|2"):
        decisions.fit_threshold(p, 0 * every, 0, 0.05, name="1|2")


# --- what it would cost ---


def test_the_trade_off_is_that_of_the_decisions():
    p, true = drawn(0, count=900)
    p = p**2 / (p**2).sum(1, keepdims=True)  # too sure
    val, test = (p[:400], true[:400]), (p[400:], true[400:])
    targets = [0.01, 0.05, 0.2, 0.5]
    rows = decisions.trade_off(val, test, 1, targets)
    for target, row in zip(targets, rows, strict=True):
        fitted = {"1|2": decisions.fit_threshold(*val, 1, target)}
        labels = Decision(RANKS, thresholds=fitted).apply(p[400:])
        assert row.threshold == fitted["1|2"]
        assert row.accuracy == (labels == test[1]).mean()
        assert row.missed == (labels[test[1] > 1] <= 1).mean()


@pytest.mark.parametrize("seed", range(6))
def test_fewest_missed_at_an_accuracy_by_trying_all(seed):
    p, true = coarse(seed, count=60, ranks=4)
    p = 0.9 * p + 0.1 * np.eye(4)[true]  # better than chance
    (at, known), test = (p[:30], true[:30]), (p[30:], true[30:])
    tried = []
    for t in (None, *possible(decisions.probability_above(at, 1))):
        labels = at.argmax(1) if t is None else decisions.by_thresholds(at, {1: t})
        missed = (labels[known > 1] <= 1).mean()
        # Where all else is equal, the most probable rank comes first.
        order = -2.0 if t is None else -t
        tried.append((missed, -(labels == known).mean(), order, labels.tolist()))
    for accuracy in sorted({-a for _, a, *_ in tried}):
        best = min(entry for entry in tried if -entry[1] >= accuracy)
        row = decisions.at_accuracy((at, known), test, 1, accuracy)
        chosen = {} if row.threshold is None else {1: row.threshold}
        assert decisions.by_thresholds(at, chosen).tolist() == best[3]
        labels = decisions.by_thresholds(test[0], chosen)
        assert row.accuracy == (labels == test[1]).mean()
    most = max(-a for _, a, *_ in tried)
    assert decisions.at_accuracy((at, known), test, 1, most + 0.001) is None


# --- saved decisions ---

SAVED = [
    Decision(RANKS, 1.25, costs={"1|2": (5.0, 1.0), "3|4": (0.1, 2.0)}),
    Decision(RANKS, 0.7, thresholds={"1|2": 0.1 + 0.2}, max_missed={"1|2": 0.05}),
    Decision(RANKS, thresholds={"0|1": -1.0}, max_missed={"0|1": 0.1}, guarantee=True),
]


@pytest.mark.parametrize("decision", SAVED, ids=["costs", "thresholds", "guarantee"])
def test_a_decision_comes_back_to_the_bit(decision, tmp_path):
    path = tmp_path / "decision.json"
    assert Decision.read(path, RANKS) is None
    files.write_sealed(path, decision.to_json())
    assert Decision.read(path, RANKS) == decision
    assert decision.describe()


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"temperature": "hot"}, "temperature is 'hot', not float"),
        ({"ranks": ["0", "1", "2"]}, "ranks 0, 1, 2, but the run has 0, 1, 2, 3"),
        ({"sets": {"coverage": 0.9, "level": 0.5}}, "sets.images is missing"),
        ({"thresholds": None, "costs": {"1|2": 5}}, "not a list"),
    ],
)
def test_a_decision_that_is_none_is_refused(changes, message, tmp_path):
    path = tmp_path / "decision.json"
    files.write_sealed(path, SAVED[1].to_json() | changes)
    with pytest.raises(ValueError, match=message):
        Decision.read(path, RANKS)
    path.write_text("[]")
    with pytest.raises(files.Damaged, match="damaged.*launch.py decide"):
        Decision.read(path, RANKS)
