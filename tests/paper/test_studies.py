"""Studies: what they conclude from runs whose truth is known."""

import json

import numpy as np
import pytest
from ml_collections import ConfigDict
from PIL import Image
from tiny_runs import clean

from cloc_jax.config import default_config
from cloc_jax.data import drawn_knees
from cloc_jax.paper import (
    claims,
    collapse,
    command_text,
    control,
    learned_margins,
    separability,
    true_gaps,
)
from cloc_jax.report import figures
from cloc_jax.runtime import files
from cloc_jax.scoring import predictions
from cloc_jax.sweeps.run_plan import Plan

RANKS = ["0", "1", "2", "3"]
NAMES = ["0|1", "1|2", "2|3"]


def fabricate(folder, name, seed, *, crossing, images=1500):
    """A run whose share of images on the wrong side of 1|2 is `crossing`."""
    rng = np.random.default_rng(7)  # the same images in all runs
    true = rng.integers(0, 4, images)
    draw = np.random.default_rng((seed, len(name)))
    predicted = true.copy()
    wrong = draw.random(images) < crossing
    predicted[wrong] = np.where(true[wrong] > 1, 1, 2)
    chance = np.full((images, 4), 0.1)
    chance[np.arange(images), predicted] = 0.7
    one = predictions.Predictions(
        [str(i) for i in range(images)], true, predicted, chance
    )
    run = folder / f"{name},seed={seed}"
    run.mkdir(parents=True)
    predictions.write(run / predictions.NAME, {"val": one, "test": one}, RANKS)
    value = float(name.split("=")[1]) if "=" in name else 0.4
    values = {} if name == control.ENTROPY else dict.fromkeys(NAMES, value)
    found = {"ranks": RANKS, "margins": values, "final": {}}
    files.write_sealed(run / "metrics.json", found)
    return Plan(run.name, name, {"seed": seed}, ConfigDict())


def analysed(folder, crossing, seeds=5, at=(1,)):
    plans = {
        name: [fabricate(folder, name, seed, crossing=share) for seed in range(seeds)]
        for name, share in crossing.items()
    }
    return control._analyse(folder, plans, list(at), RANKS, "fixed")


def test_control_finds_an_effect_that_is_there(tmp_path):
    shares = {"learned": 0.12, "margin=0.3": 0.11, "margin=0.9": 0.05}
    study = analysed(tmp_path, shares | {"cross-entropy": 0.12})
    verdict = study["verdicts"]["1|2"]
    assert (verdict["setting"], verdict["outcome"]) == ("margin=0.9", "helped")
    assert verdict["before"] == pytest.approx(0.12, abs=0.01)
    assert verdict["after"] == pytest.approx(0.05, abs=0.01)
    assert verdict["relative"] == pytest.approx(-0.58, abs=0.08)
    low, high = verdict["difference_interval"]
    assert -0.1 < low < -0.06 < high < -0.05
    assert "helped" in study["sentence"] and "12." in study["sentence"]
    assert len(study["rows"]) == 5 and len(study["rows"][0]) == len(study["columns"])
    scores = study["settings"]["margin=0.9"]["scores"]["accuracy"]
    assert scores["difference"] == pytest.approx(0.07, abs=0.01)
    assert json.loads(json.dumps(study, allow_nan=False))


def test_two_boundaries_are_judged_apart(tmp_path):
    shares = {"learned": 0.12, "margin=0.9": 0.05, "cross-entropy": 0.12}
    study = analysed(tmp_path, shares, at=(1, 2))
    assert study["boundary"] == ["1|2", "2|3"]
    assert study["verdicts"]["1|2"]["outcome"] == "helped"
    # Of those that cross 1|2 half are ranks 0 and 1 called 2, which is below 2|3.
    other = study["verdicts"]["2|3"]
    assert 0 < other["before"] < study["verdicts"]["1|2"]["before"]
    assert study["sentence"].count("Raising the margin") == 2
    figures.control(tmp_path / "control.png", study)
    with Image.open(tmp_path / "control.png") as picture:
        assert picture.height > 1.3 * picture.width  # a row of panels each


