"""Probabilities of ranks from whatever a head gives, and scores of values."""

import numpy as np
import pytest

from cloc_jax.methods import Prediction
from cloc_jax.scoring import predictions


def test_above_in_order_gives_its_differences():
    above = np.array([[0.9, 0.6, 0.2, 0.1], [0.0, 0.0, 0.0, 0.0], [1.0, 1.0, 1.0, 1.0]])
    found = predictions.from_above(above)
    expected = [[0.1, 0.3, 0.4, 0.1, 0.1], [1, 0, 0, 0, 0], [0, 0, 0, 0, 1]]
    assert found == pytest.approx(np.array(expected))


def test_above_out_of_order_is_made_to_fall():
    above = np.array([[0.5, 0.8, 0.2, 0.3]])
    found = predictions.from_above(above)
    assert found == pytest.approx(np.array([[0.5, 0.0, 0.3, 0.0, 0.2]]))
    rng = np.random.default_rng(0)
    found = predictions.from_above(rng.uniform(-0.1, 1.1, (200, 4)))
    assert found.min() >= 0 and found.sum(1) == pytest.approx(np.ones(200))


def test_a_softmax_keeps_its_own_probabilities_to_the_bit():
    p = np.array([[1e-30, 1 - 1e-7, 1e-7]], np.float32)
    prediction = Prediction(np.array([1]), probabilities=p)
    assert np.array_equal(predictions.rank_probabilities(prediction), p)
    assert predictions.rank_probabilities(Prediction(np.array([1]))) is None


def test_expected_rank_is_the_value_where_there_is_one():
    p = np.array([[0.2, 0.3, 0.5]])
    label = np.array([2])
    with_value = Prediction(label, value=np.array([0.7]), probabilities=p)
    assert predictions.expected_rank(with_value, p) == [0.7]
    without = Prediction(label, probabilities=p)
    assert predictions.expected_rank(without, p) == pytest.approx([1.3])
    assert predictions.expected_rank(Prediction(label), None) == [2.0]
