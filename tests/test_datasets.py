"""Datasets by name: their splits, and what a user without the data is told."""

import inspect

import numpy as np
import pytest

from cloc_jax.data import datasets

SYNTHETIC = {"size": (24, 24), "channels": 1, "seed": 0}
FOLDER = {
    "channels": 1,
    "order": (),
    "val_fraction": 0.1,
    "test_fraction": 0.1,
    "merge_val": False,
    "group_pattern": "",
    "seed": 0,
}


def test_drawn_splits_share_no_knee():
    dataset = datasets.load_synthetic(num_train=20, num_val=8, num_test=8, **SYNTHETIC)
    ids = [i for source in dataset.splits.values() for i in source.ids]
    assert len(set(ids)) == 36 and dataset.ranks == ("0", "1", "2", "3", "4")
    assert dataset.splits["val"][0].shape == (24, 24, 1)
    with pytest.raises(ValueError, match="data.channels is 3"):
        datasets.load_synthetic(
            num_train=2, num_val=2, num_test=2, **(SYNTHETIC | {"channels": 3})
        )


def test_koa_says_how_to_get_it():
    with pytest.raises(ValueError, match="data.root is empty.*data/koa/README.md"):
        datasets.load_koa(root="", **FOLDER)
    # The same settings as any folder.
    names = [inspect.signature(f) for f in (datasets.load_koa, datasets.load_folder)]
    assert list(names[0].parameters) == list(names[1].parameters)


def test_real_koa_has_the_papers_counts(shared):
    root = str(shared / "data" / "koa")
    dataset = datasets.load_koa(root=root, **FOLDER)
    counts = {
        name: np.bincount(source.labels).tolist()
        for name, source in dataset.splits.items()
    }
    assert counts == {
        "train": [2286, 1046, 1516, 757, 173],
        "val": [328, 153, 212, 106, 27],
        "test": [639, 296, 447, 223, 51],
    }
    assert dataset.splits["test"][0].shape == (224, 224, 1)