def test_control_claims_nothing_where_nothing_is(tmp_path):
    shares = dict.fromkeys(["learned", "margin=0.3", "margin=0.9"], 0.1)
    study = analysed(tmp_path, shares | {"cross-entropy": 0.1})
    verdict = study["verdicts"]["1|2"]
    assert verdict["outcome"] == "unclear" and verdict["p"] > 0.05
    assert "no difference" in study["sentence"]


def test_raising_is_told_of_where_something_was_raised(tmp_path):
    shares = {"learned": 0.1, "margin=0.1": 0.02, "margin=0.9": 0.1}
    study = analysed(tmp_path / "a", shares | {"cross-entropy": 0.1})
    # 0.1 is better on validation, but lies below the learned 0.4.
    assert study["verdicts"]["1|2"]["setting"] == "margin=0.9"
    assert "Raising the margin of 1|2 from 0.40" in study["sentence"]
    del shares["margin=0.9"]
    study = analysed(tmp_path / "b", shares | {"cross-entropy": 0.1})
    assert "Lowering the margin of 1|2 from 0.40 (learned) to 0.10" in study["sentence"]


def test_control_says_when_it_hurts_and_when_a_rank_is_never_predicted(tmp_path):
    shares = {"learned": 0.05, "margin=0.9": 0.95, "cross-entropy": 0.05}
    study = analysed(tmp_path, shares)
    assert study["verdicts"]["1|2"]["outcome"] == "hurt"
    # 95% of ranks 0 and 1 became 2, of 2 and 3 became 1: nobody is called 0.
    assert any("rank 0 is predicted" in note for note in study["notes"])


def test_settings_raise_only_the_boundaries_named():
    config = default_config()
    found = control._settings(config, [1], 4, [0.3, 1.2], "fixed")
    assert [s.name for s in found] == [
        "learned",
        "margin=0.3",
        "margin=1.2",
        "cross-entropy",
    ]
    assert found[0].overrides == {"method.cloc.margins": ["learn"] * 4}
    assert found[1].overrides["method.cloc.margins"] == ["learn", 0.3, "learn", "learn"]
    config.method.cloc.margins = [0.1, 0.2, "learn", "learn"]
    floors = control._settings(config, [1, 2], 4, [0.3, 1.2], "floor")
    assert floors[0].overrides["method.cloc.margins"] == [
        0.1,
        "learn",
        "learn",
        "learn",
    ]
    low, high = (s.overrides["method.cloc.margins"] for s in floors[1:3])
    assert low == [0.1, "learn>=0.3", "learn>=0.3", "learn"]
    assert high == [0.1, "learn=1.7>=1.2", "learn=1.7>=1.2", "learn"]


@pytest.mark.parametrize(
    "changes, arguments, message",
    [
        ({"method__name": "ce"}, {}, "has none; use cloc"),
        ({}, {"values": []}, "--values is not given"),
        ({}, {"values": [0.1, -1]}, "above 0"),
        ({}, {"boundaries": ["1|3"]}, "name one or more of 0.1, 1.2"),
        ({}, {"boundaries": []}, "not given"),
        ({}, {"kind": "other"}, "--kind"),
        ({}, {"seeds": 0}, "--seeds is 0"),
        ({"method__cloc__margins": "shared"}, {}, "cannot be raised alone"),
    ],
)
def test_control_refuses(tmp_path, changes, arguments, message):
    options = {"boundaries": ["1|2"], "values": [0.3], "seeds": 2, "kind": "fixed"}
    with pytest.raises(ValueError, match=message):
        control.control(clean(**changes), tmp_path / "x", **(options | arguments))
    assert not (tmp_path / "x").exists()


# --- margins ---


def test_the_null_is_a_null():
    """Any permuted set against the others: p-values spread evenly over (0, 1]."""
    rng = np.random.default_rng(0)
    sets = rng.normal([0.5, 0.4, 0.6, 0.3], [0.02, 0.05, 0.01, 0.1], (20, 4))
    smallest = []
    for one in range(20):
        others = np.delete(sets, one, axis=0)
        pairs = learned_margins.compare(sets[one], others, ["a", "b", "c", "d"])
        smallest.append(min(p.p for p in pairs))
    # Each is the place of one set among 20: no two sets share it.
    assert sorted(round(20 * p) for p in smallest) == list(range(1, 21))


