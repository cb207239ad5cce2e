"""The order in the embeddings: equal to scipy's and to loops over all pairs."""

import itertools
import json

import numpy as np
import pytest
from scipy import stats

from cloc_jax.scoring import embedding_order
from cloc_jax.scoring.embedding_order import order_score

RANKS = ["low", "mid", "high"]


def made(count=40, seed=0, ranks=3):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, ranks, count)
    embeddings = rng.normal(size=(count, 5)) + labels[:, None] * np.arange(5)
    return embeddings.astype(np.float32), labels


def cosine(a, b):
    a, b = a.astype(np.float64), b.astype(np.float64)
    return a @ b / (np.linalg.norm(a) * np.linalg.norm(b))


@pytest.mark.parametrize("seed", range(3))
def test_order_score_is_the_mean_of_spearmans(seed):
    embeddings, labels = made(seed=seed)
    embeddings[7] = 3 * embeddings[8]  # ties: both are as far from all the others
    each = []
    for i in range(len(labels)):
        others = [j for j in range(len(labels)) if j != i]
        off = [abs(labels[i] - labels[j]) for j in others]
        far = [round(1 - cosine(embeddings[i], embeddings[j]), 6) for j in others]
        each.append(stats.spearmanr(off, far).statistic)
    found = order_score(embeddings, labels, RANKS)
    assert found["overall"] == pytest.approx(np.mean(each), abs=1e-9)
    assert found["images"] == len(labels) and list(found["by_rank"]) == RANKS
    for rank, name in enumerate(RANKS):
        of_rank = np.mean([each[i] for i in np.flatnonzero(labels == rank)])
        assert found["by_rank"][name] == pytest.approx(of_rank, abs=1e-9)


def test_order_score_is_none_where_nothing_is_defined():
    nothing = {"overall": None, "by_rank": dict.fromkeys(RANKS)}
    labels = np.array([0, 1, 2, 0, 1])
    same = np.tile(np.array([[0.3, 0.7, 0.1]], np.float32), (5, 1))  # collapsed
    assert order_score(same, labels, RANKS) == nothing | {"images": 5}
    one = order_score(made(6)[0], np.zeros(6, int), RANKS)  # one rank only
    assert one == nothing | {"images": 6}
    assert order_score(np.ones((1, 3)), np.array([1]), RANKS)["overall"] is None
    some = order_score(*made(12, ranks=2), RANKS)  # nobody is of the last rank
    assert some["by_rank"]["high"] is None and some["overall"] is not None
    json.dumps(some, allow_nan=False)


def test_order_score_of_many_is_of_a_sample(monkeypatch):
    monkeypatch.setattr(embedding_order, "MOST", 300)
    embeddings, labels = made(900)
    found = order_score(embeddings, labels, RANKS)
    assert found["images"] == 300
    assert found == order_score(embeddings, labels, RANKS)
    monkeypatch.setattr(embedding_order, "MOST", 900)
    whole = order_score(embeddings, labels, RANKS)["overall"]
    assert found["overall"] == pytest.approx(whole, abs=0.05)


def test_similarity_is_the_mean_over_pairs():
    embeddings, labels = made(30)
    found = embedding_order.similarity(embeddings, labels, 4)
    for a, b in itertools.product(range(3), repeat=2):
        pairs = [
            cosine(embeddings[i], embeddings[j])
            for i in np.flatnonzero(labels == a)
            for j in np.flatnonzero(labels == b)
            if i != j
        ]
        assert found[a, b] == pytest.approx(np.mean(pairs))
    assert np.isnan(found[3]).all() and np.isnan(found[:, 3]).all()
    np.testing.assert_allclose(found, found.T)


def test_similarity_leaves_an_image_and_itself_out():
    embeddings = np.eye(4)[[0, 1, 2]]
    found = embedding_order.similarity(embeddings, np.array([0, 0, 1]), 2)
    assert found[0, 0] == pytest.approx(0)  # not 1/2, as with themselves
    assert np.isnan(found[1, 1])  # a single image has no other
