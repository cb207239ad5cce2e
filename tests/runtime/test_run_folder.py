"""The run folder: one writer, nothing overwritten, changes of images said."""

import errno
import fcntl
import json
import os
import shutil
import signal
import subprocess
import sys

import miniatures
import numpy as np
import pytest
from finished_runs import finished_run
from PIL import Image
from tiny_runs import of_folder

from cloc_jax.cli import decide, main
from cloc_jax.cli.command_line import DecisionFlags
from cloc_jax.report import evaluation, html_page, view
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder, changed_images
from cloc_jax.training import assembly
from cloc_jax.training import run as training

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
    run.check_settings(saved, config)  # tuples come back as lists, the same
    with pytest.raises(ValueError, match=r"config.data.size was \[3, 4\], is now"):
        run.check_settings(saved, config | {"data": {"size": (3, 5)}})
    with pytest.raises(ValueError, match="config.mesh_of was None, is now 1"):
        run.check_settings(saved, config | {"mesh_of": 1})
    run.check_settings(saved, config | {"mesh": {"devices": 4}})  # may change
    other = {"name": "ce", "ce": {}, "dino": {"output": 9}}  # a method not used
    run.check_settings(saved, config | {"method": other})
    with pytest.raises(ValueError, match="config.method.ce.x was None, is now 1"):
        run.check_settings(saved, config | {"method": other | {"ce": {"x": 1}}})
    run.check_images(DATASET)
    with pytest.raises(ValueError, match="images have changed"):
        run.check_images(DATASET | {"sha256": "b"})
    # What was read of them once may be wrong as well.
    kept = {"sha256": "b", "details": {"prepared": "/cache/records-1"}}
    with pytest.raises(ValueError, match="remove /cache/records-1 if they have"):
        run.check_images(DATASET | kept)


def test_history_is_cut_to_the_checkpoint(tmp_path):
    run = RunFolder(tmp_path)
    run.cut_history(3)  # nothing there yet
    row = {"train": {}, "train_eval": {}, "val": {}, "readouts": {}, "seconds": 1.0}
    for epoch in range(4):
        run.append_history({"stage": "fit", "epoch": epoch} | row)
    run.cut_history(2)
    run.append_history({"stage": "fit", "epoch": 9} | row)
    assert [row["epoch"] for row in run.read_history()] == [0, 1, 9]
    whole = run.history.read_text()
    run.history.write_text(whole + whole[:50])  # killed while writing
    assert run.cut_history(3) == 3 and run.history.read_text() == whole
    run.history.write_text(whole.replace('"epoch": 1', '"epoch": 2'))
    for read in (run.read_history, lambda: run.cut_history(3)):
        with pytest.raises(files.Damaged, match="row 2: it does not match"):
            read()


def test_support_comes_back_and_may_be_absent(tmp_path):
    run = RunFolder(tmp_path)
    (tmp_path / "stages").mkdir()
    run.write_stage("final", {"seconds": 1.0})
    assert run.read_support("final") is None
    bank = {"bank": np.eye(3, dtype=np.float32), "k": np.int32(4)}
    run.write_stage("final", {"seconds": 1.0}, bank)
    assert run.read_stage("final") == {"name": "final", "seconds": 1.0}
    found = run.read_support("final")
    assert found.keys() == {"bank", "k"} and found["k"] == 4
    np.testing.assert_array_equal(found["bank"], np.eye(3))
    assert found["bank"].dtype == np.float32
    files.write_sealed(
        tmp_path / "stages" / "final.json", {"name": "final", "seconds": 1, "files": []}
    )
    with pytest.raises(files.Damaged, match=r"final.json is damaged: files is \[\]"):
        run.read_stage("final")


def test_a_failure_is_kept_until_training_goes_on(tmp_path):
    run = RunFolder(tmp_path / "sweep" / "a")
    assert run.read_failure() == ""
    run.write_failure("the disk is full.")
    assert run.read_failure() == "the disk is full."
    run.check_new()  # what failed before it began may begin again
    run.clear_parts()
    assert run.read_failure() == "" and not list(run.path.iterdir())


BEFORE = {
    "images": {"train": 4, "test": 1},
    "sha256": "a",
    "content": {
        "train": {"a": "1", "b": "2", "c": "3", "d": "4"},
        "test": {"e": "5"},
    },
}


def with_train(**digests):
    """The description where training images have other digests, or none."""
    kept = BEFORE["content"]["train"] | digests
    train = {name: digest for name, digest in kept.items() if digest}
    return BEFORE | {"content": BEFORE["content"] | {"train": train}}


