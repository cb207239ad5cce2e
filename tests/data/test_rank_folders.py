"""Folders of graded images: ranks, splits, notes and every refusal."""

import collections
import contextlib
import os
import pathlib
import re
from typing import NamedTuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from cloc_jax.data import dataset_notes, splits
from cloc_jax.data.layouts import rank_folders
from cloc_jax.data.layouts.listing import SPLITS


class Part(NamedTuple):
    ids: list[str]
    labels: np.ndarray
    paths: list[pathlib.Path]


class Result(NamedTuple):
    ranks: tuple[str, ...]
    splits: dict[str, Part]
    notes: list[str]


def scan(
    root, *, order=(), group_pattern="", merge_val=False, seed=0, **fractions
) -> Result:
    """A folder listed and divided, as training sees it."""
    listing = rank_folders.scan(root, order=order, group_pattern=group_pattern)
    division = splits.divide(
        listing.items,
        listing.ranks,
        protocol=splits.Protocol(),
        fold=0,
        merge_val=merge_val,
        seed=seed,
        **({"val_fraction": 0.1, "test_fraction": 0.15} | fractions),
    )
    parts = {}
    for split, indices in division.indices.items():
        items = [listing.items[i] for i in indices]
        parts[split] = Part(
            [item.id for item in items],
            np.array([item.label for item in items], np.int32),
            [item.path for item in items],
        )
    notes = dataset_notes.on_listing(listing, listing.items, "folder", "")
    notes += division.notes
    return Result(listing.ranks, parts, notes)


def make(root: pathlib.Path, counts: dict[str, int]) -> pathlib.Path:
    """A folder with so many image files in each subfolder. They are never decoded."""
    for name, count in counts.items():
        (root / name).mkdir(parents=True, exist_ok=True)
        for i in range(count):
            (root / name / f"{i:03d}.png").touch()
    return root


def ids(result: Result, split: str) -> set[str]:
    return set(result.splits[split].ids)


def counts(result: Result, split: str) -> list[int]:
    labels = result.splits[split].labels
    return np.bincount(labels, minlength=len(result.ranks)).tolist()


def said(result: Result, pattern: str) -> bool:
    return any(re.search(pattern, note) for note in result.notes)


# --- layouts ---


def test_rank_folders_alone(tmp_path):
    result = scan(make(tmp_path, {"0": 100, "1": 40, "2": 20}))
    assert result.ranks == ("0", "1", "2")
    assert list(result.splits) == ["train", "val", "test"]
    assert counts(result, "val") == [10, 4, 2]
    assert counts(result, "test") == [15, 6, 3]
    assert counts(result, "train") == [75, 30, 15]
    assert not ids(result, "train") & ids(result, "val")
    assert said(result, r"val was carved from train: 16 images in 16 of 160 groups")
    assert said(result, r"test was carved from train: 24 images")


@pytest.mark.parametrize("val", ["val", "validation", "Val"])
def test_shipped_splits_are_used_as_they_are(tmp_path, val):
    shape = {"train/0": 3, "train/1": 2, f"{val}/0": 2, f"{val}/1": 1}
    shape |= {"test/0": 1, "test/1": 4, "auto_test/0": 9, ".cache/0": 9}
    result = scan(make(tmp_path, shape))
    assert [counts(result, s) for s in SPLITS] == [[3, 2], [2, 1], [1, 4]]
    assert ids(result, "val") == {f"{val}/0/000.png", f"{val}/0/001.png"} | {
        f"{val}/1/000.png"
    }
    assert said(result, "Ignored beside the splits: auto_test")
    assert not said(result, "carved")


