"""What the page's scripts get: the numbers of `decide`, and never too much of it."""

import base64
import json
import re

import browser_runs
import numpy as np
import pytest

from cloc_jax.cli import decide
from cloc_jax.report import html_page, page_data, page_parts, plot_data
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import calibration, predictions

RANKS = ["none", "mild", "clear", "severe"]


@pytest.fixture(scope="module")
def run(tmp_path_factory):
    return browser_runs.make_run(tmp_path_factory.mktemp("page") / "run")


def data_of(run):
    text = (run / html_page.NAME).read_text()
    return json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])


def array(text, kind):
    return np.frombuffer(base64.b64decode(text), kind)


def test_probabilities_are_those_of_decide_to_the_last_bit(run):
    data = data_of(run)
    found = predictions.read(run / predictions.NAME, RANKS)
    val, test = found["val"], found["test"]
    temperature = calibration.fit_temperature(val.probabilities, val.true)
    at = calibration.apply_temperature(test.probabilities, temperature)
    assert data["deciding"]["temperature"] == temperature
    assert array(data["images"]["probabilities"], "<f8").tobytes() == at.tobytes()
    assert array(data["images"]["true"], "<u2").tolist() == test.true.tolist()
    assert data["images"]["names"] == test.items
    row = data["deciding"]["boundaries"][0]
    assert row["name"] == "mild|clear" and row["h"] == 1
    above = calibration.probability_above(at, 1)
    assert array(row["above"], "<f8").tobytes() == above.tobytes()
    assert set(row["fit"]) == {"val", "calibration"}


def test_the_saved_decision_is_where_the_page_starts(tmp_path):
    run = browser_runs.make_run(tmp_path / "run")
    folder = RunFolder(run)
    assert data_of(run)["deciding"]["saved"] is None
    decide.decide(folder, costs=["none|mild=4"], coverage=0.8)
    data = data_of(run)  # written again
    assert data["deciding"]["saved"] == {"mode": "cost", "costs": {"none|mild": [4, 4]}}
    names = [row["name"] for row in data["deciding"]["boundaries"]]
    assert names == ["none|mild", "mild|clear", "clear|severe"]  # critical ones too
    low, high = (array(data["images"]["sets"][end], "<u2") for end in ("low", "high"))
    test = predictions.read(run / predictions.NAME, RANKS)["test"]
    share = np.mean((low <= test.true) & (test.true <= high))
    text = (run / html_page.NAME).read_text()
    assert f"<strong>{100 * share:.1f}%</strong>" in text
    mean = (high.astype(int) - low + 1).mean()
    assert f"<strong>{mean:.2f}</strong>" in text
    decide.decide(folder, max_missed=0.1)
    saved = data_of(run)["deciding"]["saved"]
    assert saved["targets"] == {"mild|clear": 0.1, "clear|severe": 0.1}
    decide.remove(folder)
    assert data_of(run)["deciding"]["saved"] is None


def test_where_nothing_can_be_decided_the_page_says_why(tmp_path, monkeypatch):
    run = browser_runs.make_run(tmp_path / "run", splits=("val", "test"))
    whole = (run / predictions.NAME).read_text()
    for change, words in (
        (lambda rows: [r for r in rows if ",val," not in r], "validation images"),
        (
            lambda rows: [re.sub(r"(,[0-9.e-]+){4}$", ",,,,", r) for r in rows],
            "gives no",
        ),
    ):
        (run / predictions.NAME).write_text(
            "\n".join(change(whole.splitlines())) + "\n"
        )
        html_page.write_report(run)
        data = data_of(run)
        assert data["deciding"] is None and words in data["problem"]
        assert "Nothing can be moved here" in (run / html_page.NAME).read_text()
        assert len(data["images"]["names"]) == 300  # the table stays
    (run / predictions.NAME).write_text(whole)
    monkeypatch.setattr(page_data, "MOST_BYTES", 1000)
    html_page.write_report(run)
    assert "too large" in data_of(run)["problem"]


def test_ten_thousand_images_stay_below_ten_megabytes(tmp_path, monkeypatch):
    run = browser_runs.make_run(
        tmp_path / "run", count=10_000, ranks=list("01234"), critical=("1|2", "2|3")
    )
    before = (run / html_page.NAME).stat().st_size
    assert before < 10_000_000 and len(data_of(run)["thumbnails"]) == 40
    # With less room the most wanted thumbnails stay.
    monkeypatch.setattr(page_parts, "MOST_BYTES", before - 20_000)
    html_page.write_report(run)
    assert (run / html_page.NAME).stat().st_size <= before - 20_000
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
    line = plot_data._line("loss", rows, "train", "loss")
    assert line["values"] == [1.0, None, None, None, None]
