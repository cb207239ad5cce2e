"""The check of a dataset: what it finds, what it leaves alone, and its exit code."""

import json
import pathlib
import shutil

import numpy as np
import pytest
from PIL import Image

from cloc_jax.cli import check, main
from cloc_jax.data.drawn_knees import Knees
from cloc_jax.runtime import files
from configs import folder, quickstart


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def drawn(root, splits=(("train", 12), ("val", 2), ("test", 4))):
    """Knees as PNG, patients by the first three digits of the name, all different."""
    knees = Knees(sum(3 * n for _, n in splits), start=0, seed=0, size=(48, 48))
    number = 0
    for split, count in splits:
        for rank in range(3):
            for _ in range(count):
                path = root / split / str(rank) / f"{number:03d}_a.png"
                path.parent.mkdir(parents=True, exist_ok=True)
                Image.fromarray(knees[number][:, :, 0]).save(path)
                number += 1
    return root


def config_of(root, **changes):
    config = folder.get_config()
    config.data.root = str(root)
    config.data.size = (32, 32)
    config.data.channels = 1
    config.update_from_flattened_dict(changes)
    return config


def checked(config, tmp_path):
    """Exit code and check.json."""
    code = check.check(config, tmp_path / "out")
    return code, json.loads((tmp_path / "out" / "check.json").read_text())


@pytest.mark.parametrize("name", ["check.json", "odd.png"])
def test_files_of_others_are_left_alone(tmp_path, name):
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / name).write_text('{"mine": 1}')
    with pytest.raises(FileExistsError, match=f"{name} was not made by a check"):
        check.check(config_of(tmp_path), tmp_path / "out")
    assert (tmp_path / "out" / name).read_text() == '{"mine": 1}'


def names(group):
    return [pathlib.PurePosixPath(image["id"]).name for image in group["images"]]


def test_clean_images_pass_and_leave_no_picture(tmp_path, capsys):
    root = drawn(tmp_path / "data")
    config = config_of(root, **{"data.group_pattern": r"^(\d+)"})
    (tmp_path / "out").mkdir()
    files.write_sealed(tmp_path / "out" / "check.json", {})  # of an earlier check
    (tmp_path / "out" / "odd.png").write_text("of an earlier check")
    code, found = checked(config, tmp_path)
    assert code == 0 and found["findings"] == []
    assert found["identical"] == found["near_identical"] == found["flat"] == []
    assert found["images"]["train"] == {"0": 12, "1": 12, "2": 12}
    assert found["images"]["test"] == {"0": 4, "1": 4, "2": 4}
    assert found["sizes"]["smallest"] == found["sizes"]["largest"] == [48, 48]
    assert found["sizes"]["grey"] == 54
    assert found["patients"] == 54 and found["patients_in_several_splits"] == {}
    assert not (tmp_path / "out" / "odd.png").exists()
    (few,) = [text for text in found["remarks"] if "test images" in text]
    assert "3 ranks, 0 (4); 1 (4); 2 (4)" in few


def test_everything_that_is_wrong_is_found(tmp_path):
    root = drawn(tmp_path / "data")
    shutil.copy(root / "train/0/000_a.png", root / "test/0/000_copy.png")
    shutil.copy(root / "train/1/012_a.png", root / "train/2/900_a.png")
    shutil.copy(root / "train/0/005_a.png", root / "train/0/901_a.png")  # harmless
    near = Image.open(root / "train/2/030_a.png").resize((70, 70))
    near.save(root / "val/2/902_a.jpg", quality=70)
    Image.fromarray(np.zeros((48, 48), np.uint8)).save(root / "train/0/903_a.png")
    (root / "train/1/904_a.png").write_text("not an image")
    config = config_of(root, **{"data.group_pattern": r"^(\d+)"})
    code, found = checked(config, tmp_path)
    assert code == 1
    groups = {tuple(names(g)): g for g in found["identical"]}
    across = groups["000_a.png", "000_copy.png"]
    assert across["in_several_splits"] and not across["of_several_ranks"]
    unlike = groups["012_a.png", "900_a.png"]
    assert unlike["of_several_ranks"] and not unlike["in_several_splits"]
    assert {g["rank"] for g in unlike["images"]} == {"1", "2"}
    harmless = groups["005_a.png", "901_a.png"]
    assert not (harmless["in_several_splits"] or harmless["of_several_ranks"])
    assert len(groups) == 3
    (pair,) = found["near_identical"]
    assert names(pair) == ["030_a.png", "902_a.jpg"] and pair["in_several_splits"]
    assert 0 < pair["bits"] <= found["near_identical_bits"][0]
    assert [image["id"] for image in found["flat"]] == ["train/0/903_a.png"]
    assert list(found["unreadable"]) == ["train/1/904_a.png"]
    assert found["patients_in_several_splits"] == {"000": ["test", "train"]}
    # unreadable, two kinds of identical, near across splits, the patient
    assert len(found["findings"]) == 5
    with Image.open(tmp_path / "out" / "odd.png") as picture:
        assert picture.width > 300 and picture.height > 600


def test_labels_made_wrong_on_purpose_are_not_a_finding(tmp_path):
    root = drawn(tmp_path / "data")
    shutil.copy(root / "train/0/000_a.png", root / "train/0/900_a.png")
    wrong = {"data.relabel": ("0>1:0.5",), "data.permute": 3}
    code, found = checked(config_of(root, **wrong), tmp_path)
    assert code == 0 and len(found["identical"]) == 1


def test_files_that_are_to_be_skipped_are_no_finding(tmp_path):
    root = drawn(tmp_path / "data")
    (root / "train/1/904_a.png").write_text("not an image")
    config = config_of(root, **{"data.on_bad_image": "skip"})
    code, found = checked(config, tmp_path)
    assert code == 0 and list(found["unreadable"]) == ["train/1/904_a.png"]


def test_drawn_images_need_no_check(tmp_path):
    config = quickstart.get_config()
    config.data.num_train = config.data.num_val = config.data.num_test = 10
    assert check.check(config, tmp_path / "out") == 0
    assert not (tmp_path / "out").exists()


def test_what_the_command_says(tmp_path, monkeypatch, capsys):
    root = drawn(tmp_path / "data")
    shutil.copy(root / "train/0/000_a.png", root / "test/1/900_a.png")
    monkeypatch.chdir(tmp_path)
    words = ["--config=configs/folder.py", f"--config.data.root={root}"]
    assert main.main(["check", *words, "--config.data.size=(32, 32)"]) == 1
    said = " ".join(capsys.readouterr().out.split())
    assert "In several splits, identical: 1 group" in said
    assert "000_a.png (train, 0) = 900_a.png (test, 1)" in said
    assert (tmp_path / "runs" / "folder-check" / "check.json").exists()
