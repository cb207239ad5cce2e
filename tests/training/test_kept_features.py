"""Frozen parts of an encoder: kept outputs stand for the images, to the last digit."""

import csv
import os

import miniatures
import numpy as np
import pytest
from exported_runs import untrained_run
from tiny_runs import by_name, clean, final_state, of_folder, tiny

from cloc_jax.cli import predict
from cloc_jax.report import evaluation
from cloc_jax.runtime import checkpoint
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import (
    assembly,
    kept_features,
)
from cloc_jax.training import run as training
from cloc_jax.training.trained_run import TrainedRun

FROZEN = {"encoder__frozen": True, "head__projection": 6}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    """A store of its own for every test."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "cloc_jax" / "features"


def test_predict_on_images_equals_the_kept_features(tmp_path):
    config = clean(**FROZEN, method__name="ce")
    folder = RunFolder(tmp_path / "run")
    training.train(config, folder, resume=False)
    evaluation.evaluate(config, folder)
    images = sorted((folder.path / "examples").glob("*.png"))
    assert images
    table = tmp_path / "table.csv"
    # Without the store, as on another machine.
    assert predict.predict(config, folder, [str(p) for p in images], str(table)) == 0
    with table.open() as file:
        found = {row["file"]: row for row in csv.DictReader(file)}
    with (folder.path / "predictions.csv").open() as file:
        expected = {r["item"]: r for r in csv.DictReader(file) if r["split"] == "test"}
    test = assembly.load(config).splits["test"]
    for image in images:
        rank = image.stem.removeprefix("grade-")
        item = test.ids[int(np.flatnonzero(test.labels == int(rank))[0])]
        for name in "01234":
            got = float(found[str(image)][f"p_{name}"])
            assert got == pytest.approx(float(expected[item][f"p_{name}"]), abs=1e-4)


@pytest.mark.slow
def test_kept_activations_train_as_the_whole_network_does(tmp_path):
    settings = {
        "encoder__trainable_from": "layer4",
        "encoder__kept_dtype": "float32",
        "train__max_epochs": 2,
    }
    kept = clean(**settings)
    # A strength too small to change a pixel: the same images, but nothing is kept.
    whole = clean(**settings, augment__brightness=0.0)
    whole.augment.brightness = 1e-9
    states = {}
    for name, config in (("kept", kept), ("whole", whole)):
        folder = RunFolder(tmp_path / name)
        training.train(config, folder, resume=False)
        states[name], _ = final_state(config, folder, "refine")
    for group in ("layer4", "head", "margins"):
        ours, theirs = (by_name(states[name], group) for name in ("kept", "whole"))
        assert ours.keys() == theirs.keys() and ours
        for name in ours:
            np.testing.assert_allclose(
                ours[name], theirs[name], rtol=1e-4, atol=1e-5, err_msg=name
            )
    # What is frozen keeps its bits, batch statistics included.
    start = checkpoint.split_model(assembly.build(whole).create())[1]
    for group in ("stem", "layer1", "layer2", "layer3"):
        before, after = by_name(start, group), by_name(states["whole"], group)
        assert before.keys() == after.keys() and any("mean" in name for name in before)
        for name in before:
            assert before[name].tobytes() == after[name].tobytes(), name
    trained = by_name(states["whole"], "layer4")
    moved = [n for n, a in by_name(start, "layer4").items() if (a != trained[n]).any()]
    assert any("mean" in name for name in moved)


def test_kept_activations_take_half_the_room_and_predict_the_same(tmp_path):
    found = {}
    for dtype in ("float16", "float32"):
        config = clean(
            encoder__trainable_from="layer4",
            encoder__kept_dtype=dtype,
            method__name="ce",
        )
        folder = untrained_run(config, tmp_path / dtype)
        parts = assembly.build(config, folder)
        test = parts.dataset.splits["test"]
        assert test[0].dtype == dtype
        run = TrainedRun(config, folder, parts)
        # Images that come to `predict` go the same way, and are rounded as well.
        images = assembly.build_dataset(config).splits["test"]
        again = run.prepared(images, batch_size=4)
        np.testing.assert_array_equal(again[3], test[3])
        found[dtype] = np.asarray(run.predict(test).probabilities)
    np.testing.assert_allclose(found["float16"], found["float32"], atol=0.01)
    assert (found["float16"] != found["float32"]).any()


def test_the_encoder_has_its_own_learning_rate():
    config = clean(optimizer__encoder_learning_rate=1e-5)
    trains = assembly.build(config).method.stages[0].trains
    assert trains["layer2"] == {"learning_rate": 1e-5}
    assert "learning_rate" not in trains["head"] | trains["margins"]


def count_extractions(monkeypatch):
    counted = []
    over = kept_features.Trunk.over

    def counting(self, source, **options):
        counted.append(len(source))
        return over(self, source, **options)

    monkeypatch.setattr(kept_features.Trunk, "over", counting)
    return counted


def test_features_are_computed_once_for_all_splits_and_labels(monkeypatch):
    counted = count_extractions(monkeypatch)
    config = clean(**FROZEN)
    first = assembly.build(config).dataset.splits["train"]
    assert sum(counted) == 48 + 20 + 14
    counted.clear()
    moved = clean(
        **FROZEN,
        data__num_train=40,
        data__num_val=28,
    )
    again = assembly.build(moved).dataset.splits["train"]
    assert not counted  # the same items in other splits
    np.testing.assert_array_equal(first[3], again[3])
    for change in ({"seed": 1}, {"data__equalize": True}):
        other = clean(**FROZEN, **change)
        assembly.build(other)
        assert sum(counted) == 48 + 20 + 14, change  # other weights, other images
        counted.clear()


def own_images(root):
    return of_folder(root, encoder__frozen=True, head__projection=6)


@pytest.mark.slow
def test_features_of_files_are_known_by_content(monkeypatch, tmp_path, cache):
    counted = count_extractions(monkeypatch)
    root = miniatures.folder(tmp_path / "images", (12, 12))
    assembly.build(own_images(root))
    assert sum(counted) == 24
    counted.clear()
    copy = tmp_path / "copy"
    for path in root.rglob("*.png"):
        target = copy / path.relative_to(root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(path.read_bytes())  # with another time of change
    assembly.build(own_images(copy))
    assert not counted
    status = (copy / "0" / "00.png").stat()
    data = (copy / "0" / "01.png").read_bytes()
    (copy / "0" / "00.png").write_bytes(data)
    os.utime(copy / "0" / "00.png", ns=(status.st_atime_ns, status.st_mtime_ns))
    assembly.build(own_images(copy))
    assert counted == [1]


def test_an_interrupted_extraction_goes_on(monkeypatch):
    config = clean(**FROZEN, data__num_train=300)
    add, calls = kept_features.FeatureStore.add, []

    def failing(self, names, rows):
        if calls:
            raise KeyboardInterrupt
        calls.append(len(names))
        add(self, names, rows)

    with monkeypatch.context() as patched, pytest.raises(KeyboardInterrupt):
        patched.setattr(kept_features.FeatureStore, "add", failing)
        assembly.build(config)
    counted = count_extractions(monkeypatch)
    assembly.build(config)
    assert sum(counted) == 300 + 20 + 14 - calls[0]


def test_views_are_drawn_from_the_kept_ones():
    config = tiny(**FROZEN, encoder__views=3, augment__rotate_degrees=20.0)
    parts = assembly.build(config)
    (draw,) = assembly.draws(config, parts.dataset, parts.method.stages[0])
    drawn = {draw(5, np.random.default_rng(seed)).tobytes() for seed in range(40)}
    assert len(drawn) == 3
    assert parts.dataset.splits["train"][5].tobytes() in drawn
    assert len(parts.dataset.splits["val"].views) == 1
