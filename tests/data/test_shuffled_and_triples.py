"""Samplers that do not pair ranks: shuffled batches, and triples."""

import numpy as np
import pytest

from cloc_jax.data import samplers
from cloc_jax.data.samplers import Shuffled, Triples

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


def test_shuffled_is_a_function_of_seed_and_step_alone():
    one, other = Shuffled(50, 8, seed=(1, 2)), Shuffled(50, 8, seed=(1, 2))
    steps = [7, 0, 31]
    for step in steps:
        assert np.array_equal(one.batch(step), other.batch(step))
    assert not np.array_equal(one.batch(0), Shuffled(50, 8, seed=(1, 3)).batch(0))


def test_shuffled_batches_say_nothing_of_labels():
    """Neighbours share a rank as often as chance has it; rank_pairs far more often."""

    def sharing(sampler):
        rows = [sampler.batch(step) for step in range(200)]
        pairs = [LABELS[row].reshape(-1, 2) for row in rows]
        return np.mean([p[:, 0] == p[:, 1] for p in pairs])

    counts = np.bincount(LABELS)
    chance = (counts * (counts - 1)).sum() / (len(LABELS) * (len(LABELS) - 1))
    options = {"mode": "natural", "seed": (0,), "ranks": list("01234")}
    shuffled = samplers.make("shuffled", LABELS, 20, **options)
    assert sharing(shuffled) == pytest.approx(chance, abs=0.03)
    assert sharing(samplers.make("rank_pairs", LABELS, 20, **options)) == 1


def test_triples_have_every_item_below_once_and_a_window_of_two_ranks():
    sampler = Triples(LABELS, 10, seed=(0,))
    rows = np.concatenate(
        [sampler.batch(step) for step in range(sampler.steps_per_epoch)]
    )
    assert sorted(rows[:, 0].tolist()) == list(range(100))
    lower, upper = LABELS[rows[:, 0]], LABELS[rows[:, 1]]
    assert np.array_equal(upper, np.minimum(lower + 2, 4))


def test_triples_draw_queries_in_the_given_proportions():
    sampler = Triples(LABELS, 10, seed=(0,))
    rows = np.concatenate([sampler.batch(step) for step in range(400)])
    labels = LABELS[rows]
    of_one = labels[labels[:, 0] == 1]  # window 1 to 3: all five kinds have images
    shares = [np.mean(of_one[:, 2] == rank) for rank in range(5)]
    assert shares == pytest.approx([0.1, 0.2, 0.4, 0.2, 0.1], abs=0.06)
    of_zero = labels[labels[:, 0] == 0]  # nothing lies below
    shares = [np.mean(of_zero[:, 2] == rank) for rank in range(5)]
    expected = np.array([0.2, 0.4, 0.2, 0.05, 0.05]) / 0.9
    assert shares == pytest.approx(expected.tolist(), abs=0.06)


def test_triples_take_the_nearest_rank_that_has_images():
    labels = np.array([0, 0, 0, 1, 1, 4, 4])
    rows = Triples(labels, 7, seed=(0,)).batch(0)
    found = labels[rows]
    assert set(found[found[:, 0] == 0][:, 1].tolist()) == {1}  # 2 is nearer 1 than 4
    assert set(found[found[:, 0] == 1][:, 1].tolist()) == {4}


def test_unknown_samplers_and_batches_that_are_too_large():
    options = {"mode": "natural", "seed": (0,), "ranks": ()}
    with pytest.raises(ValueError, match="the sampler is 'sorted'; use one of"):
        samplers.make("sorted", LABELS, 8, **options)
    with pytest.raises(ValueError, match="batch_size is 101, but there are 100"):
        samplers.make("shuffled", LABELS, 101, **options)
