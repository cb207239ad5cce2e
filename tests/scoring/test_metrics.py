"""Ordinal metrics against slow loops, and edge cases."""

import dataclasses
import itertools
import json
import math
import pathlib
import warnings

import numpy as np
import pytest
from finished_runs import drawn_predictions, run_results
from scipy import stats

from cloc_jax.scoring import metrics


def slow_metrics(true, predicted, num_ranks):
    """Every score by counting, one sample at a time."""
    pairs = list(zip(true, predicted, strict=True))
    every = range(num_ranks)

    def ratio(part, whole):
        return part / whole if whole else None

    confusion = [[0] * num_ranks for _ in every]
    right = off = one_off = observed = expected = 0
    for t, p in pairs:
        confusion[t][p] += 1
        right += t == p
        off += abs(t - p)
        one_off += abs(t - p) <= 1
        observed += (t - p) ** 2
        for _, q in pairs:
            expected += (t - q) ** 2 / len(pairs)
    true_counts = [true.count(r) for r in every]
    maes = []
    for r in every:
        own = [abs(t - p) for t, p in pairs if t == r]
        if own:
            maes.append(sum(own) / len(own))
    recall = [ratio(confusion[r][r], true_counts[r]) for r in every]
    ends = (recall[0], recall[-1])
    return {
        "count": len(pairs),
        "accuracy": right / len(pairs),
        "mae": off / len(pairs),
        "qwk": 1 - observed / expected if expected else None,
        "one_off_accuracy": one_off / len(pairs),
        "macro_mae": sum(maes) / len(maes),
        "max_mae": max(maes),
        "minimum_sensitivity": min(r for r in recall if r is not None),
        "gmsec": math.sqrt(recall[0] * recall[-1]) if None not in ends else None,
        "recall": recall,
        "true_counts": true_counts,
        "predicted_counts": [predicted.count(r) for r in every],
        "confusion": confusion,
        "boundaries": [slow_boundary(pairs, h, ratio) for h in range(num_ranks - 1)],
    }


def slow_boundary(pairs, h, ratio):
    low = high = missed = alarm = below = above = far_missed = far_alarm = 0
    for t, p in pairs:
        low += t == h
        high += t == h + 1
        missed += t == h + 1 and p == h
        alarm += t == h and p == h + 1
        below += t <= h
        above += t > h
        far_missed += t > h and p <= h
        far_alarm += t <= h and p > h
    return {
        "error_rate": ratio(missed + alarm, low + high),
        "missed_count": missed,
        "false_alarm_count": alarm,
        "missed_rate": ratio(missed, high),
        "false_alarm_rate": ratio(alarm, low),
        "crossing_rate": (far_missed + far_alarm) / len(pairs),
        "crossing_missed_rate": ratio(far_missed, above),
        "crossing_false_alarm_rate": ratio(far_alarm, below),
    }


def assert_same(got, wanted):
    if isinstance(got, dict) and not isinstance(wanted, dict):
        got = list(got.values())
    if isinstance(wanted, dict):
        assert got.keys() == wanted.keys()
        for key in wanted:
            assert_same(got[key], wanted[key])
    elif isinstance(wanted, list):
        assert len(got) == len(wanted)
        for g, w in zip(got, wanted, strict=True):
            assert_same(g, w)
    elif isinstance(wanted, float):
        assert got == pytest.approx(wanted, abs=1e-12)
    else:
        assert got == wanted


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("num_ranks", [2, 3, 5, 8])
@pytest.mark.parametrize("count", [1, 4, 60])
def test_equals_slow_loops(num_ranks, count):
    """Few samples leave ranks empty, so the undefined cases are covered too."""
    for seed in range(5):
        rng = np.random.default_rng(seed)
        true = rng.integers(num_ranks, size=count)
        predicted = np.clip(true + rng.integers(-2, 3, size=count), 0, num_ranks - 1)
        got = metrics.ordinal_metrics(true, predicted, list(map(str, range(num_ranks))))
        assert_same(got, slow_metrics(true.tolist(), predicted.tolist(), num_ranks))
        json.dumps(got, allow_nan=False)


def test_kappa_ends_and_fixed_label_set():
    ranks = list("01234")
    assert metrics.ordinal_metrics([0, 1, 4], [0, 1, 4], ranks)["qwk"] == 1.0
    assert metrics.ordinal_metrics([0, 4], [4, 0], ranks)["qwk"] == pytest.approx(-1)
    assert metrics.ordinal_metrics([2, 2, 2], [3, 3, 3], ranks)["qwk"] == 0.0
    # Ranks 2 and 3 never occur, yet 1 to 4 is three ranks off; renumbering gives 0.8.
    got = metrics.ordinal_metrics([0, 1, 4, 4], [0, 1, 1, 4], ranks)
    assert got["qwk"] == pytest.approx(1 - 9 / ((18 + 10 + 34 + 34) / 4))


def test_nll():
    probabilities = np.array([[0.5, 0.25, 0.25], [0.1, 0.1, 0.8]], np.float32)
    got = metrics.ordinal_metrics([0, 2], [0, 2], "abc", probabilities)
    assert got["nll"] == pytest.approx(-(math.log(0.5) + math.log(0.8)) / 2, rel=1e-6)
    assert "nll" not in metrics.ordinal_metrics([0, 2], [0, 2], "abc")
    # Of certain predictions it is finite.
    right = metrics.ordinal_metrics([0], [0], "ab", [[1.0, 0.0]])
    wrong = metrics.ordinal_metrics([1], [0], "ab", [[1.0, 0.0]])
    assert math.copysign(1, right["nll"]) == 1 and right["nll"] == 0
    assert wrong["nll"] == pytest.approx(87.3, abs=0.1)


