"""What the page's scripts get: the labels of `decide`, and never too much of it."""

import base64
import itertools
import json
import re

import numpy as np
import pytest
from drawn_probabilities import coarse, drawn
from finished_runs import RANKS, finished_run

from cloc_jax.cli import decide
from cloc_jax.report import html_page, page_data
from cloc_jax.scoring import decisions, predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import read_results


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return written(tmp_path_factory.mktemp("page") / "run")


def written(path, **options):
    folder = finished_run(path, **options)
    html_page.write_report(folder)
    return folder


def data_of(folder):
    text = (folder.path / html_page.NAME).read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def array(text, kind="<u1"):
    return np.frombuffer(base64.b64decode(text), kind)


def test_images_are_those_of_the_predictions(run):
    data = data_of(run)
    found = predictions.read(run.path, read_results(run))
    val, test = found["val"], found["test"]
    temperature = decisions.fit_temperature(val.probabilities, val.true)
    at = decisions.apply_temperature(test.probabilities, temperature)
    assert data["deciding"]["temperature"] == temperature
    given = array(data["images"]["probabilities"], "<f4").reshape(at.shape)
    np.testing.assert_array_equal(given, at.astype(np.float32))
    assert array(data["images"]["true"]).tolist() == test.true.tolist()
    assert array(data["images"]["predicted"]).tolist() == test.predicted.tolist()
    assert data["images"]["names"] == test.items
    row = data["deciding"]["boundaries"][0]
    assert row["name"] == "mild|clear" and row["h"] == 1
    assert set(row["steps"]) == {"val", "calibration"}


def test_each_position_of_a_cost_slider_has_the_labels_of_that_cost(run):
    deciding = data_of(run)["deciding"]
    test = predictions.read(run.path, read_results(run))["test"]
    costs = deciding["costs"]
    assert (costs[0], costs[-1]) == (0.1, 100) and 1 in costs
    assert costs == sorted(set(costs))
    for row in deciding["boundaries"]:
        for cost, labels in zip(costs, row["by_cost"], strict=True):
            pair = {row["name"]: (cost, 1.0)}
            wanted = Decision(RANKS, deciding["temperature"], costs=pair)
            expected = wanted.apply(test.probabilities)
            assert array(labels).tolist() == expected.tolist()


@pytest.mark.parametrize("make", [drawn, coarse])
@pytest.mark.parametrize("guarantee", [False, True])
def test_every_share_leads_to_the_threshold_that_is_fitted_for_it(make, guarantee):
    """The look-up of deciding.js, for shares on, below and above all steps."""
    fitted, true = make(0, count=60)
    shown, _ = make(1, count=40)
    images = predictions.Predictions([], true, fitted.argmax(1), fitted)
    for h in range(4):
        above = decisions.probability_above(shown, h)
        steps = page_data._steps(above, fitted, images, h, guarantee)
        shares, thresholds = (array(steps[k], "<f8") for k in ("shares", "thresholds"))
        passed = array(steps["passed"], "<u4")
        middle = (shares[1:] + shares[:-1]) / 2
        for share in [*shares, *middle, 0.999]:
            step = np.flatnonzero(shares <= share)[-1]
            if share == 0 and guarantee:
                continue
            fit = decisions.fit_threshold(fitted, true, h, share, guarantee)
            assert thresholds[step] == fit
            assert (step < passed).tolist() == (above > fit).tolist()


def test_labels_of_all_sides_are_those_of_thresholds(run):
    deciding = data_of(run)["deciding"]
    test = predictions.read(run.path, read_results(run))["test"]
    at = decisions.apply_temperature(test.probabilities, deciding["temperature"])
    places = [row["h"] for row in deciding["boundaries"]]
    above = [decisions.probability_above(at, h) for h in places]
    tables = [array(table) for table in deciding["sides"]["tables"]]
    index = np.array(deciding["sides"]["index"])
    for chosen in itertools.product((None, 0.2, 0.5), repeat=len(places)):
        both = zip(places, chosen, strict=True)
        wanted = decisions.by_thresholds(at, {h: t for h, t in both if t is not None})
        sides = np.zeros(len(at), int)
        for probability, threshold in zip(above, chosen, strict=True):
            side = 0 if threshold is None else 1 + (probability > threshold)
            sides = 3 * sides + side
        labels = np.array(tables)[index[sides], np.arange(len(at))]
        assert labels.tolist() == wanted.tolist()


