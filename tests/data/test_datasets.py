"""Datasets by name, from sources to splits: all of them, on miniatures and for real."""

import importlib
import json
import re

import miniatures
import numpy as np
import pytest
from launching import ROOT

from cloc_jax.config import default_config
from cloc_jax.data import datasets
from cloc_jax.runtime.console import console

NAMES = list(datasets.LAYOUTS)


def settings(name, root, **changes):
    """The data section of a dataset's configuration, for small images."""
    config = importlib.import_module(f"configs.{name}").get_config()
    fields = config.data.to_dict() | {"root": str(root), "size": (16, 16)}
    fields |= {"crop": (8, 10)} if name == "koa" else {}
    return fields | changes


def load(name, root, prepared, **changes):
    fields = settings(name, root, **changes)
    with console.capture() as captured:
        dataset = datasets.load(name, fields, prepared=prepared)
    return dataset, [line.strip() for line in captured.get().splitlines()]


def counts(dataset):
    return {
        split: np.bincount(source.labels, minlength=len(dataset.ranks)).tolist()
        for split, source in dataset.splits.items()
    }


def said(dataset, pattern):
    return any(re.search(pattern, note) for note in dataset.notes)


# --- drawn ---


DRAWN = {"size": (24, 24), "channels": 1, "num_train": 20, "num_val": 8, "num_test": 8}


def test_drawn_splits_share_no_knee(tmp_path):
    fields = default_config().data.to_dict() | DRAWN
    dataset = datasets.load("synthetic", fields, prepared=tmp_path / "p")
    ids = [i for source in dataset.splits.values() for i in source.ids]
    assert len(set(ids)) == 36 and dataset.ranks == ("0", "1", "2", "3", "4")
    assert dataset.splits["val"][0].shape == (24, 24, 1)
    assert not (tmp_path / "p").exists()  # stored nowhere
    with pytest.raises(ValueError, match="data.channels is 3"):
        datasets.load("synthetic", fields | {"channels": 3}, prepared=tmp_path)


def test_drawn_calibration_is_the_end_of_train(tmp_path):
    fields = default_config().data.to_dict() | DRAWN
    plain = datasets.load("synthetic", fields, prepared=tmp_path)
    asked = fields | {"calibration_fraction": 0.2, "relabel": ("0>1:1",)}
    held = datasets.load("synthetic", asked, prepared=tmp_path)
    assert list(held.splits) == ["train", "val", "test", "calibration"]
    for split in ("val", "test"):
        assert held.splits[split].ids == plain.splits[split].ids
    train, end = plain.splits["train"], held.splits["calibration"]
    assert [*held.splits["train"].ids, *end.ids] == list(train.ids) and len(end) == 4
    assert end.labels.tolist() == train.labels[-4:].tolist()  # only train is biased
    assert (end[3] == train[19]).all()
    for fraction in (0.01, 0.99):
        asked = fields | {"calibration_fraction": fraction}
        with pytest.raises(ValueError, match="data.calibration_fraction="):
            datasets.load("synthetic", asked, prepared=tmp_path)


# --- all of them ---


@pytest.mark.parametrize("name", NAMES)
def test_every_dataset_from_its_miniature(tmp_path, name):
    root = miniatures.MINIATURES[name](tmp_path / "source")
    before = sorted((p, p.stat().st_mtime_ns) for p in tmp_path.rglob("*"))
    dataset, talk = load(name, root, tmp_path / "prepared")
    assert len(talk) == 1 and talk[0].startswith("preparing")
    seen: set[str] = set()
    for split, source in dataset.splits.items():
        assert len(source) > 0, split
        assert not seen & set(source.ids)
        seen |= set(source.ids)
        channels = 1 if name == "koa" else 3
        assert source[0].dtype == np.uint8 and source[0].shape[2] == channels
        assert (source.paths is None) == (name == "retinamnist")
    again, talk = load(name, root, tmp_path / "prepared")
    assert talk == [] and counts(again) == counts(dataset)
    for split, source in dataset.splits.items():
        assert again.splits[split].ids == source.ids
        np.testing.assert_array_equal(again.splits[split][0], source[0])
    after = sorted((p, p.stat().st_mtime_ns) for p in (tmp_path / "source").rglob("*"))
    known = [pair for pair in before if pair[0] != tmp_path / "source"]
    assert after == known  # nothing touched
    json.dumps(dataset.details)
    # A count unlike the card's is a warning with both numbers.
    for split, wanted in datasets.LAYOUTS[name].counts.items():
        assert said(dataset, rf"^Warning: {split} has .* images; .* says {wanted}\.")


