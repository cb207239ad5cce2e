"""Folders of graded images: ranks, splits, notes and every refusal."""

import collections
import os
import pathlib
import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloc_jax.data import datasets, splits
from cloc_jax.data.layouts import rank_folders
from cloc_jax.data.layouts.listing import SPLITS


class Result(NamedTuple):
    ranks: tuple[str, ...]
    ids: dict[str, list[str]]
    labels: dict[str, np.ndarray]
    notes: list[str]


def scan(root, *, order=(), group_pattern="", **how) -> Result:
    """A folder listed and divided, as training sees it."""
    listing = rank_folders.scan(root, order=order, group_pattern=group_pattern)
    usual = {"merge_val": False, "val_fraction": 0.1, "test_fraction": 0.15, "seed": 0}
    division = splits.divide(listing.items, listing.ranks, **(usual | how))
    parts = {
        split: [listing.items[i] for i in indices]
        for split, indices in division.indices.items()
    }
    notes = datasets.notes_on_listing(listing, listing.items, {})
    return Result(
        listing.ranks,
        {split: [item.id for item in items] for split, items in parts.items()},
        {s: np.array([i.label for i in items], int) for s, items in parts.items()},
        notes + division.notes,
    )


def make(root: pathlib.Path, counts: dict[str, int]) -> pathlib.Path:
    """A folder with so many image files in each subfolder. They are never decoded."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (root / name / f"{i:03d}.png").touch()
    return root


def counts(result: Result) -> list[list[int]]:
    """[split][rank]"""
    number = len(result.ranks)
    return [np.bincount(result.labels[s], minlength=number).tolist() for s in SPLITS]


def said(result: Result, pattern: str) -> bool:
    return any(re.search(pattern, note) for note in result.notes)


# --- layouts ---


def test_rank_folders_alone(tmp_path):
    result = scan(make(tmp_path, {"0": 100, "1": 40, "2": 20}), merge_val=True)
    assert result.ranks == ("0", "1", "2")
    assert counts(result) == [[75, 30, 15], [10, 4, 2], [15, 6, 3]]
    assert len(set().union(*result.ids.values())) == 160
    assert said(result, r"val was carved from train: 16 images in 16 of 160 groups")
    assert said(result, r"test was carved from train: 24 images")
    assert said(result, "no shipped val")


@pytest.mark.parametrize("val", ["val", "validation", "Val"])
def test_shipped_splits_are_used_as_they_are(tmp_path, val):
    shape = {"train/0": 3, "train/1": 2, f"{val}/0": 2, f"{val}/1": 1}
    shape |= {"test/0": 0, "test/1": 4, "auto_test/0": 9, ".cache/0": 9}
    result = scan(make(tmp_path, shape), val_fraction=0.0, test_fraction=0.0)
    assert counts(result) == [[3, 2], [2, 1], [0, 4]]
    assert said(result, "test has no images of ranks? 0")
    names = ["0/000.png", "0/001.png", "1/000.png"]
    assert result.ids["val"] == [f"{val}/{name}" for name in names]
    assert said(result, "Ignored beside train, val and test: auto_test")
    assert not said(result, "carved")


@pytest.mark.parametrize(
    "shipped, missing, expected",
    [
        ("test", "val", [[45, 27], [5, 3], [5, 6]]),
        ("val", "test", [[42, 25], [5, 6], [8, 5]]),
    ],
)
def test_what_is_missing_is_carved(tmp_path, shipped, missing, expected):
    shape = {"train/0": 50, "train/1": 30, f"{shipped}/0": 5, f"{shipped}/1": 6}
    result = scan(make(tmp_path, shape))
    assert counts(result) == expected
    assert said(result, f"{missing} was carved")
    assert not said(result, f"{shipped} was carved")


def test_a_test_without_grades_is_not_used(tmp_path):
    result = scan(make(tmp_path, {"train/0": 20, "train/1": 20, "test": 7, "val": 0}))
    assert said(result, "Skipped: 7 outside the rank folders, such as test/000.png")
    assert counts(result)[1:] == [[2, 2], [3, 3]]


def test_merge_val(tmp_path):
    shape = {"train/0": 60, "train/1": 30, "val/0": 40, "val/1": 10}
    root = make(tmp_path, shape | {"test/0": 5, "test/1": 5})
    result = scan(root, merge_val=True)
    assert counts(result) == [[90, 36], [10, 4], [5, 5]]
    both = result.ids["train"] + result.ids["val"]
    assert sum(id_.startswith("val/") for id_ in both) == 50
    assert any(id_.startswith("val/") for id_ in result.ids["train"])
    assert any(id_.startswith("train/") for id_ in result.ids["val"])
    assert said(result, r"The shipped val \(50 images\) was merged into train")


def test_image_names_and_what_is_skipped(tmp_path):
    root = make(tmp_path, {"0": 6, "1": 6, "1/deeper": 2, "__MACOSX/0": 1})
    for name in ("a.JPG", "b.jpeg", "c.PNG", "d.webp", "e.tif", "f.TIFF", "g.bmp"):
        (root / "0" / name).touch()
    for name in (".DS_Store", "._000.png", "notes.txt", "Thumbs.db", "png"):
        (root / "0" / name).touch()
    (root / "stray.png").touch()
    result = scan(root)
    assert sum(map(len, result.ids.values())) == 13 + 6
    assert said(result, "Skipped: 4 that are not images by their name, such as 0/Thum")
    assert said(result, "Skipped: 1 outside the rank folders, such as stray.png")
    assert all(ids == sorted(ids) for ids in result.ids.values())


# --- ranks ---


@pytest.mark.parametrize(
    "names, order",
    [
        ([str(i) for i in (0, 1, 10, 11, 2)], ("0", "1", "2", "10", "11")),
        (["0_N", "1_PB", "10_IC", "2_UDH"], ("0_N", "1_PB", "2_UDH", "10_IC")),
        (["100+", "15-20", "8-13"], ("8-13", "15-20", "100+")),
        (["+1", "-0.5", "0", "0.5"], ("-0.5", "0", "0.5", "+1")),
        (["10_20", "1_100", "5_100", "2_5"], ("1_100", "2_5", "5_100", "10_20")),
    ],
)
def test_ranks_by_their_numbers(names, order):
    ranks, (note,) = rank_folders.order_ranks(names, (), what="label", where="x")
    assert ranks == order and " < ".join(order) in note


@pytest.mark.parametrize(
    "names, order, message",
    [
        (["a", "b"], (), r"number of their own.*data.order=\('a', 'b'\)"),
        (["0,5", "1,5"], (), "not all start with a plain number of their own"),
        (["1,000", "500"], (), "not all start with a plain number of their own"),
        (["1.000.000", "1e3", "500"], (), "not all start with a plain number"),
        (["low", "high"], ("low", "middle", "high"), "once .low, high., lowest"),
        (["low", "high"], ("low", "high", "high"), "name each label there once"),
        (["0"], (), "only one rank label, 0; .*at least two"),
    ],
)
def test_names_that_are_no_ranks(names, order, message):
    with pytest.raises(ValueError, match=message):
        rank_folders.order_ranks(names, order, what="label", where="x")


# --- refusals ---

TWO = {"0": 4, "1": 4}
SHIPPED = {f"{split}/{rank}": 1 for split in SPLITS for rank in "01"}
ONE_WITHOUT = {"train/0": 4, "train/1": 4, "train/2": 4, "test/3": 2}


@pytest.mark.parametrize(
    "shape, root, options, message",
    [
        ({}, "gone", {}, "data.root=.*gone does not exist.*; give the"),
        ({"": 1}, "000.png", {}, "000.png is a file .*unpacked first.; give"),
        ({}, "", {}, "has no rank folders; give the folder that holds one"),
        ({"val/0": 2, "val/1": 2, "test/0": 2}, "", {}, "test, val but no train; name"),
        ({"train/0": 4, "test/0": 3}, "", {}, "only one rank folder, 0"),
        ({"0": 4, "1": 0, "2": 4}, "", {}, "no training images of 1; a rank"),
        (ONE_WITHOUT, "", {}, "test has the rank folder 3, which .*train has not"),
        (TWO, "", {"group_pattern": "("}, "data.group_pattern='.' is not a regular"),
        (TWO, "", {"group_pattern": "^([a-z]*)"}, "finds nothing in 8"),
        (TWO, "", {"val_fraction": 0.0}, "data.val_fraction=.*a number above 0"),
        (TWO, "", {"val_fraction": 0.5, "test_fraction": 0.5}, "leave nothing to"),
        (SHIPPED, "", {"calibration_fraction": 0.5}, "or go without data.calibration_"),
        *(
            (TWO, "", {"calibration_fraction": share}, "data.calibration_fraction=")
            for share in (-0.1, float("nan"))
        ),
        ({"0": 1, "1": 1}, "", {}, "too few images to carve test .*at least 3 groups"),
    ],
)
def test_refusals(tmp_path, shape, root, options, message):
    make(tmp_path / "given", {"": 0} | shape)
    with pytest.raises((ValueError, FileNotFoundError), match=f"(?s){message}"):
        scan(tmp_path / "given" / root, **options)


# --- carving ---


def test_listing_order_and_position_do_not_matter(tmp_path, monkeypatch):
    root = make(tmp_path, {"0": 30, "1": 20})
    first, listed = scan(root), os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: listed(path)[::-1])
    assert scan(root.rename(root.parent / "elsewhere")).ids == first.ids


@pytest.mark.parametrize("name", ["aaa.png", "0005.png", "zzz.png", "new1.png"])
def test_one_more_file_moves_at_most_one_other(tmp_path, name):
    root = make(tmp_path, {"0": 95, "1": 45})
    before = scan(root)
    (root / "1" / name).touch()
    after = scan(root)
    for split in ("val", "test"):
        changed = set(before.ids[split]) ^ set(after.ids[split])
        assert len(changed - {f"1/{name}"}) <= 1
        assert not any(id_.startswith("0/") for id_ in changed)


def graded_patients(draw_ranks: list[list[int]], root: pathlib.Path) -> pathlib.Path:
    """A file per (patient, image): its patient's number first in its name."""
    for patient, ranks in enumerate(draw_ranks):
        for image, rank in enumerate(ranks):
            path = root / str(rank) / f"{patient}_{image}.png"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.touch()
    return root


