"""Changed images: said with numbers and names, and nothing of a run is touched."""

import json
import os

import miniatures
import numpy as np
import pytest
from PIL import Image
from tiny_runs import of_folder

from cloc_jax.cli import predict, show
from cloc_jax.report import evaluation
from cloc_jax.runtime.run_folder import RunFolder, changed_images
from cloc_jax.training import assembly
from cloc_jax.training import run as training

BEFORE = {
    "images": {"train": 4, "test": 1},
    "sha256": "a",
    "content": {
        "train": {"a": "1", "b": "2", "c": "3", "d": "4"},
        "test": {"e": "5"},
    },
}


def changed(**splits):
    content = {s: BEFORE["content"][s] | splits.get(s, {}) for s in BEFORE["content"]}
    content = {
        s: {name: one for name, one in files.items() if one}
        for s, files in content.items()
    }
    counts = {split: len(files) for split, files in content.items()}
    names = [sorted(files) for files in content.values()]
    mark = "a" if names == [list("abcd"), ["e"]] else "b"
    return {"images": counts, "sha256": mark, "content": content}


@pytest.mark.parametrize(
    "now, wanted",
    [
        (changed(), ""),
        (changed(train={"b": "9"}), "1 image with other content (b)"),
        (
            changed(train=dict.fromkeys("abcd", "9")),
            "4 images with other content (a, b, c, …)",
        ),
        (
            changed(train={"a": "", "z": "9"}),
            "1 image missing (a); 1 image new (z)",
        ),
        (
            changed(train={"d": ""}, test={"d": "4"}),
            "1 image in another split (d); it had {'train': 4, 'test': 1}, now there "
            "are {'train': 3, 'test': 2}",
        ),
        (BEFORE | {"sha256": "b"}, "names or labels differ"),
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


def paint_grey(root):
    for path in root.rglob("*.png"):
        Image.fromarray(np.full((12, 10, 3), 128, np.uint8)).save(path)


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
    paint_grey(root)
    with pytest.raises(ValueError, match=SAID):
        evaluation.evaluate(config, run)
    with pytest.raises(ValueError, match=SAID):
        training.train(config, run, resume=True)
    assert run.metrics.read_text() == "{}" and not run.checkpoints.exists()
    for path, data in kept.items():
        path.write_bytes(data)
    run.check_images(assembly.build(config).describe())


@pytest.mark.slow
def test_metrics_of_other_images_replace_nothing(own_images, tmp_path):
    config, run = own_images, RunFolder(tmp_path / "run")
    training.train(config, run, resume=False)
    evaluation.evaluate(config, run)
    before = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    paint_grey(tmp_path / "images")
    with pytest.raises(ValueError, match=SAID):
        evaluation.evaluate(config, run)
    after = {p: p.read_bytes() for p in run.path.rglob("*") if p.is_file()}
    assert after == before and run.metrics in before


@pytest.mark.slow
def test_names_that_are_not_utf8_are_carried_through(own_images, tmp_path):
    config, run = own_images, RunFolder(tmp_path / "run")
    root = os.fsencode(tmp_path / "images")
    for rank in (b"0", b"1"):
        for name in os.listdir(root + b"/" + rank):
            place = root + b"/" + rank + b"/"
            os.rename(place + name, place + b"caf\xe9\x1b" + name)
    training.train(config, run, resume=False)
    evaluation.evaluate(config, run)
    written = (run.path / "predictions.csv").read_bytes()
    assert b"caf\xe9\x1b" in written and (run.path / "report.html").is_file()
    evaluation.evaluate(config, run)
    folders = [os.fsdecode(root + b"/0")]
    assert predict.predict(config, run, folders, str(tmp_path / "out.csv")) == 0
    assert (tmp_path / "out.csv").read_bytes().count(b"caf\xe9\x1b") == 12
    show.show(config, tmp_path / "shown")