def test_real_differences_are_found_and_named():
    rng = np.random.default_rng(0)
    nulls = rng.normal(0.5, 0.01, (20, 3))
    pairs = learned_margins.compare(np.array([0.5, 0.5, 0.9]), nulls, NAMES)
    found = {(p.first, p.second): p for p in pairs}
    assert found["0|1", "1|2"].p > 0.05
    assert found["0|1", "2|3"].p <= 0.05 and found["1|2", "2|3"].p <= 0.05
    assert found["0|1", "2|3"].difference == pytest.approx(-0.4)
    assert found["0|1", "2|3"].is_real and not found["0|1", "1|2"].is_real


def test_a_difference_that_the_null_has_too_is_not_real():
    """As of starts that all runs share: far from equal, but not by the labels."""
    nulls = np.random.default_rng(0).normal([0.5, 0.7, 0.9], 1e-5, (20, 3))
    pairs = learned_margins.compare(np.array([0.5, 0.7, 0.9001]), nulls, NAMES)
    assert any(p.p <= 0.05 for p in pairs)  # sure, yet of no use
    assert not any(p.is_real for p in pairs)
    assert pairs[1].null == pytest.approx(-0.4, abs=1e-4)


def test_rank_correlation_counts_all_orders():
    found = learned_margins.rank_correlation(
        np.array([0.1, 0.2, 0.3, 0.4]), np.arange(4.0)
    )
    assert found == {"value": pytest.approx(1), "p": pytest.approx(2 / 24)}
    assert learned_margins.rank_correlation(np.ones(4), np.arange(4.0))["value"] is None


def test_warnings_name_a_sum_that_is_too_wide_and_a_collapse():
    wide, low = learned_margins.warnings([1.2, 0.01, 0.9], NAMES, 2.0)
    assert "2.11" in wide and "2 " in wide
    assert "1|2" in low and "Collapse" in low
    assert learned_margins.warnings([0.3, 0.3, 0.3], NAMES, 1.0) == []


def test_probe_areas_tell_easy_from_hard():
    rng = np.random.default_rng(0)
    labels = {s: rng.integers(0, 3, 900) for s in ("train", "val")}
    place = np.array([0.0, 0.4, 5.0])  # 0|1 is hard, 1|2 easy
    inputs = {
        s: np.stack([place[y] + rng.normal(size=900), rng.normal(size=900)], 1)
        for s, y in labels.items()
    }
    hard, easy = separability.probe_areas(inputs, labels, 3)
    # Two unit Gaussians d apart have an AUC of Phi(d / sqrt 2).
    assert hard == pytest.approx(0.611, abs=0.06) and easy > 0.99
    labels["val"][labels["val"] == 2] = 1
    assert separability.probe_areas(inputs, labels, 3)[1] == 0.5


def test_a_band_needs_seeds_and_a_null_draws(tmp_path):
    for seeds, draws in ((1, 20), (3, 5)):
        with pytest.raises(ValueError, match="at least 19 permutations"):
            learned_margins.study_margins(clean(), tmp_path, seeds=seeds, draws=draws)
    with pytest.raises(ValueError, match="has no margins"):
        collapse.collapse(clean(method__name="ce"), tmp_path, seeds=1)


# --- claims ---


