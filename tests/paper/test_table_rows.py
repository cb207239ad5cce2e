"""The paper's tables: which runs there are, each once, and what becomes of them."""

import json

import miniatures
import numpy as np
import pytest
from launching import TINY, launched, run_code
from paper_runs import write_run

from cloc_jax.cli import tables
from cloc_jax.cli.command_line import Settings, TableFlags
from cloc_jax.data import datasets
from cloc_jax.paper import table_summaries
from cloc_jax.runtime import files, sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly


def plan(only, data=("synthetic",), methods=("cloc", "ce"), words=(), seeds=2, **given):
    asked = TableFlags(only, data, methods, **given)
    return tables.plan(Settings.read(list(words)), asked, seeds)


def settings(plans):
    return list(dict.fromkeys(one.setting for one in plans))


def test_runs_are_shared_between_tables():
    plans = plan(["comparison", "controllability", "ablations", "time"])
    others = ["cloc controlled 1", "cloc ones", "cloc shared"]
    assert settings(plans) == ["cloc", "ce", *others]
    names = [one.name for one in plans]
    assert len(names) == len(set(names)) == 10
    assert names[-1] == "synthetic,whole,cloc_shared,seed=1"
    configs = {json.dumps(one.config.to_dict(), default=str) for one in plans}
    assert len(configs) == 10
    # A table alone asks for runs of the same names, so nothing is trained again.
    assert {one.name for one in plan(["ablations"])} < set(names)


def test_each_table_trains_what_the_paper_compares():
    config = {p.setting: p.config for p in plan(["controllability", "bias"])}
    raised = config["cloc controlled 1"].method.cloc.margins
    assert raised == ("learn", 1.0, "learn", "learn")
    assert config["biased ce"].data.relabel == ("1>2:0.6", "2>1:0.3")
    assert config["biased cloc controlled 1"].method.cloc.margins[1] == 1.0
    assert not config["cloc"].data.relabel
    config = {p.setting: p.config for p in plan(["ablations"])}
    assert config["cloc ones"].method.cloc.margins == 1.0
    assert config["cloc shared"].method.cloc.margins == "shared"
    config = {p.setting: p.config for p in plan(["backbones"])}
    assert config["cloc on vgg16"].encoder.weights == "timm/vgg16.tv_in1k"
    several = plan(["controllability"], margin=(0.5, 1.5))
    assert settings(several)[1:] == ["cloc controlled 0.5", "cloc controlled 1.5"]
    assert not plan(["classes"])  # of CLAP2015 alone


def test_datasets_with_folds_use_all_of_them(tmp_path):
    roots = [f"adience={miniatures.adience(tmp_path)}"]
    given = {"root": roots, "methods": ("cloc",), "seeds": 1}
    plans = plan(["comparison"], ("adience",), **given)
    assert [one.config.data.fold for one in plans] == [0, 1, 2, 3, 4]
    one = plan(["comparison"], ("adience",), folds="2", **given)
    assert [one.name for one in one] == [plans[2].name]


def test_protocols_are_settings_that_exist():
    words = ["--config.head.projection=64"]
    frozen, partial, whole = (
        plan(["comparison"], protocol=name, words=words)[0].config
        for name in ("frozen", "partial", "whole")
    )
    assert (frozen.encoder.frozen, frozen.encoder.trainable_from) == (True, "")
    assert (partial.encoder.frozen, partial.encoder.trainable_from) == (False, "layer4")
    assert (whole.encoder.frozen, whole.encoder.trainable_from) == (False, "")
    assert [one.encoder.views for one in (frozen, partial, whole)] == [1, 4, 1]
    assert frozen.head.projection == 64  # what is given counts


def test_methods_with_views_of_their_own_are_known():
    mesh = sharding.make_mesh(1)
    for name in table_summaries.METHODS:
        config = Settings.read([]).config
        config.method.name = name
        if name == "dino":
            config.method.dino.local_size = (27, 27)
        stages = assembly.build_method(config, 5, mesh).stages
        kinds = {view.augment for stage in stages for view in stage.views}
        has_own = not kinds <= {"default", "none"}
        assert has_own == (name in table_summaries.OWN_VIEWS), name


@pytest.mark.parametrize(
    ("given", "views"),
    [
        ({}, 1),
        ({"words": ["--config.method.rnc.augment=default"]}, 4),
        ({"set": ["synthetic/rnc:method.rnc.augment=default"]}, 4),
    ],
)
def test_kept_views_are_for_methods_that_augment_as_the_dataset_does(given, views):
    methods = ("cloc", "dino", "rnc")
    partial = plan(["comparison"], methods=methods, protocol="partial", **given)
    kept = {one.setting: one.config.encoder.views for one in partial}
    assert kept == {"cloc": 4, "dino": 1, "rnc": views}
    frozen = plan(["comparison", "bias"], methods=methods, protocol="frozen", **given)
    assert settings(frozen) == ["cloc", "biased cloc", "biased cloc controlled 1"]