def test_the_curve_is_that_of_all_thresholds():
    p, true = coarse(3, count=80)
    above, is_above = decisions.probability_above(p, 1), true > 1
    curve = page_data._curve(above, is_above)
    tried = {}
    for threshold in (-1, *np.unique(above)):
        missed = int((is_above & (above <= threshold)).sum())
        alarms = int((~is_above & (above > threshold)).sum())
        tried[missed] = min(alarms, tried.get(missed, alarms))
    assert dict(zip(curve["missed"], curve["alarms"], strict=True)) == tried
    assert (curve["above"], curve["below"]) == (is_above.sum(), (~is_above).sum())


def test_the_saved_decision_is_where_the_page_starts(tmp_path):
    run = written(tmp_path / "run")
    assert data_of(run)["deciding"]["saved"] is None
    decision = decide.decide(run, costs=["none|mild=4"], coverage=0.8)
    data = data_of(run)  # written again
    test = predictions.read(run.path, read_results(run))["test"]
    labels = decision.apply(test.probabilities)
    assert array(data["deciding"]["saved"]).tolist() == labels.tolist()
    low, high = (array(data["images"]["sets"][end]) for end in ("low", "high"))
    share = np.mean((low <= test.true) & (test.true <= high))
    text = (run.path / html_page.NAME).read_text()
    assert f"<strong>{100 * share:.1f}%</strong>" in text
    mean = (high.astype(int) - low + 1).mean()
    assert f"<strong>{mean:.2f}</strong>" in text
    decide.remove(run)
    assert data_of(run)["deciding"]["saved"] is None


def test_where_nothing_can_be_decided_the_page_says_why(tmp_path, monkeypatch):
    for name, options, words in (
        ("silent", {"has_probabilities": False}, "gives no probabilities"),
        ("alone", {"splits": ("test",)}, "for validation images"),
    ):
        run = written(tmp_path / name, **options)
        data = data_of(run)
        assert data["deciding"] is None and words in data["problem"]
        assert "Nothing can be moved here" in (run.path / html_page.NAME).read_text()
        assert len(data["images"]["names"]) == 300  # the table stays
    monkeypatch.setattr(page_data, "MOST_BYTES", 1000)
    data = data_of(written(tmp_path / "large"))
    assert "too large" in data["problem"] and data["images"]["probabilities"] is None


def test_ten_thousand_images_stay_below_ten_megabytes(tmp_path, monkeypatch):
    five = {"ranks": list("01234"), "critical": ("1|2", "2|3")}
    run = written(tmp_path / "run", count=10_000, **five)
    before = (run.path / html_page.NAME).stat().st_size
    assert before < 10_000_000 and len(data_of(run)["thumbnails"]) == 40
    # With less room the most wanted thumbnails stay.
    monkeypatch.setattr(html_page, "MOST_BYTES", before - 20_000)
    html_page.write_report(run)
    assert (run.path / html_page.NAME).stat().st_size <= before - 20_000
    assert 0 < len(data_of(run)["thumbnails"]) < 40


def test_plots_have_the_values_of_the_history(run):
    plots = data_of(run)["plots"]
    assert set(plots) == {"loss", "accuracy", "margins", "calibration"}
    assert plots["loss"]["lines"][0]["values"][1] == 1.0
    assert plots["loss"]["changes"] == [2] and plots["loss"]["x"] == [1, 2, 3, 4, 5, 6]
    assert [line["name"] for line in plots["margins"]["lines"]][0] == "none|mild"
    assert [panel["title"] for panel in plots["calibration"]][1:] == [
        "Above mild|clear",
        "Above clear|severe",
    ]
    for panel in plots["calibration"]:
        for predicted, observed, low, high, images in panel["bins"]:
            assert low <= observed <= high and 0 <= predicted <= 1 and images == 30


def test_values_that_are_not_numbers_are_gaps():
    rows = [{"train": {"loss": value}} for value in (1.0, None, float("nan"))]
    rows += [{"train": None}, {}]
    line = page_data._line("loss", rows, "train", "loss")
    assert line["values"] == [1.0, None, None, None, None]
