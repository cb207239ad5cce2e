"""The report: one safe file that holds what the run folder says, and for its scripts
the labels of `decide`."""

import base64
import dataclasses
import hashlib
import html.parser
import io
import json
import re

import hostile_runs
import numpy as np
import pytest
from drawn_probabilities import coarse, drawn
from finished_runs import (
    PICTURES,
    RANKS,
    change_results,
    finished_run,
    split_scores,
)
from PIL import Image

from cloc_jax.cli import decide
from cloc_jax.cli.command_line import DecisionFlags
from cloc_jax.report import html_page, view
from cloc_jax.runtime import errors, files
from cloc_jax.runtime.run_folder import RunFolder, flatten
from cloc_jax.scoring import decisions, predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import ReadoutValues, read_results


class Page(html.parser.HTMLParser):
    """Tags with their attributes, the text, and the rows of all tables."""

    VOID = {"meta", "img", "wbr", "br", "input"}

    def __init__(self, text):
        super().__init__()
        self.tags, self.open, self.words, self.rows = [], [], [], []
        self.classes, self.mark = {}, None  # first text of the elements of a class
        self.feed(text)
        assert self.open == [], "tags left open"
        self.text = re.sub(r"\s+", " ", " ".join(self.words))

    def handle_starttag(self, tag, attrs):
        self.tags.append((tag, dict(attrs)))
        if tag not in self.VOID:
            self.open.append(tag)
        self.mark = dict(attrs).get("class")
        if tag == "tr":
            self.rows.append((dict(attrs).get("class", ""), []))
        if tag in ("td", "th") and self.rows:
            self.rows[-1][1].append("")

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        if {"style", "script"} & set(self.open):
            return
        self.words.append(data)
        if self.mark:
            self.classes.setdefault(self.mark, []).append(data)
            self.mark = None
        if "td" in self.open or "th" in self.open:
            cells = self.rows[-1][1]
            cells[-1] = re.sub(r"\s+", " ", cells[-1] + data)

    def row(self, first, cells):
        """The table row with this first cell and number of cells."""
        found = [
            (mark, [cell.strip() for cell in row])
            for mark, row in self.rows
            if len(row) == cells and row[0].strip().split(" critical")[0] == first
        ]
        assert len(found) == 1, (first, cells, found)
        return found[0]


def make_run(path, ranks, **options):
    """A finished run without critical boundaries, unless they are named."""
    return finished_run(path, ranks=ranks, **{"critical": (), "shown": 0} | options)


def read_page(folder):
    path = html_page.write_report(folder)
    assert path == folder.path / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def images_of(page):
    return [attributes for tag, attributes in page.tags if tag == "img"]


@pytest.fixture(scope="module")
def koa(tmp_path_factory):
    """The folder of a run on a dataset that the paper has."""
    return make_run(
        tmp_path_factory.mktemp("koa") / "run",
        list("01234"),
        dataset="koa",
        critical=["1|2"],
        expect="MAE ±",
        config={"seed": 7, "data": {"root": None, "augment": {"flip": True}}},
        shown=300,
    )


@pytest.fixture(scope="module")
def page(koa):
    return read_page(koa)


@pytest.fixture(scope="module")
def test(koa):
    return read_results(koa).final["test"]


def test_is_self_contained(koa, page):
    for tag, attributes in page.tags:
        assert tag not in ("link", "iframe", "object")
        assert tag != "script" or "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        if "href" in attributes:
            assert attributes["href"].startswith("#")
        if "src" in attributes:
            kind = re.match("data:image/(png|jpeg);base64,", attributes["src"])
            data = base64.b64decode(attributes["src"][kind.end() :])
            assert Image.open(io.BytesIO(data)).format.lower() == kind[1]
    text = (koa.path / "report.html").read_text(encoding="utf-8")
    assert "@import" not in text and "url(" not in text
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    mark = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(a["content"] for tag, a in page.tags if "http-equiv" in a)
    assert len(scripts) == 1 and f"script-src 'sha256-{mark}';" in policy
    assert "default-src 'none'" in policy
    assert "Permission is hereby granted" in scripts[0]  # uPlot's licence
    drawn = [image for image in images_of(page) if "width" in image]
    assert len(drawn) == len(PICTURES) and all(image["alt"] for image in drawn)
    assert all(image["width"] == "192" for image in drawn)
    ids = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert ids[:5] == ["good", "errors", "images", "trust", "decide"]
    assert ids[5:] == ["control", "network", "made"]
    links = {attributes["href"][1:] for tag, attributes in page.tags if tag == "a"}
    assert links == set(ids)  # every section is linked, every link leads somewhere


