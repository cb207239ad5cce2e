"""The paper's tables: which runs there are, each once, and what becomes of them."""

import importlib
import json

import miniatures
import numpy as np
import pytest
from launching import TINY, launch, launched, run_code
from paper_runs import write_run

from cloc_jax.cli import tables
from cloc_jax.data import datasets
from cloc_jax.paper import table_plans, table_summaries
from cloc_jax.paper.table_plans import Request
from cloc_jax.runtime import files, sharding
from cloc_jax.training import assembly


def load(dataset, protocol):
    name = {"synthetic": "quickstart"}.get(dataset, dataset)
    return importlib.import_module(f"configs.{name}").get_config()


def plan(only, data=("synthetic",), methods=("cloc", "ce"), **options):
    options = {"seeds": 2, "protocol": "whole"} | options
    request = Request(list(only), list(data), list(methods), **options)
    return table_plans.plan(request, load)


def settings(planned):
    return list(dict.fromkeys(p.setting for p in planned.plans))


def test_runs_are_shared_between_tables():
    planned = plan(["comparison", "controllability", "ablations", "time"])
    others = ["ce", "cloc controlled 1", "cloc ones", "cloc shared"]
    assert settings(planned) == ["cloc", *others]
    names = [p.name for p in planned.plans]
    assert len(names) == len(set(names)) == 10
    configs = {json.dumps(p.config.to_dict(), default=str) for p in planned.plans}
    assert len(configs) == 10
    # A table alone asks for runs of the same names, so nothing is trained again.
    alone = plan(["ablations"])
    assert {p.name for p in alone.plans} < set(names)


def test_each_table_trains_what_the_paper_compares():
    config = {p.setting: p.config for p in plan(["controllability", "bias"]).plans}
    raised = config["cloc controlled 1"].method.cloc.margins
    assert raised == ("learn", 1.0, "learn", "learn")
    assert config["biased ce"].data.relabel == ("1>2:0.6", "2>1:0.3")
    assert config["biased cloc controlled 1"].method.cloc.margins[1] == 1.0
    assert not config["cloc"].data.relabel
    config = {p.setting: p.config for p in plan(["ablations"]).plans}
    assert config["cloc ones"].method.cloc.margins == 1.0
    assert config["cloc shared"].method.cloc.margins == "shared"
    config = {p.setting: p.config for p in plan(["backbones"]).plans}
    assert config["cloc on vgg16"].encoder.weights == "timm/vgg16.tv_in1k"
    several = plan(["controllability"], margins=(0.5, 1.5))
    assert settings(several)[1:] == ["cloc controlled 0.5", "cloc controlled 1.5"]
    assert not plan(["classes"]).plans  # five ranks are not many


def test_many_classes(tmp_path):
    root = str(miniatures.clap2015(tmp_path))
    planned = plan(
        ["comparison", "classes"],
        ("clap2015",),
        methods=("cloc", "poe", "ce"),
        roots={"clap2015": root},
        seeds=1,
    )
    bins = {p.setting: p.config.data.bin for p in planned.plans}
    others = {f"cloc bin {n}": n for n in (1, 2, 4, 5)}
    assert bins == {"cloc": 3, "poe": 3, "ce": 3} | others


def test_datasets_with_folds_use_all_of_them(tmp_path):
    root = str(miniatures.adience(tmp_path))
    roots = {"roots": {"adience": root}, "methods": ("cloc",), "seeds": 1}
    planned = plan(["comparison"], ("adience",), **roots)
    assert [p.config.data.fold for p in planned.plans] == [0, 1, 2, 3, 4]
    one = plan(["comparison"], ("adience",), folds="2", **roots)
    assert [p.name for p in one.plans] == [planned.plans[2].name]
    # Eight ranks are many classes, which the paper does not show.
    assert settings(plan(["classes"], ("adience",), **roots)) == ["cloc"]


def test_protocols_are_settings_that_exist():
    frozen, partial, whole = (
        plan(["comparison"], protocol=name).plans[0].config.encoder
        for name in ("frozen", "partial", "whole")
    )
    assert (frozen.frozen, frozen.trainable_from, frozen.views) == (True, "", 1)
    assert (partial.frozen, partial.trainable_from) == (False, "layer4")
    assert partial.views == 4
    assert (whole.frozen, whole.trainable_from, whole.views) == (False, "", 1)


def test_methods_with_views_of_their_own_are_known():
    mesh = sharding.make_mesh(1)
    for name in table_summaries.METHODS:
        config = load("synthetic", "whole")
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
        ({"settings": ["method.rnc.augment=default"]}, 4),
        ({"changes": ["/rnc:method.rnc.augment=default"]}, 4),
    ],
)
def test_kept_views_are_for_methods_that_augment_as_the_dataset_does(given, views):
    methods = ("cloc", "dino", "rnc")
    partial = plan(["comparison"], methods=methods, protocol="partial", **given)
    kept = {p.setting: p.config.encoder.views for p in partial.plans}
    assert kept == {"cloc": 4, "dino": 1, "rnc": views}
    frozen = plan(["comparison", "bias"], methods=methods, protocol="frozen", **given)
    assert settings(frozen) == ["cloc", "biased cloc", "biased cloc controlled 1"]


