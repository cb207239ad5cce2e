"""Studies: what they conclude from runs whose truth is known."""

import numpy as np
import pytest
from paper_runs import ABOUT_STUDY, write_run
from tiny_runs import clean

from cloc_jax.config import default_config
from cloc_jax.paper import claims, control, margins, published, studies
from cloc_jax.runtime import files
from cloc_jax.sweeps.sweep import LOCAL

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
    run = folder / f"{name},seed={seed}"
    value = float(name.split("=")[1]) if "=" in name else 0.4
    values = {} if name == control.ENTROPY else dict.fromkeys(NAMES, value)
    write_run(run, true, predicted, RANKS, margins=values, chance=chance)
    return run


def analysed(folder, crossing, is_biased=False):
    measured = {}
    for name, share in crossing.items():
        runs = [fabricate(folder, name, s, crossing=share) for s in range(5)]
        measured[name] = control._measure(runs, (1,), RANKS)
    return control._analyse(measured, (1,), RANKS, ABOUT_STUDY, is_biased=is_biased)


def test_control_finds_an_effect_that_is_there(tmp_path):
    shares = {"learned": 0.12, "margin=0.3": 0.11, "margin=0.9": 0.05}
    study = analysed(tmp_path, shares | {"cross-entropy": 0.12})
    verdict = study.verdicts["1|2"]
    assert (verdict.setting, verdict.outcome) == ("margin=0.9", "helped")
    errors = study.settings["margin=0.9"].scores["1|2 crossing_rate"]
    assert errors.mean == pytest.approx(0.05, abs=0.01)
    assert errors.difference == pytest.approx(-0.07, abs=0.01)
    low, high = errors.difference_interval
    assert -0.1 < low < -0.06 < high < -0.05
    assert "helped" in study.sentence and "12." in study.sentence
    assert len(study.rows) == 4 and len(study.rows[0]) == len(study.columns)
    score = study.settings["margin=0.9"].scores["accuracy"]
    assert score.difference == pytest.approx(0.07, abs=0.01)
    # It comes back from its file as it was.
    files.write_sealed(tmp_path / "control.json", files.to_plain(study))
    plain = files.read_sealed(tmp_path / "control.json", remedy="")
    assert files.from_plain(control.ControlStudy, plain) == study


@pytest.mark.parametrize(
    ("shares", "outcome", "said"),
    [
        ((0.1, 0.1), "unclear", "no difference"),
        ((0.05, 0.95), "hurt", "made it worse"),
    ],
)
def test_control_does_not_claim_what_is_not_there(tmp_path, shares, outcome, said):
    learned, raised = shares
    shares = {"learned": learned, "margin=0.9": raised, "cross-entropy": learned}
    study = analysed(tmp_path, shares)
    assert study.verdicts["1|2"].outcome == outcome and said in study.sentence


def test_raising_is_told_of_where_something_was_raised(tmp_path):
    shares = {"learned": 0.1, "margin=0.1": 0.02, "margin=0.9": 0.1}
    study = analysed(tmp_path / "a", shares | {"cross-entropy": 0.1})
    # 0.1 is better on validation, but lies below the learned 0.4.
    assert study.verdicts["1|2"].setting == "margin=0.9"
    assert "Raising the margin of 1|2 from 0.40" in study.sentence
    del shares["margin=0.9"]
    study = analysed(tmp_path / "b", shares | {"cross-entropy": 0.1})
    assert "Lowering the margin of 1|2 from 0.40 (learned) to 0.10" in study.sentence
    assert [one.claim for one in study.evidence] == ["beats_cross_entropy"]


RAISED = ("1|2, from 0.40 to 0.90", "holds")
BEATS = ("learned against cross-entropy", "not shown")
PLAIN = {"neighbour_errors": RAISED, "crossings": RAISED, "beats_cross_entropy": BEATS}
BIASED = {"biased_crossings": RAISED}
BIASED["biased_accuracy"] = ("margin=0.9 against learned", "holds")