def test_headline_and_tables_hold_the_scores(koa, page, test):
    results = read_results(koa)
    val = results.final["val"]
    assert (
        f"Of 300 test images, {100 * test.accuracy:.1f}% were given exactly the "
        f"right rank and {100 * test.one_off_accuracy:.1f}% were at most one rank "
        "off."
    ) in page.text
    assert f"{test.mae:.3f}" in page.text and f"{test.qwk:.3f}" in page.text
    assert f"validation {val.mae:.3f}" in page.text and "MAE ±" in page.text
    for i, rank in enumerate(results.ranks):
        assert page.row(rank, 5)[1][1:] == [
            str(test.true_counts[rank]),
            str(test.confusion[i][i]),
            f"{100 * test.recall[rank]:.1f}%",
            str(test.predicted_counts[rank]),
        ]
    for name, rates in test.boundaries.items():
        assert page.row(name, 7)[1][1:] == [
            f"{100 * rates.error_rate:.1f}%",
            f"{rates.missed_count} {100 * rates.missed_rate:.1f}%",
            f"{rates.false_alarm_count} {100 * rates.false_alarm_rate:.1f}%",
            f"{100 * rates.crossing_rate:.1f}%",
            f"{100 * rates.crossing_missed_rate:.1f}%",
            f"{100 * rates.crossing_false_alarm_rate:.1f}%",
        ]
    assert page.row("joint (phase one)", 5)[1][1:4] == ["9", "279", "61.2 s"]
    assert "it was enough" in page.text
    first = [row for _, row in page.rows if row[:2] == ["joint", "1"]]
    assert first[0][2:6] == ["2.000", "42.5%", "55.0%", "52.5%"]
    assert page.row("data.augment.flip", 2)[1][1] == "true"
    assert page.row("device", 2)[1][1] == "cpu x1"
    assert "The order score is 0.812" in page.text and "Spearman" in page.text


def percents(ends):
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}%"


def numbers(ends):
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def test_every_headline_has_its_interval(page, test):
    ends = test.intervals
    assert page.classes["ends"][:4] == [
        percents(ends.accuracy),
        numbers(ends.mae),
        numbers(ends.qwk),
        percents(ends.one_off_accuracy),
    ]
    rates, rate_ends = test.boundaries["1|2"], ends.boundaries["1|2"]
    assert page.row("1|2", 5)[1][1:] == [
        f"{100 * getattr(rates, name):.1f}% {percents(rate_ends[name])}"
        for name in (
            "missed_rate",
            "false_alarm_rate",
            "crossing_missed_rate",
            "crossing_false_alarm_rate",
        )
    ]


def test_scores_by_rank_are_shown_where_ranks_differ_in_size(koa, test):
    shown = view.View(koa)
    assert len(shown.cards()) == 4
    counts = dict.fromkeys(test.true_counts, 20) | {"1": 60, "2": 0}
    shown.results.final["test"] = dataclasses.replace(test, true_counts=counts)
    (_, by_rank, ends, _), (_, least, _, _) = shown.cards()[4:]
    assert by_rank == f"{test.macro_mae:.3f}"
    assert ends == numbers(test.intervals.macro_mae)
    assert least == f"{100 * test.minimum_sensitivity:.1f}%"


def test_the_commonest_rank_stands_beside(page, test):
    assert page.row("This run", 3)[1][1:] == [
        f"{100 * test.accuracy:.1f}% {percents(test.intervals.accuracy)}",
        f"{test.mae:.3f} {numbers(test.intervals.mae)}",
    ]
    true = np.repeat(np.arange(5), list(test.true_counts.values()))
    commonest = np.bincount(true).argmax()
    assert page.row(f"Always the commonest rank, “{commonest}”", 3)[1][1:] == [
        f"{100 * np.mean(true == commonest):.1f}%",
        f"{np.mean(np.abs(true - commonest)):.3f}",
    ]


STUDY = {
    "boundary": ["1|2"],
    "sentence": "Raising 1|2 to 0.5 <missed> fewer.",
    "notes": ["Three seeds each."],
    "columns": ["setting", "accuracy", "missed"],
    "rows": [["learned", "0.66 ± 0.01", "0.20 ± 0.02"], ["0.5", "0.64 ± 0.01", "–"]],
    "command": 'python launch.py control --boundary="1|2"',
}


@pytest.mark.parametrize("name", ["control", "margins", "collapse"])
def test_studies_are_shown(tmp_path, name):
    folder = make_run(tmp_path / "study" / "run", list("01234"), critical=["1|2"])
    assert "± 0.01" not in read_page(folder).text
    place = folder.path.parent
    files.write_sealed(place / f"{name}.json", STUDY)
    before = len(images_of(read_page(folder)))
    Image.new("RGB", (600, 300)).save(place / f"{name}.png", dpi=(150, 150))
    page = read_page(folder)
    assert len(images_of(page)) == before + 1
    assert STUDY["sentence"] in page.text and STUDY["command"] in page.text
    assert page.row("learned", 3)[1] == STUDY["rows"][0]
    assert page.row("0.5", 3)[1] == STUDY["rows"][1]
    files.write_sealed(place / f"{name}.json", STUDY | {"rows": [5]})
    with pytest.raises(files.Damaged, match=r"rows\[0\] is 5, not a list"):
        html_page.write_report(folder)


