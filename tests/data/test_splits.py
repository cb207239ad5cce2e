"""Shipped splits, and calibration that leaves the others as they were."""

import pathlib

import numpy as np
import pytest

from cloc_jax.data import splits
from cloc_jax.data.layouts.listing import Item

RANKS = ("0", "1", "2")
OPTIONS = {
    "merge_val": False,
    "val_fraction": 0.1,
    "test_fraction": 0.15,
    "seed": 0,
}


def items(count=60, split=None, group=None, start=0):
    """Items of three ranks in turn; `split` and `group` are functions of the number."""
    found = [
        Item(
            id=f"{i % 3}/{i:04d}.png",
            path=pathlib.Path(f"/images/{i}.png"),
            label=i % 3,
            split=split and split(i),
            group=group and group(i),
        )
        for i in range(start, start + count)
    ]
    return sorted(found)


def divide(some, **options):
    return splits.divide(some, RANKS, **(OPTIONS | options))


def ids(some, division, split):
    return [some[i].id for i in division.indices[split]]


def test_shipped_splits_without_train_are_refused():
    with pytest.raises(ValueError, match="no training images, only test, val"):
        divide(items(9, split=lambda i: ("val", "test")[i % 2]))


# --- calibration ---


@pytest.mark.parametrize("shipped", [False, True])
def test_calibration_is_taken_from_train_alone(shipped):
    names = ("train", "train", "train", "train", "val", "test")
    some = items(600, split=(lambda i: names[i // 3 % 6]) if shipped else None)
    plain, held = divide(some), divide(some, calibration_fraction=0.2)
    assert list(plain.indices) == ["train", "val", "test"]
    assert list(held.indices) == ["train", "val", "test", "calibration"]
    for split in ("val", "test"):  # the same with and without
        assert held.indices[split].tolist() == plain.indices[split].tolist()
    both = np.concatenate([held.indices["train"], held.indices["calibration"]])
    assert sorted(both) == plain.indices["train"].tolist()  # and no item twice
    labels = np.array([item.label for item in some])
    for rank in range(3):
        before, chosen = (
            int((labels[part] == rank).sum())
            for part in (plain.indices["train"], held.indices["calibration"])
        )
        assert chosen == int(0.2 * before + 0.5)
    carved = [note.split()[0] for note in held.notes if "was carved" in note]
    assert carved == ([] if shipped else ["test", "val"]) + ["calibration"]
    again, other = (divide(some, calibration_fraction=0.2, seed=s) for s in (0, 1))
    chosen = [ids(some, d, "calibration") for d in (held, again, other)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_calibration_keeps_patients_whole():
    some = items(300, group=lambda i: f"patient-{i % 60}")
    division = divide(some, calibration_fraction=0.25)
    patients = [{some[i].group for i in part} for part in division.indices.values()]
    assert len(patients) == 4 and sum(map(len, patients)) == 60
