"""Sweeps: every combination once, runs side by side as if alone, one summary."""

import errno
import json
import os

import numpy as np
import pytest
from damage import flip
from tiny_runs import by_name, clean, final_state, tiny

from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.sweeps import engines, run_plan, sweep
from cloc_jax.sweeps.engines import driver, training_tasks

MARGINS = "method.cloc.margins=learn; 0.3; ['learn', 0.5, 'learn', 'learn>=0.2']"


@pytest.fixture(scope="module")
def place(tmp_path_factory):
    return tmp_path_factory.mktemp("sweep")


@pytest.fixture(autouse=True)
def cache(place, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(place / "cache"))


def frozen(**changes):
    settings = {"encoder__frozen": True, "head__projection": 6}
    settings |= {"mesh__devices": 2}  # three runs per seed: one place is left over
    return clean(**settings, train__max_epochs=3, **changes)


@pytest.fixture(scope="module")
def swept(place):
    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("XDG_CACHE_HOME", str(place / "cache"))
        return sweep.sweep(frozen(), place / "runs", vary=[MARGINS], seeds=2)


def history(folder):
    rows = folder.read_history()
    return [{k: v for k, v in row.items() if k != "seconds"} for row in rows]


@pytest.mark.slow
@pytest.mark.parametrize("name", ["learn,seed=1", "0.3,seed=0"])
def test_side_by_side_equals_alone(swept, place, name):
    together = RunFolder(place / "runs" / f"margins={name}")
    margins = 0.3 if name.startswith("0.3") else "learn"
    config = frozen(seed=int(name[-1]), method__cloc__margins=margins)
    alone = RunFolder(place / f"alone-{margins}")
    run.train(config, alone, resume=False)
    for ours, theirs in zip(history(together), history(alone), strict=True):
        assert (ours["stage"], ours["epoch"]) == (theirs["stage"], theirs["epoch"])
        margins = [row["readouts"]["margins"] for row in (ours, theirs)]
        assert margins[0] == pytest.approx(margins[1], rel=1e-4, abs=1e-5)
        for group in ("train", "val"):
            assert ours[group] == pytest.approx(theirs[group], rel=1e-4, abs=1e-5)
    for stage in ("joint", "refine"):
        states = [final_state(config, f, stage)[0] for f in (together, alone)]
        for group in ("head", "margins"):
            ours, theirs = (by_name(state, group) for state in states)
            for key in theirs:
                np.testing.assert_allclose(
                    ours[key], theirs[key], rtol=1e-4, atol=1e-5, err_msg=key
                )


@pytest.mark.slow
def test_every_run_can_be_used_alone(swept, place):
    runs = [p for p in (place / "runs").iterdir() if (p / "config.json").exists()]
    assert len(runs) == 6
    for run in runs:
        assert (run / "metrics.json").exists() and (run / "predictions.csv").exists()
        assert RunFolder(run).trunk().is_dir()
    # One copy of what the runs of a seed share: this encoder was drawn by seed.
    assert len(list((place / "runs" / "trunk").iterdir())) == 2


@pytest.mark.slow
def test_summary_is_the_mean_of_the_runs(swept, place):
    assert [c["settings"]["method.cloc.margins"] for c in swept["cells"]] == [
        "learn",
        0.3,
        ["learn", 0.5, "learn", "learn>=0.2"],
    ]
    cell = swept["cells"][1]
    found = []
    for seed in range(2):
        path = place / "runs" / f"margins=0.3,seed={seed}" / "metrics.json"
        metrics = json.loads(path.read_text())
        found.append(metrics["final"]["test"]["mae"])
        assert list(metrics["margins"].values()) == pytest.approx([0.3] * 4)
    assert cell["test"]["mae"]["mean"] == pytest.approx(np.mean(found))
    assert cell["test"]["mae"]["std"] == pytest.approx(np.std(found, ddof=1))
    assert not cell["unfinished"]


@pytest.mark.slow
def test_finished_runs_are_not_repeated(swept, place, monkeypatch):
    monkeypatch.setattr(training_tasks, "train", None)
    again = sweep.sweep(frozen(), place / "runs", vary=[MARGINS], seeds=2)
    assert again == swept