@settings(max_examples=20, deadline=None)
@given(
    patients=st.lists(
        st.lists(st.integers(0, 3), min_size=1, max_size=4), min_size=16, max_size=60
    ),
    seed=st.integers(0, 5),
    val_fraction=st.sampled_from([0.05, 0.1, 0.3]),
)
def test_groups_stay_whole(tmp_path_factory, patients, seed, val_fraction):
    # Three patients of one grade each make every grade carvable.
    patients = patients + [[rank] for rank in range(4) for _ in range(3)]
    root = graded_patients(patients, tmp_path_factory.mktemp("patients"))
    how = {"seed": seed, "val_fraction": val_fraction}
    result = scan(root, group_pattern=r"^(\d+)_", **how)
    seen = collections.defaultdict(set)
    for split, ids in result.ids.items():
        for id_ in ids:
            seen[id_.split("/")[1].split("_")[0]].add(split)
    assert all(len(splits) == 1 for splits in seen.values())
    assert sum(map(len, result.ids.values())) == sum(map(len, patients))
    share = sum(splits == {"val"} for splits in seen.values()) / len(seen)
    assert share <= val_fraction + 4 * 2 / len(seen)


@settings(max_examples=20, deadline=None)
@given(
    sizes=st.lists(st.integers(3, 60), min_size=2, max_size=5),
    val_fraction=st.floats(0.01, 0.5),
    test_fraction=st.floats(0.01, 0.45),
)
def test_every_rank_is_in_every_split(
    tmp_path_factory, sizes, val_fraction, test_fraction
):
    root = tmp_path_factory.mktemp("ranks")
    make(root, {str(rank): size for rank, size in enumerate(sizes)})
    result = scan(root, val_fraction=val_fraction, test_fraction=test_fraction)
    train, *carved = counts(result)
    for split, fraction in zip(carved, (val_fraction, test_fraction), strict=True):
        for count, size in zip(split, sizes, strict=True):
            assert count >= (2 if size >= 6 else 1)
            assert abs(count - fraction * size) <= 2
    assert min(train) >= 1


def test_groups_by_the_whole_match_or_a_part_and_names_that_are_missed(tmp_path):
    root = graded_patients([[0, 0], [1, 1]] * 10, tmp_path)
    whole, first = (scan(root, group_pattern=p) for p in (r"^\d+", r"^(\d+)_"))
    assert whole.ids["val"] == first.ids["val"] and said(first, "of 20 groups")
    (root / "0" / "unknown.png").touch()
    (root / "0" / "other.png").touch()
    result = scan(root, group_pattern=r"^(\d+)_")
    assert said(result, "finds nothing in 2 images, such as 0/other.png")
    assert said(result, "of 22 groups")


def test_groups_shared_by_shipped_splits_are_noted(tmp_path):
    make(tmp_path, {f"{s}/{rank}": 3 for s in SPLITS for rank in "01"})
    result = scan(tmp_path, group_pattern=r"^(\d+)")
    assert said(result, "3 groups .* such as 000, are both in train and in test")
