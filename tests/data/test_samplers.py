"""Batch rules as properties over random label sets."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloc_jax.data import samplers
from cloc_jax.data.samplers import RankPairs, Shuffled, Triples


def keeps_the_rule(labels):
    _, counts = np.unique(labels, return_counts=True)
    return len(counts) >= 2 and counts.min() >= 2


# Counts of 2 to 60 samples in 2 to 9 ranks, very uneven ones among them.
cases = st.tuples(
    st.lists(st.integers(2, 60), min_size=2, max_size=9),
    st.integers(2, 60),
    st.integers(0, 99),
)


def made(case, mode):
    counts, half, seed = case
    labels = np.repeat(np.arange(len(counts)), counts)
    labels = np.random.default_rng(seed).permutation(labels)
    half = min(half, sum(n // 2 for n in counts))
    return labels, RankPairs(labels, 2 * half, mode=mode, seed=(seed,))


@settings(max_examples=150, deadline=None)
@given(cases)
def test_natural(case):
    labels, plan = made(case, "natural")
    for epoch in range(2):
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        batches = [plan.batch(step) for step in steps]
        assert batches
        assert all(len(b) == plan.batch_size for b in batches)
        assert all(keeps_the_rule(labels[b]) for b in batches)
        seen = np.concatenate(batches)
        assert len(np.unique(seen)) == len(seen)  # at most once an epoch
        assert len(labels) - len(seen) == plan.left_out
    _, counts = np.unique(labels, return_counts=True)
    pairs = counts // 2
    if pairs.sum() - pairs.max() >= pairs.sum() * 2 // plan.batch_size:
        # No rank crowds out the others: less than a batch and the odd ones is left.
        assert plan.left_out < plan.batch_size + len(counts)


@settings(max_examples=100, deadline=None)
@given(cases)
def test_balanced(case):
    labels, plan = made(case, "balanced")
    counts = np.unique(labels, return_counts=True)[1]
    for step in range(2 * plan.steps_per_epoch):
        chosen = plan.batch(step)
        assert len(chosen) == plan.batch_size
        assert keeps_the_rule(labels[chosen])
        drawn = np.bincount(labels[chosen], minlength=len(counts))
        assert drawn.max() - drawn[drawn > 0].min() <= 2  # a pair more at most
        for rank, n in enumerate(drawn):
            mine = chosen[labels[chosen] == rank]
            assert len(np.unique(mine)) == min(n, counts[rank])


def test_balanced_draws_ranks_and_items_evenly():
    labels = np.repeat(np.arange(4), [100, 10, 30, 60])
    plan = RankPairs(labels, 16, mode="balanced")
    seen = np.concatenate([plan.batch(s) for s in range(20 * plan.steps_per_epoch)])
    assert np.ptp(np.bincount(labels[seen])) == 0
    rare = np.bincount(seen, minlength=200)[100:110]
    assert np.ptp(rare) < 0.2 * rare.mean()


@pytest.mark.parametrize(
    "name, mode",
    [("rank_pairs", "natural"), ("rank_pairs", "balanced"), ("shuffled", "")],
)
def test_a_function_of_seed_and_step_alone(name, mode):
    def make(*seed):
        labels, ranks = np.arange(90) % 3, tuple("abc")
        return samplers.make(name, labels, 8, mode=mode, seed=seed, ranks=ranks)

    plan, again, other = make(4, 1), make(4, 1), make(5, 1)
    forward = [plan.batch(s) for s in range(40)]
    for step in reversed(range(40)):
        np.testing.assert_array_equal(again.batch(step), forward[step])
    assert any((other.batch(s) != forward[s]).any() for s in range(3))
    per = plan.steps_per_epoch
    assert any((plan.batch(s) != plan.batch(s + per)).any() for s in range(per))


def test_a_crowding_rank_never_fills_a_batch():
    labels = np.array([0] * 96 + [1] * 4)
    plan = RankPairs(labels, 8)
    assert plan.steps_per_epoch == 2  # as many as there are pairs of the other rank
    assert plan.left_out == 84
    assert all(keeps_the_rule(labels[plan.batch(s)]) for s in range(10))


# --- shuffled batches, and triples ---

LABELS = np.repeat(np.arange(5), (30, 20, 25, 15, 10))


def test_shuffled_sees_every_item_once_and_another_remainder_each_epoch():
    sampler = Shuffled(103, 8, seed=(3,))
    assert (sampler.steps_per_epoch, sampler.left_out) == (12, 7)
    epochs = [
        np.concatenate([sampler.batch(12 * epoch + step) for step in range(12)])
        for epoch in range(3)
    ]
    for items in epochs:
        assert len(set(items.tolist())) == 96
    left = [set(range(103)) - set(items.tolist()) for items in epochs]
    assert left[0] != left[1] != left[2]


def test_triples_have_every_item_below_once_and_a_window_of_two_ranks():
    sampler = Triples(LABELS, 10, seed=(0,))
    rows = np.concatenate(
        [sampler.batch(step) for step in range(sampler.steps_per_epoch)]
    )
    assert sorted(rows[:, 0].tolist()) == list(range(100))
    lower, upper = LABELS[rows[:, 0]], LABELS[rows[:, 1]]
    assert np.array_equal(upper, np.minimum(lower + 2, 4))


def test_triples_take_the_nearest_rank_that_has_images():
    labels = np.array([0, 0, 0, 1, 1, 4, 4])
    rows = Triples(labels, 7, seed=(0,)).batch(0)
    found = labels[rows]
    assert set(found[found[:, 0] == 0][:, 1].tolist()) == {1}  # 2 is nearer 1 than 4
    assert set(found[found[:, 0] == 1][:, 1].tolist()) == {4}


@pytest.mark.parametrize(
    "name, labels, size, mode, message",
    [
        ("rank_pairs", [], 4, "natural", "no images"),
        ("rank_pairs", [0, 0, 1, 1, 2], 4, "natural", "2 of 'b', 1 of 'c'; .*at"),
        ("rank_pairs", [0, 0, 1, 1], 5, "natural", "batch_size is 5; .*be even"),
        ("rank_pairs", [0, 0, 0, 1, 1, 1], 6, "natural", "at most 4 with these 6"),
        ("rank_pairs", [0, 0, 1, 1], 4, "even", "train.sampling is 'even'"),
        ("shuffled", LABELS, 101, "natural", "size is 101, but there are 100"),
    ],
)
def test_refused(name, labels, size, mode, message):
    options = {"mode": mode, "seed": (0,), "ranks": tuple("abcde")}
    with pytest.raises(ValueError, match=message):
        samplers.make(name, np.array(labels, int), size, **options)