@pytest.mark.slow
def test_unfinished_runs_are_made_again(swept, place, tmp_path):
    import shutil

    copy = tmp_path / "runs"
    shutil.copytree(place / "runs", copy)
    for seed in range(2):
        (copy / f"margins=0.3,seed={seed}" / "metrics.json").unlink()
    again = sweep.sweep(frozen(), copy, vary=[MARGINS], seeds=2)
    assert again["cells"][0] == swept["cells"][0]
    for name, ours in swept["cells"][1]["test"].items():
        assert again["cells"][1]["test"][name] == pytest.approx(ours, abs=1e-6)


@pytest.mark.parametrize(
    "vary, seeds, message",
    [
        (["method.cloc.margins"], 1, "--vary is 'method.cloc.margins'"),
        (["method.cloc.weight="], 1, "--vary is 'method.cloc.weight='"),
        (["method.wait=1;2"], 1, "method.wait cannot be set to 1"),
        (["train.batch_size=many"], 1, "train.batch_size cannot be set to 'many'"),
        (["seed=1;2"], 1, "give each setting once, seeds by --seeds"),
        (["method.cloc.weight=1;1"], 1, "two of the runs are the same"),
        (["encoder.views=0"], 1, "encoder.views is 0"),
        ([], 0, "--seeds is 0"),
    ],
)
def test_refused(vary, seeds, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        sweep.sweep(frozen(), tmp_path / "runs", vary=vary, seeds=seeds)
    assert not (tmp_path / "runs").exists()


@pytest.mark.parametrize(
    "vary, message",
    [
        ("optimizer.name=adam;flop", "run name=flop,seed=0: optimizer.name is 'flop'"),
        ("train.batch_size=8;64", "run batch_size=64,seed=0: train.batch_size is 64"),
        ("head.classifier=layers;tree", "head.classifier is 'tree'"),
    ],
)
def test_all_runs_are_checked_before_the_first(vary, message, tmp_path, monkeypatch):
    monkeypatch.setattr(loop, "train", lambda *_, **__: pytest.fail("it was trained"))
    with pytest.raises(ValueError, match=message):
        sweep.sweep(clean(), tmp_path / "runs", vary=[vary], seeds=2)
    assert not list(tmp_path.iterdir())


def test_one_writer_and_a_damaged_list_of_runs(tmp_path):
    plans = run_plan.plan_runs(clean(), [run_plan.Setting("a", {})], seeds=1)

    def begin():
        driver.begin(tmp_path, driver.list_runs(tmp_path, plans, is_open=False))

    begin()
    path = tmp_path / "sweep.json"
    path.write_text(path.read_text().replace("seed=0", "seed=1"))
    with pytest.raises(ValueError, match="sweep.json is damaged.*move it away"):
        begin()
    path.unlink()
    begin()
    assert json.loads(path.read_text())["runs"][0]["name"] == plans[0].name


def open_plans(*names):
    """Runs of `tables`, and what its list says of them."""
    settings = [run_plan.Setting(name, {}) for name in names]
    plans = run_plan.plan_runs(clean(), settings, seeds=1)
    return plans, {p.name: {"dataset": "koa", "protocol": "whole"} for p in plans}


def test_two_drivers_that_start_together_both_note_their_runs(tmp_path):
    drivers = []
    for name in ("a", "b"):
        plans, entries = open_plans(name)
        drivers.append(driver.list_runs(tmp_path, plans, is_open=True, entries=entries))
    for listed in drivers:
        driver.begin(tmp_path, listed, is_open=True)
    names = [run["name"] for run in driver.read_listed(tmp_path / driver.LISTED)]
    assert names == ["a,seed=0", "b,seed=0"]
    assert not any((tmp_path / "claims").iterdir())


def test_a_folder_of_tables_without_runs_takes_runs_later(tmp_path):
    (tmp_path / "summaries").mkdir()
    (tmp_path / "tables.md").write_text("none yet")
    plans, entries = open_plans("a")
    assert driver.list_runs(tmp_path, plans, is_open=True, entries=entries)
    (tmp_path / "notes.txt").write_text("of somebody")
    with pytest.raises(FileExistsError, match="are not a sweep"):
        driver.list_runs(tmp_path, plans, is_open=True, entries=entries)
    # A list that was damaged and moved away: the folder has a run of these.
    (tmp_path / plans[0].name).mkdir()
    assert driver.list_runs(tmp_path, plans, is_open=True, entries=entries)


def test_tables_do_not_go_into_the_folder_of_a_sweep(tmp_path):
    plans, entries = open_plans("a")
    driver.begin(tmp_path, driver.list_runs(tmp_path, plans, is_open=False))
    with pytest.raises(FileExistsError, match="holds a sweep, with runs such as a,se"):
        driver.list_runs(tmp_path, plans, is_open=True, entries=entries)


def test_folds_are_repeats_like_seeds():
    config = frozen()
    config.data.name = "hid"
    folds = sweep.folds_of("hid", "all")
    settings = sweep.combinations(["method.cloc.weight=1;2"])
    plans = run_plan.plan_runs(config, settings, seeds=2, folds=folds)
    assert len(plans) == 2 * 5 * 2
    assert {p.config.data.fold for p in plans} == set(range(5))
    assert plans[0].name == "weight=1,fold=0,seed=0"
    assert plans[0].overrides == {"method.cloc.weight": 1, "data.fold": 0, "seed": 0}
    by_setting = run_plan.by_setting(plans)
    assert list(by_setting) == ["weight=1", "weight=2"]
    assert all(len(runs) == 10 for runs in by_setting.values())
    assert sweep.folds_of("hid", "0,3") == [0, 3] and sweep.folds_of("koa", "") == []
    for dataset, text in (("koa", "all"), ("hid", "5"), ("hid", "some")):
        with pytest.raises(ValueError, match=f"--folds is {text}"):
            sweep.folds_of(dataset, text)


def test_settings_of_other_methods_do_not_make_another_run(tmp_path):
    config = frozen(method__name="ce")
    (plan,) = run_plan.plan_runs(config, [run_plan.Setting("a", {})], seeds=1)
    (tmp_path / plan.name).mkdir()
    files.write_sealed(tmp_path / plan.name / "config.json", plan.config.to_dict())
    plan.config.method.dino.output = 77  # of a sweep that has dino too
    driver.check_same(tmp_path, plan)
    plan.config.method.name = "sord"
    with pytest.raises(ValueError, match="method.name was 'ce', is now 'sord'"):
        driver.check_same(tmp_path, plan)


@pytest.mark.slow
def test_another_sweep_keeps_its_folder(swept, place, tmp_path):
    with pytest.raises(FileExistsError, match="holds another sweep"):
        sweep.sweep(frozen(), place / "runs", vary=["method.cloc.weight=1;2"], seeds=1)
    with pytest.raises(ValueError, match=r"head\.hidden was \d+, is now 9"):
        changed = frozen(head__hidden=9)
        sweep.sweep(changed, place / "runs", vary=[MARGINS], seeds=2)
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(FileExistsError, match="not a sweep"):
        sweep.sweep(frozen(), tmp_path, vary=[], seeds=1)


def test_finished_runs_keep_no_checkpoints_and_results_can_be_made_again(
    tmp_path, monkeypatch
):
    config = tiny(method__name="ce")
    first = sweep.sweep(config, tmp_path, vary=[], seeds=1)
    run = RunFolder(tmp_path / "seed=0")
    assert not any(run.checkpoints.iterdir())
    flip(run.metrics, 40)
    monkeypatch.setattr(loop, "StageRun", None)  # nothing is trained again
    assert sweep.sweep(config, tmp_path, vary=[], seeds=1) == first


def test_a_full_disk_ends_the_sweep(tmp_path, monkeypatch):
    tried = []

    def train(plans, folder):
        tried.append(plans[0].name)
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "checkpoints/1")

    monkeypatch.setattr(training_tasks, "train", train)
    with pytest.raises(OSError, match=r"No space left.*checkpoints/1"):
        sweep.sweep(tiny(method__name="ce"), tmp_path, vary=[], seeds=3)
    assert tried == ["seed=0"]


def test_a_run_that_cannot_be_trained_is_an_error_or_listed(tmp_path):
    settings = sweep.combinations(["encoder.name=small;unheard_of"])
    plans = run_plan.plan_runs(frozen(), settings, seeds=1, is_resolved=False)[1:]
    with pytest.raises(ValueError, match="encoder.name is 'unheard_of'"):
        engines.carry_out(plans, tmp_path / "sweep")  # before anything is trained
    failed = engines.carry_out(plans, tmp_path / "tables", is_open=True)
    assert list(failed) == ["name=unheard_of,seed=0"]
    assert "encoder.name is 'unheard_of'" in failed[plans[0].name]
    kept = json.loads((tmp_path / "tables" / "failed.json").read_text())
    assert failed.items() <= kept.items()