GOLDENS = pathlib.Path(__file__).parent.parent / "goldens" / "ordinal_losses_small.npz"


@pytest.mark.parametrize("batch", ["0", "2"])
def test_equals_released_code(batch):
    with np.load(GOLDENS) as file:
        start = f"metrics/{batch}/"
        names = [key for key in file.files if key.startswith(start)]
        case = {name.removeprefix(start): file[name] for name in names}
    p, true = case["probabilities"], case["labels"]
    found = metrics.ordinal_metrics(
        true, p.argmax(1), list("01234567")[: p.shape[1]], p
    )
    names = {
        "amae": "macro_mae",
        "mmae": "max_mae",
        "accuracy_off1": "one_off_accuracy",
    }
    for name in ("rps", "minimum_sensitivity", "gmsec", *names):
        assert found[names.get(name, name)] == pytest.approx(case[name], abs=1e-9)


def test_the_score_of_each_rank_equals_a_loop():
    p = np.random.default_rng(0).dirichlet(np.ones(6), 20)
    found = metrics.rank_scores(p)
    for y in range(6):
        gaps = [(p[:, : h + 1].sum(1) - (y <= h)) ** 2 for h in range(5)]
        np.testing.assert_allclose(found[:, y], sum(gaps), rtol=1e-12)


def test_unsigned_labels_do_not_wrap():
    true, predicted = np.array([0, 3], np.uint8), np.array([3, 0], np.uint8)
    assert metrics.ordinal_metrics(true, predicted, "abcd")["mae"] == 3.0


def test_boundaries_that_matter():
    drawn = drawn_predictions(0, 20, 6, "test")
    results = run_results({"val": drawn, "test": drawn}, list("abcdef"))
    scores = results.final["test"]
    rates = zip(scores.boundaries.items(), (0.1, None, 0.3, 0.2, 0.25), strict=True)
    crossed = {
        name: dataclasses.replace(one, crossing_rate=rate)
        for (name, one), rate in rates
    }
    results.final["test"] = dataclasses.replace(scores, boundaries=crossed)
    for critical, places in (
        (["d|e", "a|b"], [0, 3]),
        ([], [2, 3, 4]),
        (list(crossed), [0, 1, 2]),
    ):
        found = dataclasses.replace(results, critical=critical).boundaries_that_matter
        assert list(found.items()) == [(list(crossed)[h], h) for h in places]


def test_values_that_are_not_whole_decide_the_mae():
    true, predicted = np.array([0, 0, 2]), np.array([0, 1, 2])
    values = [0.25, 0.85, 1.5]
    found = metrics.ordinal_metrics(true, predicted, list("012"), None, values)
    assert found["mae"] == pytest.approx(1.6 / 3)
    assert found["macro_mae"] == pytest.approx((0.55 + 0.5) / 2)
    assert found["max_mae"] == pytest.approx(0.55)
    plain = metrics.ordinal_metrics(true, predicted, list("012"))
    changed = {k for k in plain if plain[k] != found[k]}
    assert changed == {"mae", "macro_mae", "max_mae"}


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([0], [0], "ab", [[3.0, -1.0]]), "logits"),
        (([0], [0], "ab", [[math.nan, 1.0]]), "not to 1"),
    ],
)
def test_errors_say_what_came(arguments, message):
    with pytest.raises(ValueError, match=message):
        metrics.ordinal_metrics(*arguments)


# --- the order of the ranks in the embeddings ---

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
    found = metrics.order_score(embeddings, labels, RANKS)
    assert found["overall"] == pytest.approx(np.mean(each), abs=1e-9)
    assert found["images"] == len(labels) and list(found["by_rank"]) == RANKS
    for rank, name in enumerate(RANKS):
        of_rank = np.mean([each[i] for i in np.flatnonzero(labels == rank)])
        assert found["by_rank"][name] == pytest.approx(of_rank, abs=1e-9)


def test_order_score_is_none_where_nothing_is_defined():
    nothing = {"overall": None, "by_rank": dict.fromkeys(RANKS)}
    labels = np.array([0, 1, 2, 0, 1])
    same = np.tile(np.array([[0.3, 0.7, 0.1]], np.float32), (5, 1))  # collapsed
    assert metrics.order_score(same, labels, RANKS) == nothing | {"images": 5}
    one = metrics.order_score(made(6)[0], np.zeros(6, int), RANKS)  # one rank only
    assert one == nothing | {"images": 6}
    assert metrics.order_score(np.ones((1, 3)), np.array([1]), RANKS)["overall"] is None
    some = metrics.order_score(*made(12, ranks=2), RANKS)  # nobody is of the last rank
    assert some["by_rank"]["high"] is None and some["overall"] is not None
    json.dumps(some, allow_nan=False)


def test_order_score_of_many_is_of_a_sample(monkeypatch):
    monkeypatch.setattr(metrics, "MOST", 300)
    embeddings, labels = made(900)
    found = metrics.order_score(embeddings, labels, RANKS)
    assert found["images"] == 300
    assert found == metrics.order_score(embeddings, labels, RANKS)
    monkeypatch.setattr(metrics, "MOST", 900)
    whole = metrics.order_score(embeddings, labels, RANKS)["overall"]
    assert found["overall"] == pytest.approx(whole, abs=0.05)


def test_similarity_is_the_mean_over_pairs():
    embeddings, labels = made(30)
    found = metrics.similarity(embeddings, labels, 4)
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
    found = metrics.similarity(embeddings, np.array([0, 0, 1]), 2)
    assert found[0, 0] == pytest.approx(0)  # not 1/2, as with themselves
    assert np.isnan(found[1, 1])  # a single image has no other
