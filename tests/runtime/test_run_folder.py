"""The run folder: nothing overwritten, nothing half written."""

import numpy as np
import pytest

from cloc_jax.runtime.run_folder import RunFolder

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
    config["method"] = {"name": "ce", "ce": {}, "dino": {"output": 8}}
    run.create(config, DATASET)
    saved = run.read_config()
    assert saved["data"]["size"] == [3, 4]
    run.check_same(config, DATASET, saved)  # tuples come back as lists, the same
    with pytest.raises(ValueError, match=r"config.data.size was \[3, 4\], is now"):
        run.check_same(config | {"data": {"size": (3, 5)}}, DATASET, saved)
    with pytest.raises(ValueError, match="config.mesh_of was None, is now 1"):
        run.check_same(config | {"mesh_of": 1}, DATASET, saved)
    run.check_same(config | {"mesh": {"devices": 4}}, DATASET, saved)  # may change
    other = {"name": "ce", "ce": {}, "dino": {"output": 9}}  # a method not used
    run.check_same(config | {"method": other}, DATASET, saved)
    with pytest.raises(ValueError, match="config.method.ce.x was None, is now 1"):
        run.check_same(config | {"method": other | {"ce": {"x": 1}}}, DATASET, saved)
    with pytest.raises(ValueError, match="images have changed"):
        run.check_same(config, DATASET | {"sha256": "b"}, saved)


def test_history_is_cut_to_the_checkpoint(tmp_path):
    run = RunFolder(tmp_path)
    run.cut_history(3)  # nothing there yet
    for epoch in range(4):
        run.append_history({"epoch": epoch})
    run.cut_history(2)
    run.append_history({"epoch": 9})
    assert [row["epoch"] for row in run.read_history()] == [0, 1, 9]


def test_support_comes_back_and_may_be_absent(tmp_path):
    run = RunFolder(tmp_path)
    (tmp_path / "stages").mkdir()
    assert run.read_support("final") is None
    run.write_support("final", {"bank": np.eye(3, dtype=np.float32), "k": np.int32(4)})
    found = run.read_support("final")
    assert found.keys() == {"bank", "k"} and found["k"] == 4
    np.testing.assert_array_equal(found["bank"], np.eye(3))
    assert found["bank"].dtype == np.float32


def test_a_failure_is_kept_until_training_goes_on(tmp_path):
    run = RunFolder(tmp_path)
    assert run.read_failure() == ""
    run.write_failure("the disk is full.")
    assert run.read_failure() == "the disk is full."
    run.check_new()  # what failed before it began may begin again
    run.clear_parts()
    assert run.read_failure() == "" and not list(tmp_path.iterdir())


def test_a_folder_that_is_no_run(tmp_path):
    with pytest.raises(FileNotFoundError, match="is not a run"):
        RunFolder(tmp_path).read_config()