@pytest.mark.parametrize("name", [n for n in NAMES if n != "folder"])
def test_the_card_says_what_the_code_expects(name):
    card = (ROOT / "data" / name / "README.md").read_text()
    for split, wanted in datasets.LAYOUTS[name].counts.items():
        assert re.search(rf"^\| {split} .*\| {wanted} \|$", card, re.M), split
    assert f"configs/{name}.py" in card and "| Licence |" in card
    assert datasets.LAYOUTS[name].source.rpartition("/")[2] in card


@pytest.mark.parametrize("name", [n for n in NAMES if n != "folder"])
def test_without_the_data_it_says_how_to_get_them(tmp_path, name):
    how = f"come from http.*data/{name}/README.md says how"
    with pytest.raises(ValueError, match=f"data.root is empty.*{how}"):
        load(name, "", tmp_path)
    with pytest.raises(ValueError, match=f"gone does not exist.*{how}"):
        load(name, tmp_path / "gone", tmp_path)


# --- protocols ---


def test_folds_share_their_records(tmp_path):
    root = miniatures.hid(tmp_path / "source")
    tests = []
    for fold in range(5):
        dataset, _ = load("hid", root, tmp_path / "prepared", fold=fold)
        tests.append(tuple(dataset.splits["test"].ids))
        assert counts(dataset)["test"] == [50] * 5  # of those that can be read
    assert len(set(tests)) == 5
    assert said(dataset, "Warning: left out: 1 of 281 images .*1950s/zz_damaged.jpg")
    (home,) = (tmp_path / "prepared").iterdir()
    assert len(list(home.glob("records-*"))) == 1


def test_biased_labels_reach_train_only_and_are_recorded(tmp_path):
    root = miniatures.idrid(tmp_path / "source")
    plain, _ = load("idrid", root, tmp_path / "prepared")
    biased, talk = load(
        "idrid",
        root,
        tmp_path / "prepared",
        relabel=("1>2:0.5", "2>1:1"),
    )
    assert talk == []
    was, now = counts(plain), counts(biased)
    assert (now["val"], now["test"]) == (was["val"], was["test"])
    assert was["train"] == [2] * 5  # two of each four were set aside
    assert now["train"] == [2, 1 + 2, 0 + 1, 2, 2]
    changes = biased.details["biased"]
    assert {rule: len(ids) for rule, ids in changes.items()} == {
        "1>2:0.5": 1,
        "2>1:1": 2,
    }
    assert said(biased, "data.relabel 2>1:1: 2 images of train called otherwise")
    json.dumps(biased.details)


def test_own_images_in_a_table(tmp_path):
    root = miniatures.folder(tmp_path / "source", (8, 8))
    lines = ["image;grade;who"]
    for rank in (0, 1):
        lines += [
            f"{rank}/{i:02d}.png;{'low high'.split()[rank]};p{i}" for i in range(8)
        ]
    (tmp_path / "grades.csv").write_text("\n".join(lines))
    fields = {"csv": str(tmp_path / "grades.csv"), "order": ("low", "high")}
    columns = {"path": "", "label": "", "split": "", "group": "who"}
    unknown = columns | {"group": ""}  # and the prepared images are used again
    for known, is_whole in ((unknown, False), (columns, True)):
        dataset, _ = load(
            "folder", root, tmp_path / "prepared", columns=known, **fields
        )
        assert dataset.ranks == ("low", "high")
        who = [{i[2:4] for i in source.ids} for source in dataset.splits.values()]
        assert is_whole == (sum(map(len, who)) == len(set().union(*who)))
    # The table may lie beside its images and be all that is given.
    (root / "grades.csv").write_text("\n".join(lines))
    fields["csv"] = str(root / "grades.csv")
    alone, _ = load("folder", "", tmp_path / "prepared", columns=columns, **fields)
    assert counts(alone) == counts(dataset)


# --- what is inferred and what is refused ---


def test_what_is_inferred_is_said(tmp_path):
    root = tmp_path / "source"
    for i in range(12):
        miniatures.picture(root / str(i % 2) / f"{i}.png", i, (12 + i, 30), "L")
    dataset, _ = load("folder", root, tmp_path / "prepared", size=(64, 64))
    assert said(dataset, r"Ranks by the numbers of their folders: 0 < 1")
    assert said(dataset, r"Images are from 12x30 to 23x30 \(height x width\), grey")
    assert said(dataset, r"data.channels=1 is enough")
    assert said(dataset, r"give data.group_pattern")
    miniatures.picture(root / "0" / "colour.png", 5, (12, 30))
    dataset, _ = load("folder", root, tmp_path / "prepared", size=(4, 4))
    assert said(dataset, r"\(height x width\), colour")


