"""Trackers of experiments: what is written, and what a store then has of a run."""

import errno
import os
import struct
import sys

import pytest
from launching import TINY, launched
from tensorboardX.proto import event_pb2

from cloc_jax.runtime import trackers
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import results


def about(folder, first_step):
    return trackers.About(RunFolder(folder), {"seed": 0}, first_step)


def tracked(name, folder, first_step):
    return trackers.tracked((name,), about(folder, first_step))


def events(folder):
    """The events of all files of a folder; records have a length and two checksums."""
    found = []
    for path in sorted(folder.iterdir()):
        data = path.read_bytes()
        while data:
            (length,) = struct.unpack("<Q", data[:8])
            found.append(event_pb2.Event.FromString(data[12 : 12 + length]))
            data = data[12 + length + 4 :]
    return found


def test_nothing_is_written_without_the_library(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "tensorboardX", None)  # it cannot be imported
    with tracked("tensorboard", tmp_path, 1) as (log,):
        log.write({"val/mae": 0.5}, 1)
    assert not (tmp_path / "tensorboard").exists()


def test_values_come_back_by_name_and_step(tmp_path):
    with tracked("tensorboard", tmp_path, 5) as (log,):
        log.write({"val/mae": 0.5, "margins/0|1": 2.0}, 7)
        log.write({"val/mae": 0.25}, 9)
        before_close = len(events(tmp_path / "tensorboard"))
    found = events(tmp_path / "tensorboard")
    assert len(found) == before_close == 5  # nothing waits in a queue
    assert found[0].file_version == "brain.Event:2"
    # TensorBoard hides what an earlier file has from here on.
    assert found[1].session_log.status == 1 and found[1].step == 5
    values = [(e.step, v.tag, v.simple_value) for e in found for v in e.summary.value]
    assert [(s, v) for s, _, v in values] == [(7, 0.5), (7, 2.0), (9, 0.25)]
    assert values[0][1] == "val/mae" and values[1][1].startswith("margins/0")


def test_a_full_disk_is_raised_and_names_the_folder(tmp_path, monkeypatch):
    def fsync(number):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    log = trackers.TensorBoard(about(tmp_path, 0))
    monkeypatch.setattr(os, "fsync", fsync)
    with pytest.raises(OSError) as caught:
        log.write({"a": 1.0}, 1)
    assert caught.value.filename == str(tmp_path / "tensorboard")


@pytest.mark.parametrize(
    ("names", "sentence"),
    [
        (("tensorbord",), "it may have tensorboard, mlflow, wandb"),
        (("tensorboard", "mlflow"), r"not installed: pip install 'cloc_jax\[mlflow\]'"),
    ],
)
def test_trackers_that_cannot_be_used_are_named(names, sentence, monkeypatch):
    monkeypatch.setattr(trackers.importlib.util, "find_spec", lambda name: None)
    trackers.check(("tensorboard",))  # as without it nothing is lost
    with pytest.raises(ValueError, match=sentence):
        trackers.check(names)


@pytest.mark.slow
def test_mlflow_has_the_run(tmp_path):
    mlflow = pytest.importorskip("mlflow")
    store = f"sqlite:///{tmp_path / 'mlflow.db'}"
    options = {"cwd": tmp_path, "MLFLOW_TRACKING_URI": store}
    done = launched(*TINY, "--run=run", "--config.log.to=('mlflow',)", **options)
    assert not done.stderr  # of a library that talks
    launched("evaluate", "--run=run", **options)
    client = mlflow.MlflowClient(store)
    place = client.get_experiment_by_name("cloc_jax").experiment_id
    [run] = client.search_runs([place])
    found = results.read_results(RunFolder(tmp_path / "run"))
    assert run.info.status == "FINISHED" and run.info.run_name == "run"
    assert run.data.params["train.batch_size"] == "8"
    assert run.data.metrics["final/test mae"] == found.final["test"].mae
    assert run.data.metrics["final/margin 1-2"] == found.margins["1|2"]
    curve = client.get_metric_history(run.info.run_id, "val/mae")
    rows = RunFolder(tmp_path / "run").read_history()
    assert [m.value for m in curve] == [row["val"]["mae"] for row in rows]
    assert [a.path for a in client.list_artifacts(run.info.run_id)] == ["report.html"]


@pytest.mark.slow
def test_weights_and_biases_is_offline(tmp_path):
    pytest.importorskip("wandb")
    done = launched(*TINY, "--run=run", "--config.log.to=('wandb',)", cwd=tmp_path)
    assert "report  run/report.html" in done.stdout
    kept = list((tmp_path / "run" / "wandb").glob("offline-run-*/*.wandb"))
    assert len(kept) == 2  # of training and of evaluation, synchronised as one run
    mark = RunFolder(tmp_path / "run").mark
    assert all(mark in path.name and path.stat().st_size > 1000 for path in kept)