@pytest.mark.parametrize(
    "shipped, expected",
    [
        ({"test": (5, 5)}, [[45, 27], [5, 3], [5, 5]]),
        ({"val": (5, 6)}, [[42, 25], [5, 6], [8, 5]]),
        ({}, [[37, 22], [5, 3], [8, 5]]),
    ],
)
def test_what_is_missing_is_carved(tmp_path, shipped, expected):
    sizes = {"train": (50, 30)} | shipped
    shape = {f"{s}/{rank}": sizes[s][rank] for s in sizes for rank in (0, 1)}
    result = scan(make(tmp_path, shape))
    assert [counts(result, s) for s in SPLITS] == expected
    assert sum(map(len, (ids(result, s) for s in SPLITS))) == sum(shape.values())
    for split in ("val", "test"):
        assert said(result, f"{split} was carved") == (split not in shipped)


def test_a_test_without_grades_is_not_used(tmp_path):
    shape = {"train/0": 20, "train/1": 20, "test": 7, "val": 0}
    result = scan(make(tmp_path, shape))
    assert said(result, "test is not used: its 7 images lie in no rank folder")
    assert said(result, "val is not used: it holds no images")
    assert counts(result, "test") == [3, 3] and counts(result, "val") == [2, 2]


def test_merge_val(tmp_path):
    shape = {"train/0": 60, "train/1": 30, "val/0": 40, "val/1": 10}
    root = make(tmp_path, shape | {"test/0": 5, "test/1": 5})
    result = scan(root, merge_val=True)
    assert [counts(result, s) for s in SPLITS] == [[90, 36], [10, 4], [5, 5]]
    both = ids(result, "train") | ids(result, "val")
    assert sum(id_.startswith("val/") for id_ in both) == 50
    assert any(id_.startswith("val/") for id_ in ids(result, "train"))
    assert any(id_.startswith("train/") for id_ in ids(result, "val"))
    assert said(result, r"The shipped val \(50 images\) was merged into train")


def test_nothing_to_merge(tmp_path):
    root = make(tmp_path, {"0": 9, "1": 9})
    assert said(scan(root, merge_val=True), "no shipped val")


def test_image_names_and_what_is_skipped(tmp_path):
    root = make(tmp_path, {"0": 6, "1": 6, "1/deeper": 2, "__MACOSX/0": 1})
    for name in ("a.JPG", "b.jpeg", "c.PNG", "d.webp", "e.tif", "f.TIFF", "g.bmp"):
        (root / "0" / name).touch()
    for name in (".DS_Store", "._000.png", "notes.txt", "Thumbs.db", "png"):
        (root / "0" / name).touch()
    (root / "stray.png").touch()
    result = scan(root)
    assert sum(len(source.ids) for source in result.splits.values()) == 13 + 6
    assert said(result, "Skipped: 2 hidden, such as 0/.DS_Store")
    assert said(result, "Skipped: 3 files that are not images")
    assert said(result, "Skipped: 1 folders .*such as 1/deeper")
    assert said(result, "Skipped: 1 images directly in")
    for source in result.splits.values():
        assert source.ids == sorted(source.ids)


# --- ranks ---


def test_numbers_are_sorted_as_numbers(tmp_path):
    root = make(tmp_path, {str(i): 4 for i in range(11)})
    result = scan(root)
    assert result.ranks == tuple(str(i) for i in range(11))
    source = result.splits["train"]
    for id_, label in zip(source.ids, source.labels, strict=True):
        assert int(id_.split("/")[0]) == label
    assert said(result, "0 < 1 < .* < 9 < 10")


@pytest.mark.parametrize(
    "ranks",
    [
        ("0_N", "1_PB", "2_UDH", "10_IC"),
        ("8-13", "15-20", "25-32", "100+"),
        ("0", "0.5", "1", "1.5"),
        ("1st stage", "2nd stage", "03"),
    ],
)
def test_names_that_start_with_a_number(tmp_path, ranks):
    result = scan(make(tmp_path, dict.fromkeys(ranks, 4)))
    assert result.ranks == ranks