def test_bad_images_stop_or_are_skipped(tmp_path):
    root = miniatures.folder(tmp_path / "source", (20, 20))
    for i in range(7):
        (root / "0" / f"bad{i}.png").touch()
    match = r"(?s)7 of 47 images cannot be read: 0/bad0.png .the file is empty.*"
    match += r"0/bad4.png.*launch.py check .*--config.data.on_bad_image=skip"
    with pytest.raises(ValueError, match=match):
        load("folder", root, tmp_path / "prepared")
    dataset, talk = load("folder", root, tmp_path / "prepared", on_bad_image="skip")
    assert talk == []  # known from the first time
    assert sum(map(len, dataset.splits.values())) == 40
    assert said(dataset, "Warning: left out: 7 of 47 images cannot be read: 0/bad0.png")
    skipped = dict(dataset.details["skipped"])
    assert sorted(skipped) == [f"0/bad{i}.png" for i in range(7)]


@pytest.mark.parametrize(
    ("name", "field", "value", "message"),
    [
        ("koa", "bin", 2, "data.bin is .*does not have"),
        ("koa", "csv", "grades.csv", "data.csv is .*does not have"),
        ("folder", "max_pixels", 100, "24 of 24 .*has 120 pixels, more than the"),
        ("folder", "crop", (12, 11), "data.crop is 12x11.*are 12 and 10; choose"),
    ],
)
def test_settings_that_a_dataset_refuses(tmp_path, name, field, value, message):
    root = miniatures.MINIATURES[name](tmp_path / "source")
    with pytest.raises(ValueError, match=message):
        load(name, root, tmp_path / "prepared", **{field: value})
    if name == "koa":
        assert not (tmp_path / "prepared").exists()  # before what takes long


# --- the real ones ---


KOA_COUNTS = {
    "train": [2286, 1046, 1516, 757, 173],
    "val": [328, 153, 212, 106, 27],
    "test": [639, 296, 447, 223, 51],
}


def test_real_koa_has_the_papers_counts(shared, tmp_path):
    listing = datasets.LAYOUTS["koa"].scan(shared / "data" / "koa")
    found = {split: [0] * 5 for split in KOA_COUNTS}
    for item in listing.items:
        found[item.split][item.label] += 1
    assert found == KOA_COUNTS
    expected = {split: sum(counts) for split, counts in KOA_COUNTS.items()}
    assert datasets.LAYOUTS["koa"].counts == expected


def test_real_retinamnist_has_medmnists_counts(shared, tmp_path):
    root = shared / "data" / "medmnist"
    dataset, _ = load("retinamnist", root, tmp_path, size=(28, 28))
    assert counts(dataset) == {
        "train": [486, 128, 206, 194, 66],
        "val": [54, 12, 28, 20, 6],
        "test": [174, 46, 92, 68, 20],
    }
    assert not said(dataset, "Warning")
    arrays = np.load(root / "retinamnist.npz")
    test = dataset.splits["test"]
    for i in (0, 17, 399):
        np.testing.assert_array_equal(test[i], arrays["test_images"][i])
        assert test.labels[i] == arrays["test_labels"][i, 0]


def test_scores_to_expect_are_the_papers(shared):
    tables = json.loads((shared / "paper" / "tables.json").read_text())
    row = tables["comparison"]["cloc"]
    for name in ("koa", "idrid", "adience", "hid", "bracs"):
        expect = importlib.import_module(f"configs.{name}").get_config().expect
        assert f"accuracy {row['accuracy'][name]}" in expect
        assert f"MAE {row['mae'][name]}" in expect
    expect = importlib.import_module("configs.clap2015").get_config().expect
    for cell in tables["clap2015_bins"]:
        assert str(cell["mae"]) in expect


def test_critical_boundaries_are_boundaries(tmp_path):
    for name in NAMES:
        config = importlib.import_module(f"configs.{name}").get_config()
        root = miniatures.MINIATURES[name](tmp_path / name)
        fields = settings(name, root)
        listing = datasets.scan(name, fields)
        pairs = zip(listing.ranks, listing.ranks[1:], strict=False)
        boundaries = {f"{a}|{b}" for a, b in pairs}
        assert set(config.data.critical) <= boundaries, name