@pytest.mark.parametrize(("is_biased", "expected"), [(False, PLAIN), (True, BIASED)])
def test_evidence_of_control(tmp_path, is_biased, expected):
    shares = {"learned": 0.12, "margin=0.9": 0.05, "cross-entropy": 0.12}
    study = analysed(tmp_path, shares, is_biased=is_biased)
    found = {one.claim: (one.tried, one.verdict) for one in study.evidence}
    assert found == expected
    assert set(expected) <= set(published.CLAIMS)
    crossed = next(one for one in study.evidence if one.claim.endswith("crossings"))
    rates = [s.scores["1|2 crossing_rate"] for s in study.settings.values()]
    assert crossed.found.startswith(f"{rates[0].mean:.3f} → {rates[1].mean:.3f}, diff")
    assert f"[{rates[1].difference_interval[0]:+.3f}, " in crossed.found


def test_settings_raise_only_the_boundaries_named():
    config = default_config()
    found = control._settings(config, [1], 4, [0.3, 1.2])
    raised = ["margin=0.3", "margin=1.2"]
    assert [s.name for s in found] == ["learned", *raised, "cross-entropy"]
    assert found[0].overrides == {"method.cloc.margins": ["learn"] * 4}
    assert found[1].overrides["method.cloc.margins"] == ["learn", 0.3, "learn", "learn"]
    config.method.cloc.margins = [0.1, 0.2, "learn", "learn"]
    given = control._settings(config, [1, 2], 4, [0.3])
    assert given[0].overrides["method.cloc.margins"] == [0.1, *["learn"] * 3]
    assert given[1].overrides["method.cloc.margins"] == [0.1, 0.3, 0.3, "learn"]


CONTROL = {"boundaries": ["1|2"], "values": [0.3]}


@pytest.mark.parametrize(
    ("study", "changes", "arguments", "message"),
    [
        (control.control, {"method__name": "ce"}, CONTROL, "has no margins; use"),
        (control.control, {}, CONTROL | {"values": []}, "--values is not given"),
        (control.control, {}, CONTROL | {"boundaries": ["1|3"]}, "of 0.1, 1.2"),
        (control.control, {}, CONTROL | {"boundaries": []}, "not given"),
        (control.control, {"method__cloc__margins": "shared"}, CONTROL, "shared"),
        (margins.study_margins, {}, {"draws": 18}, "at least 19 permut"),
        (margins.collapse, {"method__name": "ce"}, {}, "has no margins"),
    ],
)
def test_studies_refuse(tmp_path, study, changes, arguments, message):
    with pytest.raises(ValueError, match=message):
        study(studies.Runs(clean(**changes), tmp_path / "x", 2, LOCAL), **arguments)
    assert not (tmp_path / "x").exists()


# --- margins ---


def test_the_null_is_a_null():
    """Any permuted set against the others: p-values spread evenly over (0, 1]."""
    rng = np.random.default_rng(0)
    sets = rng.normal([0.5, 0.4, 0.6, 0.3], [0.02, 0.05, 0.01, 0.1], (20, 4))
    smallest = []
    for one in range(20):
        others = np.delete(sets, one, axis=0)
        pairs = margins.compare(sets[one], others, ["a", "b", "c", "d"])
        smallest.append(min(p.p for p in pairs))
    # Each is the place of one set among 20: no two sets share it.
    assert sorted(round(20 * p) for p in smallest) == list(range(1, 21))


def test_differences_are_real_where_the_null_has_none():
    nulls = np.random.default_rng(0).normal(0.5, 0.01, (20, 3))
    pairs = margins.compare(np.array([0.5, 0.5, 0.9]), nulls, NAMES)
    found = {(p.first, p.second): p for p in pairs}
    assert found["0|1", "1|2"].p > 0.05
    assert found["0|1", "2|3"].p <= 0.05 and found["1|2", "2|3"].p <= 0.05
    assert found["0|1", "2|3"].difference == pytest.approx(-0.4)
    assert [p.is_real for p in pairs] == [False, True, True]
    # As of starts that all runs share: far from equal, but not by the labels.
    nulls = np.random.default_rng(0).normal([0.5, 0.7, 0.9], 1e-5, (20, 3))
    pairs = margins.compare(np.array([0.5, 0.7, 0.9001]), nulls, NAMES)
    assert any(p.p <= 0.05 for p in pairs)  # sure, yet of no use
    assert not any(p.is_real for p in pairs)
    assert pairs[1].null == pytest.approx(-0.4, abs=1e-4)


def test_rank_correlation_counts_all_orders():
    found = margins.rank_correlation(np.array([0.1, 0.2, 0.3, 0.4]), np.arange(4.0))
    assert found == (pytest.approx(1), pytest.approx(2 / 24))
    assert margins.rank_correlation(np.ones(4), np.arange(4.0)) is None


