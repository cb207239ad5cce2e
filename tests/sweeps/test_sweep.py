"""Sweeps: every combination once, each run as if it were alone, one summary."""

import csv
import errno
import json
import os
import shutil

import numpy as np
import pytest
from damage import flip
from tiny_runs import clean, history, tiny

from cloc_jax.cli.studies import combinations
from cloc_jax.report import evaluation
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder, flatten
from cloc_jax.scoring.results import Summary
from cloc_jax.sweeps import executors, sweep
from cloc_jax.sweeps.sweep import Setting, plan_runs

DATASET = {"ranks": ["0", "1"], "images": {"train": 4}, "sha256": "a"}
MARGINS = "method.cloc.margins=0.3; ['learn', 0.5, 'learn', 'learn=0.2']"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(autouse=True)
def cache(place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))


def frozen(**changes):
    settings = {"encoder__frozen": True, "head__projection": 6, "mesh__devices": 2}
    return clean(**settings, train__max_epochs=2, **changes)


@pytest.fixture(scope="module")
def swept(place):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(place / "cache"))
        return sweep.sweep(frozen(), place / "runs", combinations([MARGINS]), seeds=2)


def finish(folder, config, **about):
    """What a finished run leaves, as far as a sweep looks at it."""
    folder.create(config.to_dict(), DATASET | about)
    folder.write(folder.metrics, {"final": {}})


@pytest.mark.slow
def test_a_run_among_others_equals_one_alone(swept, place):
    among = RunFolder(place / "runs" / "margins=0.3,seed=1")
    alone = RunFolder(place / "alone")
    config = frozen(seed=1, method__cloc__margins=0.3)
    evaluation.complete_run(config, alone, resume=False, draws=False)
    assert history(among.path) == history(alone.path)
    scores = [folder.read_metrics()["final"] for folder in (among, alone)]
    assert scores[0] == scores[1]