@pytest.mark.parametrize(
    "now, wanted",
    [
        (BEFORE, ""),
        (with_train(b="9"), "1 image with other content (b)"),
        (with_train(a="", z="9"), "1 image missing (a); 1 image new (z)"),
        (BEFORE | {"sha256": "b"}, "names, labels or splits differ"),
    ],
)
def test_what_changed(now, wanted):
    assert changed_images(BEFORE, now) == wanted


@pytest.fixture
def own_images(tmp_path, monkeypatch):
    """A configuration that trains in seconds on files."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    root = miniatures.folder(tmp_path / "images", (12, 12))
    return of_folder(root)


def paint_anew(root):
    rng = np.random.default_rng(0)
    for path in root.rglob("*.png"):
        Image.fromarray(rng.integers(0, 256, (12, 10, 3), np.uint8)).save(path)


SAID = r"24 images with other content \(0/00.png, .*, …\)\. Restore them"


def test_other_images_stop_evaluation_and_resuming(own_images, tmp_path):
    config, run = own_images, RunFolder(tmp_path / "run")
    run.create(config.to_dict(), assembly.build(config).describe())
    run.metrics.write_text("{}")
    found = json.loads(run.dataset.read_text())
    assert {split: len(files) for split, files in found["content"].items()} == {
        "train": 16,
        "val": 4,
        "test": 4,
    }
    root = tmp_path / "images"
    kept = {path: path.read_bytes() for path in root.rglob("*.png")}
    paint_anew(root)
    with pytest.raises(ValueError, match=SAID):
        evaluation.evaluate(config, run)
    with pytest.raises(ValueError, match=SAID):
        training.train(config, run, resume=True)
    assert run.metrics.read_text() == "{}" and not run.checkpoints.exists()
    for path, data in kept.items():
        path.write_bytes(data)
    run.check_images(assembly.build(config).describe())


HOLD = """
import sys, time
from cloc_jax.runtime.run_folder import RunFolder
with RunFolder(sys.argv[1]).held("train"):
    print("held", flush=True)
    time.sleep(60)