def test_settings_of_all_of_one_dataset_and_of_one_method():
    planned = plan(
        ["comparison", "bias"],
        settings=["data.size=(24, 24)", "train.sampling=balanced"],
        changes=["synthetic:data.num_train=48", "/ce:train.patience=3"],
    )
    for one in planned.plans:
        assert one.config.data.size == (24, 24)
        assert one.config.train.sampling == "balanced"
        assert one.config.data.num_train == 48
        patience = 3 if one.config.method.name == "ce" else 10
        assert one.config.train.patience == patience


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"changes": ["koa:data.num_train=48"]}, "--set is 'koa:data"),
        ({"changes": ["synthetic:data.num_train"]}, "has no value"),
        ({"settings": ["train.batch=8"]}, "train.batch cannot be set"),
        ({"seeds": 0}, "--seeds is 0"),
        ({"data": ["koa"], "roots": {"koa": "none"}}, "there is no such folder"),
        ({"data": ["koa"], "roots": {"koa": "."}}, "data/koa/README.md"),
    ],
)
def test_what_cannot_be_planned_is_refused(wrong, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(ValueError, match=message):
        plan(["comparison"], **wrong)


def test_roots_are_looked_at_before_anything_is_trained(tmp_path):
    root = str(miniatures.idrid(tmp_path / "idrid"))
    planned = plan(
        ["comparison"],
        ("idrid", "koa", "adience"),
        roots={"idrid": root},
    )
    assert {planned.listed[p.name].dataset for p in planned.plans} == {"idrid"}
    assert set(planned.absent) == {"koa", "adience"}
    assert "10.17632/56rmx5bjcr.1" in planned.absent["koa"]
    assert "--root=koa=DIR" in planned.absent["koa"]


def test_a_dry_run_counts_what_is_finished_and_says_how_long(tmp_path, capsys):
    planned = plan(["comparison"])
    table_plans.dry_run(planned, tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "4 runs, 0 finished" in said and "besides 4 runs" in said
    name = planned.plans[0].name
    true = np.arange(30) % 5
    write_run(tmp_path / name, true, true, tuple("01234"))  # takes two hours
    (tmp_path / name / "config.json").unlink()
    table_plans.dry_run(planned, tmp_path)
    said = " ".join(capsys.readouterr().out.split())
    assert "4 runs, 1 finished" in said and "about 6.0 hours left" in said


def test_a_dry_run_answers_without_jax(tmp_path):
    code = (
        "import sys\nfrom cloc_jax.cli import main\n"
        "words = ['tables', '--dry-run', '--data=synthetic', '--run=none']\n"
        "code = main.main(words)\n"
        "assert code == 0 and 'jax' not in sys.modules\n"
    )
    process = run_code(code, cwd=tmp_path)
    assert process.returncode == 0, process.stderr
    assert not any(tmp_path.iterdir())  # it writes nothing


def test_summaries_are_of_all_commands_in_a_folder(tmp_path):
    true = np.arange(30) % 5
    for methods in (["ce"], ["cloc", "ce"]):
        planned = plan(
            ["comparison"], methods=methods, seeds=1, command=" ".join(methods)
        )
        table_plans._list_planned(planned, tmp_path)
        table_plans._list_planned(planned, tmp_path)  # the same command again
    for name in planned.listed:
        write_run(tmp_path / name, true, true, tuple("01234"))
    (made,) = table_plans.make_summaries(tmp_path)
    assert {n: s.commands for n, s in made.settings.items()} == {
        "ce": ("ce",),
        "cloc": ("cloc ce",),
    }
    path = next((tmp_path / table_plans.LISTS).iterdir())
    path.write_text(path.read_text().replace("0", "1"))
    with pytest.raises(files.Damaged, match="move it away"):
        table_plans.make_summaries(tmp_path)


def test_names_that_are_none(tmp_path):
    assert sorted(tables.datasets()) == sorted(datasets.DATASETS)
    for flag, unknown in (("only", "x"), ("data", "moon"), ("methods", "magic")):
        given = {"only": [], "data": [], "methods": []} | {flag: [unknown]}
        with pytest.raises(ValueError, match=f"--{flag} names {unknown}; give some of"):
            tables.check_names(**given)
    with pytest.raises(ValueError, match="--root is 'moon=x'; .* adience"):
        tables._named(["moon=x"], "--root", tables.datasets())
    with pytest.raises(ValueError, match="there is none"):
        table_plans.read_merged([tmp_path])


@pytest.mark.slow
def test_from_runs_to_the_page_and_again_from_summaries(tmp_path):
    command = [
        "tables",
        "--data=synthetic,koa",
        "--methods=cloc,ce",
        "--only=comparison,controllability,time",
        "--protocol=frozen",
        "--margin=0.5,1",
        *TINY,
        "--run=runs",
    ]
    done = launch(*command, cwd=tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    runs = tmp_path / "runs"
    kept = json.loads((runs / "summaries" / "synthetic-frozen.json").read_text())
    first = runs / "synthetic,frozen,cloc,seed=0"
    found = json.loads((first / "metrics.json").read_text())
    ours = kept["settings"]["cloc"]["runs"][0]["scores"]
    assert ours["final"]["mae"] == found["final"]["test"]["mae"]
    assert ours["phase_one"]["mae"] == found["phase_one"]["test"]["mae"]
    assert kept["controlled"][""].startswith("cloc controlled ")
    assert str(tmp_path) not in json.dumps(kept)  # no folder of this machine
    made = first.joinpath("history.jsonl").stat().st_mtime_ns
    again = launch(*command, "--seeds=2", cwd=tmp_path)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "4 of 8 runs are finished" in again.stdout
    assert first.joinpath("history.jsonl").stat().st_mtime_ns == made
    text = (runs / table_plans.PAGE).read_text()
    assert "KOA is not here" in text and "| CLOC, phase one |" in text
    launched(
        "tables",
        "--from=runs/summaries",
        "--data=synthetic,koa",
        "--to=page",
        "--only=comparison,controllability,time",
        cwd=tmp_path,
    )
    assert (tmp_path / "page" / table_plans.PAGE).read_text() == text