def test_settings_of_all_of_one_dataset_and_of_one_method():
    plans = plan(
        ["comparison", "bias"],
        words=["--config.data.size=(24, 24)", "--config.train.sampling=balanced"],
        set=["synthetic:data.num_train=48", "synthetic/ce:train.patience=3"],
    )
    for one in plans:
        assert one.config.data.size == (24, 24)
        assert one.config.train.sampling == "balanced"
        assert one.config.data.num_train == 48
        patience = 3 if one.config.method.name == "ce" else 10
        assert one.config.train.patience == patience


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"only": ["x"]}, "--only names x; give some of"),
        ({"methods": ["magic"]}, "--methods names magic; give some of"),
        ({"set": ["koa:data.num_train=48"]}, "'koa:data.num_train=48' sets"),
        ({"set": ["synthetic:train.batch=8"]}, 'no field "batch"'),
        ({"set": ["synthetic/ce:train.batch=8"]}, "train.batch cannot be set"),
        ({"root": ["moon=x"]}, "'moon:data.root=x' sets nothing"),
        ({"data": ["koa"], "root": ["koa=none"]}, "there is no such folder"),
    ],
)
def test_what_cannot_be_planned_is_refused(wrong, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        plan(**{"only": ["comparison"]} | wrong)


def test_datasets_that_are_not_here_are_named(tmp_path, capsys):
    roots = [f"idrid={miniatures.idrid(tmp_path / 'idrid')}"]
    plans = plan(["comparison"], ("idrid", "koa"), root=roots)
    assert {one.name.split(",")[0] for one in plans} == {"idrid"}
    said = capsys.readouterr().out
    assert "koa is not here: get it from" in said and "10.17632/56rmx5bjcr.1" in said
    assert "--root=koa=DIR" in said
    assert sorted(tables.DATASETS) == sorted(datasets.DATASETS)


def test_a_given_configuration_is_that_of_its_dataset(tmp_path):
    words = ["--config=configs/folder.py", "--config.train.patience=3"]
    given = Settings.read(words)
    own = tables.dataset_config(given, "folder", "partial", [])
    assert (own.data.name, own.train.patience, own.encoder.views) == ("folder", 3, 4)
    other = tables.dataset_config(given, "koa", "frozen", [])
    assert (other.data.name, other.train.patience) == ("koa", 3)
    assert other.encoder.frozen and other.train.max_epochs == 60  # koa's own variant


def test_a_dry_run_counts_what_is_finished_without_jax(tmp_path):
    true = np.arange(30) % 5
    done = tmp_path / "none" / "synthetic,whole,ce,seed=0"
    write_run(done, true, true, tuple("01234"))
    run = RunFolder(done)
    config = plan(["comparison"], seeds=1, methods=("ce",))[0].config
    files.write_sealed(run.config, config.to_dict(), run.mark)
    code = (
        "import sys\nfrom cloc_jax.cli import main\n"
        "words = ['tables', '--dry-run', '--data=synthetic', '--methods=cloc,ce']\n"
        "code = main.main([*words, '--only=comparison', '--run=none'])\n"
        "assert code == 0 and 'jax' not in sys.modules\n"
    )
    process = run_code(code, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert "synthetic,whole,cloc,seed=0: to train\n" in process.stdout
    assert "synthetic,whole,ce,seed=0: finished\n" in process.stdout
    assert "2 runs, 1 finished, in none\n" in process.stdout
    assert len(list(tmp_path.rglob("*.json"))) == 3  # it writes nothing


@pytest.mark.slow
def test_from_runs_to_the_page_and_again_from_summaries(tmp_path):
    command = ["tables", "--data=synthetic,koa", "--methods=cloc,ce"]
    command += ["--only=comparison,controllability", "--protocol=frozen", *TINY]
    command += ["--run=runs"]
    done = launched(*command, cwd=tmp_path)
    assert "koa is not here" in done.stdout
    runs = tmp_path / "runs"
    kept = json.loads((runs / "summaries" / "synthetic-frozen.json").read_text())
    first = runs / "synthetic,frozen,cloc,seed=0"
    found = json.loads((first / "metrics.json").read_text())
    ours = kept["settings"]["cloc"]["runs"][0]["scores"]
    assert ours["final"]["mae"] == found["final"]["test"]["mae"]
    assert ours["phase_one"]["mae"] == found["phase_one"]["test"]["mae"]
    assert kept["controlled"] == {"": "cloc controlled 1"}
    assert str(tmp_path) not in json.dumps(kept)  # no folder of this machine
    made = first.joinpath("history.jsonl").stat().st_mtime_ns
    again = launched(*command, cwd=tmp_path)
    assert "3 of 3 runs are finished" in again.stdout
    assert first.joinpath("history.jsonl").stat().st_mtime_ns == made
    text = (runs / "tables.md").read_text()
    assert "| CLOC, phase one |" in text
    launched("tables", "--from=runs/summaries", "--run=page", cwd=tmp_path)
    assert (tmp_path / "page" / "tables.md").read_text() == text
