"""Biased labels and thinned ranks: the right number of the right images."""

import pathlib

import numpy as np
import pytest

from cloc_jax.data import datasets, label_noise
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


def apply(source=None, *, relabel=(), subsample=(), seed=0, ranks=RANKS):
    source = source or Train()
    return label_noise.add_label_noise(
        source, ranks, relabel=relabel, subsample=subsample, seed=seed
    )


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


def test_subsampling_keeps_a_share_and_its_images():
    after, changes = apply(subsample=("4:0.2", "0:0.5"))
    assert np.bincount(after.labels).tolist() == [67, 20, 136, 74, 10]
    assert len(changes["subsample 4:0.2"]) == 39
    for i in range(len(after)):
        assert after[i][0, 0, 0] == int(after.ids[i][6:]) % 256
        assert after.paths[i] == pathlib.Path(f"/images/{after.ids[i][6:]}.png")
    assert not set(after.ids) & set(changes["subsample 4:0.2"])


def test_no_image_is_relabelled_twice():
    after, changes = apply(relabel=("0>1:0.5", "0>2:0.5"))
    assert not set(changes["relabel 0>1:0.5"]) & set(changes["relabel 0>2:0.5"])
    assert np.bincount(after.labels)[0] == 0


def test_seed_chooses_and_order_does_not():
    shuffled = Train(order=np.random.default_rng(0).permutation(sum(COUNTS)))
    _, first = apply(relabel=("1>2:0.5",))
    _, same = apply(shuffled, relabel=("1>2:0.5",))
    _, other = apply(relabel=("1>2:0.5",), seed=1)
    assert first == same and first != other
    # A larger share holds the smaller one.
    _, more = apply(relabel=("1>2:0.8",))
    assert set(first["relabel 1>2:0.5"]) < set(more["relabel 1>2:0.8"])


def test_names_with_signs_in_them():
    ranks = ("a>b", "b", "8:30", "c", "a")
    after, _ = apply(relabel=("a>b>b:1", "8:30>a:1"), ranks=ranks)
    assert np.bincount(after.labels, minlength=5).tolist() == [0, 154, 0, 74, 185]


RULE = "data.relabel has the rule .*like '1>2:0.6'"


@pytest.mark.parametrize(
    "rules, message",
    [
        *(
            ({"relabel": (rule,)}, RULE)
            for rule in ("1>2", "1>2:", "1>2:1.5", "1>2:-0.1", "1>9:0.5", "1>1:0.5", "")
        ),
        ({"subsample": ("9:0.5",)}, "data.subsample has the rule '9:0.5'"),
        ({"subsample": ("1:0.02",)}, "leaves no training images of rank 1 .*20"),
    ],
)
def test_refusals(rules, message):
    with pytest.raises(ValueError, match=message):
        apply(**rules)


def test_relabelled_items_are_known_by_the_marks_of_their_source():
    drawn = datasets.load_synthetic(
        size=(16, 16),
        channels=1,
        num_train=30,
        num_val=8,
        num_test=8,
        seed=0,
        calibration_fraction=0.0,
    )
    train = drawn.splits["train"]
    found, _ = label_noise.add_label_noise(
        train, drawn.ranks, relabel=["0>1:0.5"], subsample=["2:0.5"], seed=0
    )
    marks = dict(zip(train.ids, train.stamps, strict=True))
    assert len(found) < len(train)
    assert found.stamps == [marks[item] for item in found.ids]