def test_without_a_study_the_page_says_how_to_make_it(page, tmp_path):
    assert 'python launch.py control --config=… --boundary="1|2"' in page.text
    page = read_page(make_run(tmp_path / "b", list("01234")))
    assert '--boundary="0|1"' in page.text
    assert "No boundary was named as important" in page.text


FIXED = {"0|1": "fixed", "1|2": "learned", "2|3": "fixed"}  # by hand


@pytest.mark.parametrize(
    ("margins", "kinds", "kept", "words", "is_said"),
    [
        ((0.019, 0.3, 0.0), {}, (), "Collapse: the margins of 0|1 , 2|3 fell", True),
        ((0.019, 0.3, 0.0), FIXED, (), "Collapse", False),
        ((0.5, 0.3, 0.7), {}, (), "sum to 1.500, more than the 1.000", True),
        ((0.1, 0.1, 0.1), {}, (0.0, 0.0005, 0.0), "Margins had no influence", True),
        ((0.1, 0.1, 0.1), {}, (0.0, 0.01, 0.0), "Margins had no influence", False),
        ((0.1, 0.1, 0.1), {}, (None,) * 3, "Margins had no influence", False),
    ],
)
def test_margins_that_say_little_are_noted(
    tmp_path, margins, kinds, kept, words, is_said
):
    folder = make_run(tmp_path / "run", list("0123"), critical=["1|2"])
    values = dict(zip(FIXED, margins, strict=True))
    readout = ReadoutValues("boundary", values, kinds, 1.0)
    kept = dict(zip(FIXED, kept, strict=False))
    first, last = read_results(folder).stages
    stages = [first, dataclasses.replace(last, kept_triplets=kept)]
    change_results(folder, readouts={"margins": readout}, stages=stages)
    page = read_page(folder)
    assert (words in page.text) == is_said
    assert page.row("Sum", 5 if kept else 4)[1][2] == f"{sum(margins):.3f}"


def test_nearest_images_are_the_most_doubtful_of_each_side(koa, page):
    ((name, sides),) = view.View(koa).nearest()
    test = predictions.read(koa.path, read_results(koa))["test"]
    above = decisions.probability_above(test.probabilities, 1)
    is_right = (test.predicted > 1) == (test.true > 1)
    assert name == "1|2"
    for side, some in (("right", is_right), ("wrong", ~is_right)):
        own = sorted(np.flatnonzero(some), key=lambda i: abs(above[i] - 0.5))
        wanted = own[: view.NEAREST]
        assert sides[side] == [(i, above[i]) for i in wanted]
    assert f"above: {100 * sides['wrong'][0][1]:.0f}%" in page.text
    shown = [image["alt"] for image in images_of(page)]
    assert {test.items[i] for side in sides.values() for i, _ in side} <= set(shown)


def test_critical_boundary_is_highlighted_and_named(page, test):
    assert page.row("1|2", 7)[0] == "critical" and page.row("0|1", 7)[0] == ""
    margins = {row[0].strip(): mark for mark, row in page.rows if "learned" in row}
    assert margins["1|2 critical"] == "critical" and margins["0|1"] == ""
    rates = test.boundaries["1|2"]
    assert f"{rates.missed_count} images of “2” were called “1” (missed)" in page.text


def test_names_are_nothing_but_text(tmp_path):
    """Whatever they hold, the page has the same elements, and says them as they are."""
    outlines = []
    for change in (hostile_runs.tame, str):
        path = hostile_runs.hostile_run(tmp_path / change.__name__, change=change)
        text = path.read_text(encoding="utf-8")
        outlines.append(hostile_runs.Outline(text).found)
        data = json.loads(re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1])
        results = read_results(RunFolder(path.parent))
        assert data["ranks"] == results.ranks and len(data["ranks"]) == 3
        names = predictions.read(path.parent, results)["test"].items
        assert data["images"]["names"] == [errors.printable(name) for name in names]
        said = "".join(Page(text).words)
        assert all(rank in said for rank in results.ranks)
    assert outlines[0] == outlines[1]


def test_one_stage_method_without_margins(tmp_path):
    pictures = [name for name in PICTURES if name != "embedding.png"]
    page = read_page(
        make_run(tmp_path / "run", list("012"), method="coral", pictures=pictures)
    )
    assert "The margins" not in page.text and "larger margin" not in page.text
    assert "Any method can be told what mistakes cost" in page.text
    assert "no map of the embeddings" in page.text
    assert len(images_of(page)) == len(pictures)


