"""Folds, drawn splits, and carved splits that stay as they were."""

import hashlib
import json
import pathlib

import numpy as np
import pytest

from cloc_jax.data import splits
from cloc_jax.data.layouts.listing import FOLD, Item

RANKS = ("0", "1", "2")
OPTIONS = {
    "fold": 0,
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


SHIPPED = splits.Protocol()


def divide(some, *, protocol=SHIPPED, **options):
    return splits.divide(some, RANKS, protocol=protocol, **(OPTIONS | options))


def ids(some, division, split):
    return [some[i].id for i in division.indices[split]]


# --- folds ---


@pytest.mark.parametrize("fold", range(5))
def test_a_fold_is_the_test_part_and_users_stay_together(fold):
    some = items(
        300, split=lambda i: FOLD.format(i // 60), group=lambda i: f"user-{i // 6}"
    )
    division = divide(some, protocol=splits.Protocol(folds=5), fold=fold)
    test = [some[i] for i in division.indices["test"]]
    assert len(test) == 60 and {item.split for item in test} == {f"fold {fold}"}
    users = [{some[i].group for i in part} for part in division.indices.values()]
    assert not users[0] & users[1] and not users[0] & users[2]
    assert division.carved == ("val",)


def shipped(*parts):
    """Items with the splits they were shipped in: a third of them each, or half."""
    return items(60, split=lambda i: parts[i // 3 % len(parts)])


@pytest.mark.parametrize(
    "parts, options, message",
    [
        (("val", "test"), {}, "no training images, only test, val"),
        ((), {"calibration_fraction": -0.1}, "data.calibration_fraction="),
        ((), {"calibration_fraction": 1.0}, "data.calibration_fraction="),
        ((), {"calibration_fraction": float("nan")}, "data.calibration_fraction="),
    ],
)
def test_refusals(parts, options, message):
    with pytest.raises(ValueError, match=message):
        divide(shipped(*parts) if parts else items(), **options)


def test_folds_that_there_are_not():
    for fold in (-1, 5):
        with pytest.raises(ValueError, match=f"data.fold is {fold}, .*folds 0 to 4"):
            splits.check_fold(splits.Protocol(folds=5), fold)
    with pytest.raises(ValueError, match="data.fold is 2, but this dataset has no"):
        splits.check_fold(SHIPPED, 2)


def test_too_few_images_for_calibration():
    names = ("train", "val", "test")
    some = items(9, split=lambda i: names[i // 3])
    with pytest.raises(ValueError, match="or go without: --config.data.calibration"):
        divide(some, calibration_fraction=0.5)


# --- drawn splits ---

DRAWN = splits.Protocol(folds=5, draw=7)


@pytest.mark.parametrize("fold", range(5))
def test_drawn_splits_are_the_first_by_hash(fold):
    some = items()
    division = divide(some, protocol=DRAWN, fold=fold)
    for rank in range(3):
        names = [item.id for item in some if item.label == rank]
        by_hash = sorted(
            names,
            key=lambda n: hashlib.blake2b(
                f"{fold}/{n}".encode(), digest_size=16
            ).digest(),
        )
        chosen = {n for n in ids(some, division, "test") if n[0] == str(rank)}
        assert chosen == set(by_hash[:7])


def test_drawn_splits_are_fixed_and_differ():
    some = items()
    tests = [
        ids(some, divide(some, protocol=DRAWN, fold=f, seed=f), "test")
        for f in range(5)
    ]
    assert len({tuple(test) for test in tests}) == 5
    again = divide(some, protocol=DRAWN, fold=1, seed=99)  # the seed plays no part
    assert ids(some, again, "test") == tests[1]
    # Files of another rank do not move them either.
    fewer = [item for item in some if item.label != 2]
    division = divide(fewer, protocol=DRAWN, fold=1)
    assert ids(fewer, division, "test") == [n for n in tests[1] if n[0] != "2"]


# --- lists ---


def test_splits_are_written_down(tmp_path):
    path, some = tmp_path / "splits.json", items(60)
    division = divide(some)
    assert splits.write(path, division, some, {"why": "test"}) == []
    written = json.loads(path.read_text())
    assert written["settings"] == {"why": "test"}
    for split in division.indices:
        assert written["splits"][split] == ids(some, division, split)
    (note,) = splits.write(tmp_path / "gone" / "x.json", division, some, {})
    assert note.startswith("Warning: the splits could not be written down")


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
    assert held.carved == (() if shipped else ("test", "val")) + ("calibration",)
    assert any("calibration was carved from train" in note for note in held.notes)
    again, other = (divide(some, calibration_fraction=0.2, seed=s) for s in (0, 1))
    chosen = [ids(some, d, "calibration") for d in (held, again, other)]
    assert chosen[0] == chosen[1] != chosen[2]


def test_calibration_keeps_patients_whole():
    some = items(300, group=lambda i: f"patient-{i % 60}")
    division = divide(some, calibration_fraction=0.25)
    patients = [{some[i].group for i in part} for part in division.indices.values()]
    assert len(patients) == 4 and sum(map(len, patients)) == 60
