"""Biased labels: the right number of the right images."""

import pathlib

import numpy as np
import pytest

from cloc_jax.data import label_noise
from cloc_jax.data.source import Source

RANKS = ("0", "1", "2", "3", "4")
COUNTS = (134, 20, 136, 74, 49)  # IDRiD's training set


class Train(Source):
    def __init__(self, counts=COUNTS, order=None):
        labels = np.repeat(np.arange(len(counts)), counts).astype(np.int32)
        order = np.arange(len(labels)) if order is None else order
        self.labels = labels[order]
        self.ids = [f"image-{i}" for i in order]
        self.paths = [pathlib.Path(f"/images/{i}.png") for i in order]

    def __getitem__(self, index):
        return np.full((1, 1, 1), int(self.ids[index][6:]) % 256, np.uint8)


def apply(source=None, *, relabel=(), seed=0, ranks=RANKS):
    return label_noise.relabel(source or Train(), ranks, rules=relabel, seed=seed)


def test_the_papers_biased_labels():
    before = Train()
    after, changes = apply(before, relabel=("1>2:0.6", "2>1:0.3"))
    # 60% of 20 and 30% of 136, as the paper counts them.
    assert [len(ids) for ids in changes.values()] == [12, 41]
    pairs = list(zip(before.labels.tolist(), after.labels.tolist(), strict=True))
    assert pairs.count((1, 2)) == 12 and pairs.count((2, 1)) == 41
    assert pairs.count((1, 1)) == 8 and pairs.count((2, 2)) == 95
    assert all(a == b for a, b in pairs if a not in (1, 2))
    changed = [i for i, (a, b) in enumerate(pairs) if a != b]
    named = sorted(id_ for ids in changes.values() for id_ in ids)
    assert named == sorted(before.ids[i] for i in changed)
    assert after.labels.dtype == np.int32 and after.ids == before.ids
    assert before.labels.tolist() == Train().labels.tolist()  # not in place


def test_no_image_is_relabelled_twice():
    after, changes = apply(relabel=("0>1:0.5", "0>2:0.5"))
    assert not set(changes["0>1:0.5"]) & set(changes["0>2:0.5"])
    assert np.bincount(after.labels)[0] == 0


def test_seed_chooses_and_order_does_not():
    shuffled = Train(order=np.random.default_rng(0).permutation(sum(COUNTS)))
    _, first = apply(relabel=("1>2:0.5",))
    _, same = apply(shuffled, relabel=("1>2:0.5",))
    _, other = apply(relabel=("1>2:0.5",), seed=1)
    assert first == same and first != other
    # A larger share holds the smaller one.
    _, more = apply(relabel=("1>2:0.8",))
    assert set(first["1>2:0.5"]) < set(more["1>2:0.8"])


def test_names_with_signs_in_them():
    ranks = ("a>b", "b", "8:30", "c", "a")
    after, _ = apply(relabel=("a>b>b:1", "8:30>a:1"), ranks=ranks)
    assert np.bincount(after.labels, minlength=5).tolist() == [0, 154, 0, 74, 185]


@pytest.mark.parametrize(
    "rule", ["1>2", "1>2:", "1>2:1.5", "1>2:-0.1", "1>9:0.5", "1>1:0.5", ""]
)
def test_refusals(rule):
    with pytest.raises(ValueError, match="data.relabel has the rule .*like '1>2:0.6'"):
        apply(relabel=(rule,))