def test_gap_in_the_numbers_is_noted(tmp_path):
    result = scan(make(tmp_path, {"0": 4, "1": 4, "3": 4}))
    assert result.ranks == ("0", "1", "3") and said(result, "No folder is called 2")


def test_given_order(tmp_path):
    root = make(tmp_path, {"healthy": 4, "mild": 4, "critical": 4})
    order = ("healthy", "mild", "critical")
    result = scan(root, order=order)
    assert result.ranks == order
    for id_, label in zip(
        result.splits["val"].ids, result.splits["val"].labels, strict=True
    ):
        assert order[label] == id_.split("/")[0]


def test_given_order_overrides_numbers(tmp_path):
    root = make(tmp_path, {"0": 4, "1": 4})
    assert scan(root, order=["1", "0"]).ranks == ("1", "0")


# --- refusals ---


def refuse(root, pattern, *, error=ValueError, **options):
    with pytest.raises(error, match=f"(?s){pattern}") as caught:
        scan(root, **options)
    return str(caught.value)


def test_root_empty_missing_or_a_file(tmp_path):
    refuse("", "data.root is empty; give the folder")
    missing = tmp_path / "gone"
    refuse(missing, "data.root=.*gone.*no such folder.*check", error=FileNotFoundError)
    archive = tmp_path / "koa.zip"
    archive.touch()
    refuse(archive, "data.root=.*koa.zip is a file; give the folder.*unpacked")


def test_no_rank_folders(tmp_path):
    refuse(tmp_path, "data.root=.*has no rank folders; it must hold")
    (tmp_path / "train").mkdir()
    refuse(tmp_path, "data.root.*train has no rank folders; it must hold")


@pytest.mark.parametrize("inner", ["kneeKL224", "a/b/c"])
@pytest.mark.parametrize("shape", [{"train/0": 1, "train/1": 1}, {"low": 1, "high": 1}])
def test_root_too_high(tmp_path, inner, shape):
    make(tmp_path / inner, shape)
    refuse(tmp_path, f"did you mean data.root={re.escape(str(tmp_path / inner))}\\?")


def test_root_too_high_beside_others(tmp_path):
    make(tmp_path / "ClsKLData" / "kneeKL224", {"train/0": 1, "train/1": 1})
    (tmp_path / "papers").mkdir()
    refuse(tmp_path, "holds ClsKLData, papers but .*did you mean .*kneeKL224")


def test_root_of_something_else(tmp_path):
    for name in ("bin", "lib"):
        (tmp_path / name).mkdir()
    refuse(tmp_path, "holds bin, lib but no rank folders with images; it must hold")


def test_root_too_low(tmp_path):
    make(tmp_path, {"alone/0": 3, "split/train/0": 3})
    alone, split = tmp_path / "alone", tmp_path / "split"
    refuse(alone / "0", f"looks like one rank.*data.root={re.escape(str(alone))}\\?")
    refuse(split / "train/0", f"did you mean data.root={re.escape(str(split))}\\?")


def test_root_is_one_split_of_several(tmp_path):
    make(tmp_path, {"train/0": 9, "train/1": 9, "val/0": 2, "test/1": 2})
    result = scan(tmp_path / "train")
    assert said(result, f"test, val beside it are not used.*{tmp_path}")
    assert sum(len(source.ids) for source in result.splits.values()) == 18


def test_no_train(tmp_path):
    make(tmp_path, {"val/0": 2, "val/1": 2, "test/0": 2})
    refuse(tmp_path, "has test, val but no train; name")


def test_two_names_of_one_split(tmp_path):
    make(tmp_path, {"train/0": 2, "train/1": 2, "val/0": 2, "validation/0": 2})
    refuse(tmp_path, "val, validation, which both mean val; keep one")


def test_unknown_order(tmp_path):
    make(tmp_path, {"healthy": 4, "mild": 4, "critical": 4})
    message = refuse(tmp_path, "alphabet is no order of grades")
    assert "data.order=('critical', 'healthy', 'mild')" in message