def test_readouts_of_other_methods_have_a_table_and_a_plot(tmp_path):
    folder = make_run(tmp_path / "run", list("012"), method="clm")
    values = {"0|1": -0.5, "1|2": 1.25}
    change_results(folder, readouts={"first_points": ReadoutValues("boundary", values)})
    page = read_page(folder)
    assert "First points" in page.text
    assert page.row("1|2", 2)[1][1] == "1.250" and page.row("0|1", 2)[1][1] == "−0.500"
    assert any(a.get("data-plots") == "first_points" for _, a in page.tags)


def test_missing_optional_files_leave_a_sentence(tmp_path):
    folder = make_run(tmp_path / "run", list("012"), pictures=())
    (folder.path / "history.jsonl").unlink()
    page = read_page(folder)
    for name in ["history.jsonl", *PICTURES]:
        assert f"({name}" in page.text
    assert not images_of(page)
    (folder.path / "predictions.csv").unlink()
    with pytest.raises(
        files.Damaged,
        match="predictions.csv is damaged: it is missing. `launch.py eval",
    ):
        html_page.write_report(folder)


def test_undefined_numbers_are_dashes(tmp_path):
    folder = make_run(tmp_path / "run", list("012"))
    one = predictions.Predictions([], np.array([1, 1]), np.array([1, 1]), None)
    plain = read_results(folder).to_json()
    plain["final"]["test"] = split_scores(one, list("012"))
    folder.write(folder.metrics, plain)
    page = read_page(folder)
    assert page.row("0", 5)[1][3] == "–"
    assert "None" not in page.text and not re.search(r"\bnan\b", page.text.lower())


def test_two_ranks_have_no_one_off_card(tmp_path):
    page = read_page(make_run(tmp_path / "run", ["no", "yes"]))
    assert "were given exactly the right rank." in page.text
    cards = [1 for tag, attributes in page.tags if attributes.get("class") == "card"]
    assert len(cards) == 3


def test_long_tables_are_folded(tmp_path):
    page = read_page(make_run(tmp_path / "run", [str(i) for i in range(17)]))
    for what in ("17 ranks", "16 boundaries", "16 margins"):
        assert f"Show all {what}" in page.text


def test_missing_results_say_what_to_do(tmp_path):
    folder = RunFolder(tmp_path)
    with pytest.raises(FileNotFoundError, match=f"{tmp_path.name} is not a run"):
        html_page.write_report(folder)
    files.write_sealed(folder.config, {})
    with pytest.raises(FileNotFoundError, match="not finished: it has no metrics.json"):
        html_page.write_report(folder)
    files.write_sealed(folder.metrics, {"ranks": ["0"], "final": {}})
    with pytest.raises(ValueError, match="metrics.json is damaged.* evaluate"):
        html_page.write_report(folder)


# --- what the scripts get ---


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


def array(text, kind="<u2"):
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
        steps = html_page._steps(above, fitted, images, h, guarantee)
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


def test_the_curve_is_that_of_all_thresholds():
    p, true = coarse(3, count=80)
    above, is_above = decisions.probability_above(p, 1), true > 1
    curve = html_page._curve(above, is_above)
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
    decision = decide.decide(run, DecisionFlags(cost=["none|mild=4"], coverage=0.8))
    data = data_of(run)  # written again
    test = predictions.read(run.path, read_results(run))["test"]
    labels = decision.apply(test.probabilities)
    assert array(data["deciding"]["saved"]).tolist() == labels.tolist()
    low, high = (array(data["images"]["sets"][end]) for end in ("low", "high"))
    share = np.mean((low <= test.true) & (test.true <= high))
    text = (run.path / html_page.NAME).read_text()
    assert "at none|mild a missed image costs 4" in Page(text).text
    assert f"<strong>{100 * share:.1f}%</strong>" in text
    mean = (high.astype(int) - low + 1).mean()
    assert f"<strong>{mean:.2f}</strong>" in text
    decide.remove(run)
    assert data_of(run)["deciding"]["saved"] is None


def test_where_nothing_can_be_decided_the_page_says_why(tmp_path):
    run = written(tmp_path / "silent", has_probabilities=False)
    data, text = data_of(run), (run.path / html_page.NAME).read_text()
    assert data["deciding"] is None and "cloc gives no probabilities" in text
    assert len(data["images"]["names"]) == 300  # the table stays


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
        for predicted, observed, (low, high), images in panel["bins"]:
            assert low <= observed <= high and 0 <= predicted <= 1 and images == 30


def test_values_that_are_not_numbers_are_gaps():
    rows = [{"train": {"loss": value}} for value in (1.0, None, float("nan"))]
    rows += [{"train": None}, {}]
    line = html_page._line("loss", [flatten(row) for row in rows], "train.loss")
    assert line["values"] == [1.0, None, None, None, None]