@pytest.mark.slow
def test_summary_is_the_mean_of_the_runs(swept, place):
    assert [cell.settings["method.cloc.margins"] for cell in swept.cells] == [
        0.3,
        ["learn", 0.5, "learn", "learn=0.2"],
    ]
    cell = swept.cells[0]
    found = []
    for seed in range(2):
        path = place / "runs" / f"margins=0.3,seed={seed}" / "metrics.json"
        metrics = json.loads(path.read_text())
        found.append(metrics["final"]["test"]["mae"])
        assert list(metrics["margins"].values()) == pytest.approx([0.3] * 4)
    assert cell.test["mae"].mean == pytest.approx(np.mean(found))
    assert cell.test["mae"].std == pytest.approx(np.std(found, ddof=1))
    assert not cell.unfinished
    runs = [p for p in (place / "runs").iterdir() if (p / "config.json").exists()]
    assert len(runs) == 4 and all(RunFolder(run).trunk().is_dir() for run in runs)
    # One copy of what the runs of a seed share: this encoder was drawn by seed.
    assert len(list((place / "runs" / "trunk").iterdir())) == 2
    written = json.loads((place / "runs" / "summary.json").read_text())
    assert files.from_plain(Summary, written) == swept
    with (place / "runs" / "summary.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 4
    maes = [float(row["mae"]) for row in rows if row["run"].startswith("margins=0.3")]
    assert maes == found and {"val accuracy", "accuracy", "error 1|2"} <= set(rows[0])


@pytest.mark.slow
def test_only_unfinished_runs_are_made_again(swept, place, tmp_path, monkeypatch):
    copy = tmp_path / "runs"
    shutil.copytree(place / "runs", copy)
    shutil.rmtree(copy / "margins=0.3,seed=0")
    (copy / "margins=0.3,seed=1" / "metrics.json").unlink()
    for _ in range(2):  # and nothing the second time
        assert sweep.sweep(frozen(), copy, combinations([MARGINS]), seeds=2) == swept
        monkeypatch.setattr(evaluation, "complete_run", None)


@pytest.mark.parametrize(
    "vary, seeds, message",
    [
        (["train.patience=;9"], 1, "--vary is 'train.patience=;9'"),
        (["method.wait=1;2"], 1, "method.wait cannot be set to 1"),
        (["seed=1;2"], 1, "give each setting once, seeds by --seeds"),
        (["method.cloc.weight=1;1"], 1, "two of the runs are the same"),
        (["encoder.views=0"], 1, "encoder.views is 0"),
        (["optimizer.name=adam;flop"], 2, "run name=flop,seed=0: optimizer.name is"),
        (["train.batch_size=8;64"], 1, "run batch_size=64,seed=0: train.batch_size is"),
    ],
)
def test_all_runs_are_checked_before_the_first(
    vary, seeds, message, tmp_path, monkeypatch
):
    monkeypatch.setattr(evaluation, "complete_run", None)
    with pytest.raises(ValueError, match=message):
        sweep.sweep(clean(), tmp_path / "runs", combinations(vary), seeds=seeds)
    assert not list(tmp_path.iterdir())


def test_values_are_of_their_field_s_type():
    config = tiny()
    for name, value, wanted in (
        ("encoder.weights", 5, "5"),
        ("encoder.frozen", "true", True),
        ("method.cloc.weight", 2, 2.0),
        ("data.size", [8, 8], (8, 8)),
    ):
        sweep.set_value(config, name, value)
        found = flatten(config.to_dict())[name]
        assert found == wanted and type(found) is type(wanted)


def plans_of(*names):
    return plan_runs(clean(), [Setting(name, {}) for name in names], seeds=1)


def test_a_damaged_list_of_runs_is_named(tmp_path):
    sweep.list_runs(tmp_path, plans_of("a"))
    path = tmp_path / "sweep.json"
    path.write_text(path.read_text().replace("seed=0", "seed=1"))
    with pytest.raises(ValueError, match="sweep.json is damaged.*move it away"):
        sweep.list_runs(tmp_path, plans_of("a"))
    path.unlink()
    (tmp_path / "notes.txt").write_text("of somebody")
    with pytest.raises(FileExistsError, match="are not a sweep"):
        sweep.list_runs(tmp_path, plans_of("a"))
    (tmp_path / "a,seed=0").mkdir()  # the folder has a run of these
    sweep.list_runs(tmp_path, plans_of("a"))


def test_tables_add_runs_to_a_folder_and_sweeps_do_not(tmp_path):
    (tmp_path / "summaries").mkdir()
    (tmp_path / "tables.md").write_text("none yet")
    for name in ("a", "b"):
        sweep.list_runs(tmp_path, plans_of(name), is_open=True)
    sweep.list_runs(tmp_path, plans_of("a", "b"))
    sweep.list_runs(tmp_path, plans_of("a", "b", "c"))
    with pytest.raises(FileExistsError, match="another sweep, with runs such as b,s"):
        sweep.list_runs(tmp_path, plans_of("a", "c"))


def test_folds_are_repeats_like_seeds():
    config = frozen()
    config.data.name = "hid"
    folds = sweep.folds_of("hid", "all")
    settings = combinations(["method.cloc.weight=1;2"])
    plans = plan_runs(config, settings, seeds=2, folds=folds)
    assert len(plans) == 2 * 5 * 2
    assert {p.config.data.fold for p in plans} == set(range(5))
    assert plans[0].name == "weight=1,fold=0,seed=0"
    assert plans[0].overrides == {"method.cloc.weight": 1, "data.fold": 0, "seed": 0}
    assert sweep.folds_of("hid", "0,3") == [0, 3] and sweep.folds_of("koa", "") == []
    for dataset, text in (("koa", "all"), ("hid", "5"), ("hid", "some")):
        with pytest.raises(ValueError, match=f"--folds is {text}, but"):
            sweep.folds_of(dataset, text)


def test_settings_of_other_methods_do_not_make_another_run(tmp_path):
    config = frozen(method__name="ce")
    (one,) = plan_runs(config, [Setting("a", {})], seeds=1)
    RunFolder(tmp_path / one.name).create(one.config.to_dict(), DATASET)
    one.config.method.dino.output = 77  # of a sweep that has dino too
    sweep.check_same(tmp_path, one)
    one.config.method.name = "sord"
    with pytest.raises(ValueError, match="method.name was 'ce', is now 'sord'"):
        sweep.check_same(tmp_path, one)


def test_finished_runs_keep_no_checkpoints_and_results_can_be_made_again(
    tmp_path, capsys
):
    config = tiny(method__name="ce")
    first = sweep.sweep(config, tmp_path, [Setting("", {})], seeds=1)
    run = RunFolder(tmp_path / "seed=0")
    assert not any(run.checkpoints.iterdir())
    flip(run.metrics, 40)
    capsys.readouterr()
    assert sweep.sweep(config, tmp_path, [Setting("", {})], seeds=1) == first
    shown = capsys.readouterr().out
    assert "is damaged" in shown and "epoch" not in shown  # nothing is trained again


def test_a_full_disk_ends_the_sweep(tmp_path, monkeypatch):
    tried = []

    def complete_run(config, folder, **_):
        tried.append(folder.path.name)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoints/1")

    monkeypatch.setattr(evaluation, "complete_run", complete_run)
    with pytest.raises(OSError, match=r"No space left.*checkpoints/1"):
        sweep.sweep(tiny(method__name="ce"), tmp_path, [Setting("", {})], seeds=3)
    assert tried == ["seed=0"]


def test_a_run_that_fails_is_listed_and_the_others_go_on(tmp_path, monkeypatch):
    tried, monkeypatched = [], {"a,seed=0": "no images"}

    def complete_run(config, folder, **_):
        tried.append(folder.path.name)
        if folder.path.name in monkeypatched:
            folder.write_failure("no images")
            raise ValueError("no images")
        finish(folder, config)

    monkeypatch.setattr(evaluation, "complete_run", complete_run)
    plans = plans_of("a", "b")
    failed = sweep.train_runs(plans, tmp_path / "tables", is_open=True)
    assert failed == {"a,seed=0": "no images"} and tried == ["a,seed=0", "b,seed=0"]
    with pytest.raises(ValueError, match="none of the 1 runs finished.*: no images"):
        sweep.train_runs(plans[:1], tmp_path / "sweep")
    shutil.rmtree(tmp_path / "sweep" / "a,seed=0")
    monkeypatched.clear()
    assert not sweep.train_runs(plans[:1], tmp_path / "sweep")


def test_a_run_that_another_process_holds_comes_last(tmp_path, monkeypatch):
    monkeypatch.setattr(executors, "HELD_SECONDS", 0.01)
    tried = []

    def complete_run(config, folder, **_):
        tried.append(folder.path.name)
        if len(tried) == 1:
            raise executors.InUse("it is in use by process 1")
        finish(folder, config)

    monkeypatch.setattr(evaluation, "complete_run", complete_run)
    assert not sweep.train_runs(plans_of("a", "b"), tmp_path)
    assert tried == ["a,seed=0", "b,seed=0", "a,seed=0"]


def test_what_is_no_run_is_left_alone(tmp_path):
    (tmp_path / "a,seed=0").mkdir()
    (tmp_path / "a,seed=0" / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="seed=0 already holds files"):
        sweep.train_runs(plans_of("b", "a"), tmp_path)
    assert [path.name for path in tmp_path.rglob("*.*")] == ["notes.txt"]


def test_of_two_sweeps_that_begin_at_once_one_is_told(tmp_path, monkeypatch):
    claim = files.claimed

    def claim_late(path):
        monkeypatch.undo()
        sweep.list_runs(tmp_path, plans_of("b"))
        return claim(path)

    monkeypatch.setattr(files, "claimed", claim_late)
    with pytest.raises(FileExistsError, match="another command .* same moment"):
        sweep.list_runs(tmp_path, plans_of("a"))
    assert [
        run["name"] for run in json.loads((tmp_path / "sweep.json").read_text())["runs"]
    ] == ["b,seed=0"]
    sweep.list_runs(tmp_path, plans_of("b"))


CONTENT = {"train": {"a.png": "1", "b.png": "2"}}


@pytest.mark.parametrize(
    "about, change, message",
    [
        ({"content": CONTENT}, {}, ""),
        ({"content": {"train": {"a.png": "1"}}}, {}, "1 image missing .b.png"),
        ({"content": CONTENT, "sha256": "b"}, {}, "names, labels or splits"),
        # Another part of the same files, and of others.
        ({"content": {"test": {"b.png": "2", "c": "3"}}}, {"data.fold": 1}, ""),
        ({"content": {"test": {"b.png": "9"}}}, {"data.fold": 1}, "1 image with other"),
    ],
)
def test_runs_of_other_images_are_named(about, change, message, tmp_path):
    settings = [Setting("a", {}), Setting("b", change)]
    plans = plan_runs(clean(), settings, seeds=1)
    finish(RunFolder(tmp_path / plans[0].name), plans[0].config, content=CONTENT)
    finish(RunFolder(tmp_path / plans[1].name), plans[1].config, **about)
    if not message:
        sweep.train_runs(plans, tmp_path)
        return
    with pytest.raises(
        ValueError, match=f"b,seed=0 was trained on other .*a,seed=0.*{message}"
    ):
        sweep.train_runs(plans, tmp_path)


def test_images_that_changed_are_said_before_the_next_run(tmp_path, monkeypatch):
    monkeypatch.setattr(evaluation, "complete_run", None)
    plans = plan_runs(clean(method__name="ce"), [Setting("", {})], seeds=2)
    finish(RunFolder(tmp_path / plans[0].name), plans[0].config)
    with pytest.raises(ValueError, match="run seed=1: the images have changed since"):
        sweep.train_runs(plans, tmp_path)
