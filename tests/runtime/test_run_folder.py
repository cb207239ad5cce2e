"""The run folder: nothing overwritten, nothing half written."""

import json

import pytest

from cloc_jax.runtime.run_folder import RunFolder, write_json

DATASET = {"ranks": ["0", "1"], "images": {"train": 4}, "sha256": "a"}


def test_an_existing_folder_is_left_alone(tmp_path):
    (tmp_path / "run").mkdir()
    (tmp_path / "run" / "thesis.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="--run=.*run-2"):
        RunFolder(tmp_path / "run").create({"seed": 0}, DATASET)
    assert [p.name for p in (tmp_path / "run").iterdir()] == ["thesis.txt"]


def test_resuming_needs_the_same_settings_and_images(tmp_path):
    run = RunFolder(tmp_path / "run")
    config = {"seed": 0, "data": {"size": (3, 4)}}
    run.create(config, DATASET)
    run.check_same(config, DATASET)  # tuples come back as lists and are the same
    with pytest.raises(ValueError, match=r"config.data.size was \[3, 4\], is now"):
        run.check_same(config | {"data": {"size": (3, 5)}}, DATASET)
    with pytest.raises(ValueError, match="images have changed"):
        run.check_same(config, DATASET | {"sha256": "b"})


def test_other_images_are_noticed(tmp_path):
    run = RunFolder(tmp_path / "run")
    run.create({"seed": 0}, DATASET)
    run.check_images(DATASET)
    with pytest.raises(ValueError, match="images have changed"):
        run.check_images(DATASET | {"sha256": "b"})


def test_history_is_cut_to_the_checkpoint(tmp_path):
    run = RunFolder(tmp_path)
    run.cut_history(3)  # nothing there yet
    for epoch in range(4):
        run.append_history({"epoch": epoch})
    run.cut_history(2)
    run.append_history({"epoch": 9})
    assert [row["epoch"] for row in run.read_history()] == [0, 1, 9]


def test_json_is_strict_and_whole(tmp_path):
    path = tmp_path / "a.json"
    write_json(path, {"x": 1.5})
    with pytest.raises(ValueError):
        write_json(path, {"x": float("nan")})
    assert json.loads(path.read_text()) == {"x": 1.5}
    assert [p.name for p in tmp_path.iterdir()] == ["a.json"]


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run"):
        RunFolder(tmp_path).read_config()