"""


@pytest.fixture
def holder(tmp_path):
    """Another process that holds the folder."""
    process = subprocess.Popen(
        [sys.executable, "-c", HOLD, str(tmp_path)], stdout=subprocess.PIPE, text=True
    )
    assert process.stdout.readline() == "held\n"
    yield process
    process.kill()
    process.wait()


@pytest.mark.parametrize("words", ["decide --max-missed=0.1", "report"])
def test_the_second_is_told_who_holds_it(tmp_path, holder, words, capsys):
    files.write_sealed(RunFolder(tmp_path).config, {})
    assert main.main([*words.split(), f"--run={tmp_path}"]) == 2
    said = capsys.readouterr().err
    assert f"process {holder.pid} on {os.uname().nodename} (train)" in said
    assert str(tmp_path) in said and "since 20" in said
    assert (tmp_path / "lock").read_text()  # the holder's facts are still there


def test_a_killed_holder_does_not_block(tmp_path, holder):
    holder.send_signal(signal.SIGKILL)
    holder.wait()
    assert (tmp_path / "lock").exists()  # nobody could remove it
    with RunFolder(tmp_path).held("train"):
        assert str(os.getpid()) in (tmp_path / "lock").read_text()
    assert not (tmp_path / "lock").exists()


def test_a_process_may_hold_it_twice(tmp_path):
    with RunFolder(tmp_path).held("train"):
        with RunFolder(tmp_path).held("evaluate"):
            pass
        assert (tmp_path / "lock").exists()
    assert not list(tmp_path.iterdir())


def test_a_new_folder_goes_if_nothing_was_written(tmp_path):
    folder = tmp_path / "runs" / "new"
    with pytest.raises(ValueError), RunFolder(folder).held("train", is_new=True):
        raise ValueError("bad settings")
    assert not list(tmp_path.iterdir())
    with RunFolder(folder).held("train", is_new=True):
        (folder / "config.json").touch()
    assert [p.name for p in folder.iterdir()] == ["config.json"]


@pytest.mark.parametrize("number", [errno.ENOLCK, errno.EOPNOTSUPP])
def test_file_systems_without_locks_lock_nothing(tmp_path, monkeypatch, number):
    def flock(file, how):
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(fcntl, "flock", flock)
    with RunFolder(tmp_path).held("train"):
        pass
    with RunFolder(tmp_path).held("train"):  # nothing was left that would block
        pass


@pytest.fixture(scope="module")
def two_runs(tmp_path_factory):
    """Finished runs of the same settings, with a stage, a decision and a checkpoint."""
    place = tmp_path_factory.mktemp("two")
    for name in ("own", "other"):
        run = finished_run(place / name, count=60, shown=0, pictures=())
        for folder in (run.path / "stages" / "joint", run.checkpoints / "1"):
            folder.mkdir(parents=True)
            (folder / "array").write_text(name)
            files.seal_folder(folder, run.mark)
        run.write_stage("joint", {"seconds": 1.0})
        decision = decide.decide(run, DecisionFlags(max_missed=[0.05]))
        run.write(run.decision, decision.to_json())
    return place


def read_all(run):
    """What report, decide, evaluate, predict and resuming read of a run."""
    run.read_config()
    html_page.write_report(run)
    view.View(run)
    run.read_dataset()
    run.read_stage("joint")
    files.check_folder(run.checkpoints / "1", remedy="", owner=run.mark)


@pytest.mark.parametrize(
    "name, named",
    [
        ("metrics.json", "metrics.json"),
        ("predictions.csv", "predictions.csv"),
        ("history.jsonl", "history.jsonl"),
        ("decision.json", "decision.json"),
        ("dataset.json", "dataset.json"),
        ("stages", "stages/joint.json"),
        ("stages/joint", "stages/joint/checksums.json"),
        ("checkpoints/1", "checkpoints/1/checksums.json"),
        ("config.json", "metrics.json"),  # it is the odd one out that all others name
    ],
)
def test_a_file_of_another_run_is_named(two_runs, tmp_path, name, named):
    run = RunFolder(shutil.copytree(two_runs / "own", tmp_path / "run"))
    read_all(run)
    theirs, place = two_runs / "other" / name, run.path / name
    if theirs.is_dir():
        shutil.copytree(theirs, place, dirs_exist_ok=True)
    else:
        data = theirs.read_bytes()
        place.write_bytes(data.replace(b"0", b"1") if name[0] == "p" else data)
    how = "of another run|does not match its checksum"
    with pytest.raises(files.Damaged, match=f"{named} is damaged: .*({how})"):
        read_all(run)


@pytest.mark.parametrize(
    "name, change, problem",
    [
        ("metrics.json", {"final": []}, r"final is \[\], not an object"),
        ("metrics.json", {"final": {}}, "final.val is missing"),
        ("metrics.json", {"ranks": []}, "predictions.csv is damaged: it has other"),
        ("dataset.json", {"ranks": 5}, "ranks is 5, not a list"),
        ("dataset.json", {"images": {"train": "x"}}, "images.train is 'x', not int"),
        ("decision.json", {"thresholds": [1]}, r"thresholds is \[1\], not an object"),
        ("stages/joint.json", {"files": 3}, "files is 3, not an object"),
        ("history.jsonl", {"train": 1}, "row 1: train is 1, not an object"),
        ("history.jsonl", {"epoch": "x"}, "row 1: epoch is 'x', not int"),
        ("checkpoints/1/checksums.json", {"files": []}, "not an object"),
    ],
)
def test_json_of_another_shape_is_named(two_runs, tmp_path, name, change, problem):
    run = RunFolder(shutil.copytree(two_runs / "own", tmp_path / "run"))
    first, *rows = (run.path / name).read_text().splitlines()
    text = first if name == "history.jsonl" else "\n".join([first, *rows])
    value = json.loads(text) | change
    (run.path / name).write_text(json.dumps(files.sealed(value, run.mark)))
    with pytest.raises(files.Damaged, match=problem):
        read_all(run)


@pytest.mark.parametrize("name", ["history.jsonl", "decision.json", "lock"])
def test_pipes_do_not_make_it_wait(two_runs, tmp_path, name):
    run = RunFolder(shutil.copytree(two_runs / "own", tmp_path / "run"))
    (run.path / name).unlink(missing_ok=True)
    os.mkfifo(run.path / name)
    with pytest.raises(files.NotRegularError, match=f"{name}: .*a named pipe"):
        with run.held("report"):
            read_all(run)


@pytest.mark.parametrize("name", ["notes.part", "dataset.json", "failed.json"])
def test_what_looks_like_ours_is_left_alone(tmp_path, name):
    run = RunFolder(tmp_path)
    (tmp_path / name).write_text("mine")
    with pytest.raises(FileExistsError, match="already holds files"):
        run.check_new()
    for path in (tmp_path / name, tmp_path / "metrics.json.123.part"):
        path.write_text("ours or mine")
    if name == "notes.part":
        run.clear_parts()
        assert [path.name for path in tmp_path.iterdir()] == [name]