def test_partly_numbered(tmp_path):
    make(tmp_path, {"0": 4, "1": 4, "unsure": 4})
    refuse(tmp_path, "0, 1, unsure do not all start with a finite number.*data.order=")


def test_same_number_twice(tmp_path):
    make(tmp_path, {"0": 4, "1_a": 4, "1_b": 4})
    refuse(tmp_path, "1_a, 1_b start with the same number.*data.order=")


def test_order_that_does_not_fit(tmp_path):
    make(tmp_path, {"low": 4, "high": 4, "masks": 4})
    message = refuse(tmp_path, "data.order=", order=("low", "middle", "high", "high"))
    assert "no folder middle" in message
    assert "leaves out the folder masks" in message
    assert "names high more than once" in message
    refuse(tmp_path, "data.order is the text 'low,high'.*tuple", order="low,high")


def test_one_rank(tmp_path):
    make(tmp_path, {"train/0": 4, "test/0": 3})
    refuse(tmp_path, "data.root.*only one rank folder, 0; .*at least two")


def test_rank_without_images(tmp_path):
    make(tmp_path, {"0": 4, "1": 0, "2": 4})
    refuse(tmp_path, "no images in the rank folder 1 of .*Fill")
    make(tmp_path, {"1/patient": 3})
    refuse(tmp_path, "no images in the rank folder 1 of .*move their images up")


def test_ranks_that_differ_in_case_only(tmp_path):
    make(tmp_path, {"Mild": 4, "mild": 4, "severe": 4})
    if len(list(tmp_path.iterdir())) < 3:
        pytest.skip("this file system ignores case itself")
    refuse(tmp_path, "case only: Mild, mild; merge", order=("Mild", "mild", "severe"))


def test_ranks_differ_between_splits(tmp_path):
    shape = {"train/0": 4, "train/1": 4, "train/2": 4, "val/0": 4, "test/1": 2}
    result = scan(make(tmp_path, shape))
    assert said(result, "val has no images of ranks 1, 2")
    assert said(result, "test has no images of ranks 0, 2")
    make(tmp_path, {"test/3": 1})
    refuse(tmp_path, "test has the rank folder 3, which .*train has not.*same folder")


@pytest.mark.parametrize("value", [0.0, 1.0, -0.1, float("nan")])
@pytest.mark.parametrize("split", ["val", "test"])
def test_fractions(tmp_path, split, value):
    make(tmp_path, {"0": 4, "1": 4})
    name = f"{split}_fraction"
    refuse(tmp_path, f"data.{name}=.*give a number above 0", **{name: value})


def test_fractions_that_leave_nothing(tmp_path):
    make(tmp_path, {"0": 4, "1": 4})
    both = dict(val_fraction=0.5, test_fraction=0.5)
    refuse(tmp_path, "data.val_fraction=.*leave nothing to train on", **both)


def test_fraction_zero_is_fine_where_nothing_is_carved(tmp_path):
    root = make(tmp_path, {f"{s}/{rank}": 2 for s in SPLITS for rank in "01"})
    scan(root, val_fraction=0.0, test_fraction=0.0)


def test_too_few_images(tmp_path):
    make(tmp_path, {"0": 1, "1": 1})
    refuse(
        tmp_path, "too few images to carve test from train .2 images.*at least 3 groups"
    )


def test_group_pattern_refusals(tmp_path):
    make(tmp_path, {"0": 4, "1": 4})
    refuse(tmp_path, "data.group_pattern='.' is not a regular", group_pattern="(")
    refuse(
        tmp_path, "matches no file name, such as 000.png", group_pattern="^([a-z]+)_"
    )
    refuse(tmp_path, "matches no file name", group_pattern="^([a-z]*)")  # empty matches


# --- carving ---