def test_claims_page_follows_the_studies(tmp_path):
    shares = {"learned": 0.12, "margin=0.9": 0.05, "cross-entropy": 0.12}
    study = analysed(tmp_path / "runs", shares)
    about = {
        "command": "python launch.py control --boundary='1|2'",
        "dataset": "koa",
        "size": [120, 200],
        "relabel": [],
        "encoder": "resnet50",
        "is_frozen": True,
    }
    files.write_sealed(tmp_path / "runs" / "control.json", study | about)
    count = claims.write_claims(tmp_path, tmp_path / "claims.md")
    page = (tmp_path / "claims.md").read_text()
    assert count == 1
    parts = {part.partition("\n")[0]: part for part in page.split("## ")}
    section = next(p for name, p in parts.items() if name.startswith("The same, count"))
    assert "| holds |" in section and "KOA, 120x200, frozen resnet50" in section
    assert f"{study['verdicts']['1|2']['after']:.3f}" in section
    assert "1\\|2" in section and "[1]" in section
    # Learned against cross-entropy, which are alike here.
    assert (
        "| not shown |"
        in parts["CLOC with learned margins is more accurate than cross-entropy."]
    )
    assert "Not tested" in next(p for name, p in parts.items() if "biased" in name)
    assert about["command"] in page
    with pytest.raises(FileNotFoundError, match="holds no study"):
        (tmp_path / "empty").mkdir()
        claims.write_claims(tmp_path / "empty", tmp_path / "claims.md")


ABOUT = {
    "command": "python launch.py gaps --seeds=2",
    "dataset": "synthetic",
    "size": [96, 96],
    "relabel": [],
    "encoder": "resnet50",
    "is_frozen": True,
}


def test_a_page_keeps_rows_of_other_commands_and_replaces_its_own(tmp_path):
    shares = {"learned": 0.12, "margin=0.9": 0.05, "cross-entropy": 0.12}
    study = analysed(tmp_path / "first", shares) | ABOUT
    commands = ["python launch.py control --boundary='1|2'", "python launch.py again"]
    for command in commands:
        (tmp_path / "first" / f"{len(command)}").mkdir()
        path = tmp_path / "first" / f"{len(command)}" / "control.json"
        files.write_sealed(path, study | {"command": command})
    page = tmp_path / "claims.md"
    claims.write_claims(tmp_path / "first", page)
    before = page.read_text()
    other = tmp_path / "second"
    other.mkdir()
    found = true_gaps.analyse(learned_gaps(), 19) | {"seeds": 4, "draws": 19}
    files.write_sealed(other / "gaps.json", found | ABOUT)
    claims.write_claims(other, page, add=True)
    after = page.read_text()
    gone = set(before.splitlines()) - set(after.splitlines())
    assert gone <= {"Not tested."}
    assert "3. `python launch.py gaps --seeds=2`" in after
    for _ in range(2):  # the same study again changes nothing
        claims.write_claims(other, page, add=True)
        assert page.read_text() == after
    claims.write_claims(other, page)
    assert "launch.py control" not in page.read_text()


# --- gaps ---


def learned_gaps(seeds=4, draws=19):
    """CLM near the truth, CLOC at its random starts, on permuted labels neither."""
    rng = np.random.default_rng(0)
    widths = np.diff(drawn_knees.THRESHOLDS)
    values = {}
    for name, size in ((true_gaps.CLM, 3), (true_gaps.CLOC, 4), (true_gaps.EQUAL, 4)):
        noise = [rng.uniform(0.5, 1, (seeds, size)) for _ in range(draws + 1)]
        values[name] = noise[0]
        for n in range(1, draws + 1):
            values[true_gaps.permuted(name, n)] = noise[n]
    values[true_gaps.CLM] = 10 * widths + rng.normal(size=(seeds, 3)) / 100
    return values


def test_gaps_that_follow_the_truth_are_found():
    study = true_gaps.analyse(learned_gaps(), 19)
    clm, cloc = (study["settings"][n] for n in (true_gaps.CLM, true_gaps.CLOC))
    assert clm["correlation"] == 1 and clm["share_error"] < 0.05
    assert clm["share_error_p"] == 0.05 and cloc["share_error_p"] > 0.05
    assert cloc["truth"] == pytest.approx([0.13, 0.17, 0.29, 0.25])
    assert clm["truth"] == pytest.approx([0.10, 0.24, 0.34])
    assert study["compared"][true_gaps.CLOC]["difference_interval"][1] < 0
    assert "closer to the truth than" in study["sentence"]