def test_probe_areas_tell_easy_from_hard():
    rng = np.random.default_rng(0)
    labels = {s: rng.integers(0, 3, 900) for s in ("train", "val")}
    place = np.array([0.0, 0.4, 5.0])  # 0|1 is hard, 1|2 easy
    inputs = {
        s: np.stack([place[y] + rng.normal(size=900), rng.normal(size=900)], 1)
        for s, y in labels.items()
    }
    hard, easy = margins.probe_areas(inputs, labels, 3)
    # Two unit Gaussians d apart have an AUC of Phi(d / sqrt 2).
    assert hard == pytest.approx(0.611, abs=0.06) and easy > 0.99
    labels["val"][labels["val"] == 2] = 1
    assert margins.probe_areas(inputs, labels, 3)[1] == 0.5


def test_margins_that_follow_the_labels():
    rng = np.random.default_rng(0)
    courses = {"learned": np.tile([0.5, 0.5, 0.9], (3, 2, 1))}
    courses["learned"] += rng.normal(0, 0.01, (3, 2, 3))
    for n in range(1, 21):
        courses[f"permuted {n}"] = rng.normal(0.5, 0.01, (3, 2, 3))
    study = margins._analyse(
        courses,
        NAMES,
        areas=[0.5, 0.6, 0.9],
        gaps=np.zeros(0),
        about=ABOUT_STUDY,
    )
    assert study.sentence.startswith("The labels explain part of 2 of 3 differences")
    assert np.shape(study.courses["permuted"]["mean"]) == (2, 3)
    assert [row[0] for row in study.rows] == NAMES
    differ, separability = study.evidence
    assert (differ.claim, differ.verdict) == ("margins_differ", "holds")
    # Three boundaries are too few for a rank correlation that is sure.
    assert (separability.claim, separability.verdict) == ("separability", "not shown")
    assert {one.claim for one in study.evidence} <= set(published.CLAIMS)
    assert files.from_plain(margins.MarginStudy, files.to_plain(study)) == (study)


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
    assert studies.command() == (
        "python launch.py control --config=configs/koa.py --config.data.root=…/koa "
        '"--boundary=1|2"'
    )


# --- from end to end ---


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def frozen(folder, seeds=1):
    settings = {"encoder__frozen": True, "head__projection": 6}
    config = clean(**settings, train__max_epochs=2)
    return studies.Runs(config, folder, seeds, LOCAL)


@pytest.mark.slow
def test_control_from_runs_to_report_and_again(tmp_path, cache):
    asked = {"boundaries": ["1|2"], "values": [0.2]}
    study = control.control(frozen(tmp_path / "c"), **asked)
    assert study.settings["margin=0.2"].margins["1|2"] == pytest.approx(0.2)
    assert (tmp_path / "c" / "control.png").stat().st_size > 10_000
    assert (tmp_path / "c" / "learned,seed=0" / "report.html").exists()
    made = {p: p.stat().st_mtime_ns for p in (tmp_path / "c").rglob("history.jsonl")}
    again = control.control(frozen(tmp_path / "c"), **asked)
    assert again.settings == study.settings
    assert made == {p: p.stat().st_mtime_ns for p in made}  # nothing was trained again
    assert claims.write_claims(tmp_path, tmp_path / "claims.md") == 1


@pytest.mark.slow
def test_margins_and_collapse_from_runs_to_pictures(tmp_path, cache, monkeypatch):
    monkeypatch.setattr(margins, "LEAST_DRAWS", 2)  # each trains two runs
    study = margins.study_margins(frozen(tmp_path / "m", seeds=2), draws=2)
    settings = {"learned", "equal starts", "permuted"}
    assert set(study.courses) == settings
    assert np.shape(study.courses["permuted"]["mean"]) == (2, 4)
    assert len(study.pairs) == 6 and len(study.separability) == 4
    assert "true gaps" in " ".join(study.notes)
    assert (tmp_path / "m" / "margins.png").stat().st_size > 10_000
    found = margins.collapse(frozen(tmp_path / "k"))
    assert len(found.courses["no early stop"][0]) == 2  # epochs
    low = np.array(found.courses["starts of 0.05 to 0.1"])
    assert low.shape == (1, 2, 4) and low.max() < 0.1
    assert (tmp_path / "k" / "collapse.png").stat().st_size > 10_000