def test_listing_order_and_position_do_not_matter(tmp_path, monkeypatch):
    root = make(tmp_path, {"0": 30, "1": 20})
    first = scan(root)
    listed = os.scandir

    @contextlib.contextmanager
    def backwards(path):
        with listed(path) as entries:
            yield sorted(entries, key=lambda entry: entry.name, reverse=True)

    monkeypatch.setattr(os, "scandir", backwards)
    second = scan(root.rename(root.parent / "elsewhere"))
    for split in SPLITS:
        assert second.splits[split].ids == first.splits[split].ids


@pytest.mark.parametrize("name", ["aaa.png", "0005.png", "zzz.png", "new1.png"])
def test_one_more_file_moves_at_most_one_other(tmp_path, name):
    root = make(tmp_path, {"0": 95, "1": 45})
    before = scan(root)
    (root / "1" / name).touch()
    after = scan(root)
    for split in ("val", "test"):
        changed = ids(before, split) ^ ids(after, split)
        assert len(changed - {f"1/{name}"}) <= 1
        assert not any(id_.startswith("0/") for id_ in changed)


def graded_patients(draw_ranks: list[list[int]], root: pathlib.Path) -> pathlib.Path:
    """A file a (patient, image): its patient's number first in its name."""
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
def test_groups_stay_whole_and_ranks_are_covered(
    tmp_path_factory, patients, seed, val_fraction
):
    # Three patients of one grade each make every grade carvable.
    patients = patients + [[rank] for rank in range(4) for _ in range(3)]
    root = graded_patients(patients, tmp_path_factory.mktemp("patients"))
    result = scan(
        root,
        group_pattern=r"^(\d+)_",
        seed=seed,
        val_fraction=val_fraction,
    )
    seen = collections.defaultdict(set)
    total = 0
    for split, source in result.splits.items():
        total += len(source.ids)
        for path in source.paths:
            seen[path.name.split("_")[0]].add(split)
        assert set(source.labels.tolist()) == set(range(4)), split
    assert all(len(splits) == 1 for splits in seen.values())
    assert total == sum(len(ranks) for ranks in patients)
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
    fractions = {"val": val_fraction, "test": test_fraction}
    for split, fraction in fractions.items():
        for count, size in zip(counts(result, split), sizes, strict=True):
            assert count >= (2 if size >= 6 else 1)
            assert abs(count - fraction * size) <= 2
    assert min(counts(result, "train")) >= 1


def test_a_rank_beside_higher_ones_is_covered(tmp_path):
    # Rank 0 never stands alone: no stratum is its own.
    patients = [[0, 1]] * 3 + [[1]] * 40
    root = graded_patients(patients, tmp_path)
    for seed in range(10):
        result = scan(root, group_pattern=r"^\d+", seed=seed)
        assert [counts(result, s)[0] for s in SPLITS] == [1, 1, 1]


def test_whole_match_where_the_pattern_has_no_group(tmp_path):
    root = graded_patients([[0, 0], [1, 1]] * 10, tmp_path)
    whole = scan(root, group_pattern=r"^\d+")
    first = scan(root, group_pattern=r"^(\d+)_")
    assert ids(whole, "val") == ids(first, "val")
    assert said(first, "of 20 groups")


def test_names_the_pattern_misses_are_noted(tmp_path):
    root = graded_patients([[0, 0], [1, 1]] * 10, tmp_path)
    (root / "0" / "unknown.png").touch()
    (root / "0" / "other.png").touch()
    result = scan(root, group_pattern=r"^(\d+)_")
    assert said(result, "finds nothing in 2 images, such as 0/other.png")
    assert said(result, "of 22 groups")


def test_groups_shared_by_shipped_splits_are_noted(tmp_path):
    make(tmp_path, {f"{s}/{rank}": 3 for s in SPLITS for rank in "01"})
    result = scan(tmp_path, group_pattern=r"^(\d+)")
    assert said(result, "3 groups .* such as 000, are both in train and in test")


# --- the real thing ---