def test_gaps_that_permuted_labels_give_as_well_prove_nothing():
    values = learned_gaps()
    for n in range(1, 20):  # the sizes of the ranks alone give the same
        values[true_gaps.permuted(true_gaps.CLM, n)] = values[true_gaps.CLM]
    study = true_gaps.analyse(values, 19)
    clm = study["settings"][true_gaps.CLM]
    assert clm["correlation"] == 1 and clm["correlation_p"] == 1
    evidence = list(claims._true_gaps("gaps", study | {"draws": 19}))
    assert evidence[0].verdict == claims.FAILS


def test_true_gaps_need_drawn_data_and_enough_runs(tmp_path):
    with pytest.raises(ValueError, match="whose true gaps nobody knows"):
        true_gaps.study_gaps(default_config(), tmp_path, seeds=2, draws=19)
    with pytest.raises(ValueError, match="at least 19 permutations"):
        true_gaps.study_gaps(clean(), tmp_path, seeds=2, draws=5)


def test_a_command_is_shown_without_folders_of_this_machine(monkeypatch):
    words = [
        "launch.py",
        "--config=configs/koa.py",
        "control",
        "--run=/home/me/runs",
        "--config.data.root=/home/me/koa",
        "--boundary=1|2",
    ]
    monkeypatch.setattr("sys.argv", words)
    assert command_text.command() == (
        "python launch.py control --config=configs/koa.py --config.data.root=…/koa "
        '"--boundary=1|2"'
    )


# --- from end to end ---


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def frozen(**changes):
    settings = {"encoder__frozen": True, "head__projection": 6}
    return clean(**settings, train__max_epochs=2, **changes)


@pytest.mark.slow
def test_control_from_runs_to_report_and_again(tmp_path, cache):
    options = {"boundaries": ["1|2"], "values": [0.2], "seeds": 2}
    study = control.control(frozen(), tmp_path / "c", **options)
    assert study["settings"]["margin=0.2"]["margins"]["1|2"] == pytest.approx(0.2)
    assert (tmp_path / "c" / "control.png").stat().st_size > 10_000
    assert (tmp_path / "c" / "learned,seed=0" / "report.html").exists()
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "c").rglob("history.jsonl")}
    again = control.control(frozen(), tmp_path / "c", **options)
    assert again["settings"] == study["settings"]
    assert made == {p: p.stat().st_mtime_ns for p in made}  # nothing was trained again


@pytest.mark.slow
def test_margins_and_collapse_from_runs_to_pictures(tmp_path, cache):
    study = learned_margins.study_margins(frozen(), tmp_path / "m", seeds=2, draws=19)
    assert set(study["courses"]) == {
        "learned",
        "equal starts",
        "sgd",
        "relu",
        "permuted",
    }
    assert np.shape(study["courses"]["permuted"]["mean"]) == (2, 4)
    assert len(study["pairs"]) == 6 and len(study["separability"]) == 4
    assert study["true_gaps"] == pytest.approx([0.13, 0.17, 0.29, 0.25])
    starts = np.array(study["starts"])
    assert starts.shape == (2, 4) and (starts >= 0.5).all() and (starts < 1).all()
    assert (tmp_path / "m" / "margin_study.png").stat().st_size > 10_000
    found = collapse.collapse(frozen(), tmp_path / "k", seeds=1)
    assert found["settings"]["no early stop"]["epochs"] == [2]
    low = np.array(found["settings"]["starts of 0.05 to 0.1"]["courses"])
    assert low.shape == (1, 2, 4) and low.max() < 0.1
    assert (tmp_path / "k" / "collapse.png").stat().st_size > 10_000


@pytest.mark.slow
def test_gaps_from_runs_to_the_study(tmp_path, cache):
    study = true_gaps.study_gaps(frozen(), tmp_path / "g", seeds=2, draws=19)
    assert np.shape(study["settings"][true_gaps.CLM]["learned"]) == (3,)
    saved = json.loads((tmp_path / "g" / "gaps.json").read_text())
    assert saved["settings"] == study["settings"] and saved["dataset"] == "synthetic"
    for name in (true_gaps.CLM, true_gaps.CLOC):
        rows = (tmp_path / "g" / f"{name},seed=0" / "history.jsonl").read_text()
        assert len(rows.splitlines()) == 2  # all epochs, whatever validation says
