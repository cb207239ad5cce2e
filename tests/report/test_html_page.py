"""The report: one safe file that holds what the run folder says."""

import base64
import dataclasses
import hashlib
import html.parser
import io
import json
import re

import numpy as np
import pytest
from finished_runs import PICTURES, change_results, finished_run
from PIL import Image

from cloc_jax.report import html_page, view
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions, metrics, predictions
from cloc_jax.scoring.results import ReadoutValues, TradeOff, read_results


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


def test_is_self_contained(tmp_path):
    folder = make_run(tmp_path / "run", list("01234"), shown=5)
    page = read_page(folder)
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
    text = (folder.path / "report.html").read_text(encoding="utf-8")
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
    ids = {attributes["id"] for tag, attributes in page.tags if tag == "section"}
    links = {attributes["href"][1:] for tag, attributes in page.tags if tag == "a"}
    assert links == ids  # every section is linked, every link leads somewhere


def test_headline_and_tables_hold_the_scores(tmp_path):
    config = {"seed": 7, "data": {"root": None, "augment": {"flip": True}}}
    folder = make_run(tmp_path / "run", list("01234"), expect="MAE ±", config=config)
    page, results = read_page(folder), read_results(folder)
    test, val = results.final["test"], results.final["val"]
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
    phases = [
        scores[split].mae
        for split in ("val", "test")
        for scores in (results.earlier["phase_one"], results.final)
    ]
    assert page.row("MAE", 5)[1][1:] == [f"{value:.3f}" for value in phases]
    assert page.row("joint (phase one)", 5)[1][1:4] == ["9", "279", "1 min 1 s"]
    assert "it was enough" in page.text
    first = [row for _, row in page.rows if row[:2] == ["joint", "1"]]
    assert first[0][2:6] == ["2.000", "42.5%", "55.0%", "52.5%"]
    assert page.row("data.augment.flip", 2)[1][1] == "true"
    assert page.row("device", 2)[1][1] == "cpu x1"


def percents(ends):
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}%"


def numbers(ends):
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def test_every_headline_has_its_interval(tmp_path):
    folder = make_run(tmp_path / "run", list("01234"), critical=["1|2"])
    page, test = read_page(folder), read_results(folder).final["test"]
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


def test_the_commonest_rank_and_the_paper_stand_beside(tmp_path):
    folder = make_run(tmp_path / "run", list("01234"), dataset="koa", critical=["1|2"])
    page, test = read_page(folder), read_results(folder).final["test"]
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
    assert page.row("CLOC in the paper", 3)[1][1:] == ["66.7%", "0.417"]
    assert "not the same split or size unless said" in page.text
    found = [row for _, row in page.rows if len(row) == 4 and "17.0%" in row]
    assert len(found) == 1 and found[0][0].strip() == "1|2"
    assert found[0][1].startswith(f"{100 * test.boundaries['1|2'].error_rate:.1f}%")
    assert found[0][2:] == ["17.0%", "9.0%"]
    assert page.row("Accuracy", 4)[1][2:] == ["66.7%", "64.3%"]


def test_published_scores_are_left_out_elsewhere(tmp_path):
    for dataset, ranks in (("synthetic", "01234"), ("koa", "012")):
        page = read_page(make_run(tmp_path / dataset, list(ranks), dataset=dataset))
        assert "paper" not in page.text.lower()
    ranks = [str(i) for i in range(28)]  # where the paper has no accuracy
    page = read_page(make_run(tmp_path / "clap", ranks, dataset="clap2015"))
    assert page.row("CLOC in the paper", 3)[1][1:] == ["–", "2.018"]
    assert "classes of 3 years" in page.text


STUDY = {
    "boundary": ["1|2"],
    "sentence": "Raising 1|2 to 0.5 <missed> fewer.",
    "notes": ["Three seeds each."],
    "columns": ["setting", "accuracy", "missed"],
    "rows": [["learned", "0.66 ± 0.01", "0.20 ± 0.02"], ["0.5", "0.64 ± 0.01", "–"]],
    "command": 'python launch.py control --boundary="1|2"',
}


@pytest.mark.parametrize("is_beside", [False, True])
@pytest.mark.parametrize(
    ("file", "picture"),
    [
        ("control.json", "control.png"),
        ("margins.json", "margins.png"),
        ("collapse.json", "collapse.png"),
    ],
)
def test_studies_are_shown(tmp_path, file, picture, is_beside):
    folder = make_run(tmp_path / "study" / "run", list("01234"), critical=["1|2"])
    assert "± 0.01" not in read_page(folder).text
    place = folder.path.parent if is_beside else folder.path
    files.write_sealed(place / file, STUDY)
    before = len(images_of(read_page(folder)))
    Image.new("RGB", (600, 300)).save(place / picture, dpi=(150, 150))
    page = read_page(folder)
    assert len(images_of(page)) == before + 1
    assert STUDY["sentence"] in page.text and STUDY["command"] in page.text
    assert page.row("learned", 3)[1] == STUDY["rows"][0]
    assert page.row("0.5", 3)[1] == STUDY["rows"][1]


def test_without_a_study_the_page_says_how_to_make_it(tmp_path):
    page = read_page(make_run(tmp_path / "a", list("01234"), critical=["2|3"]))
    assert 'python launch.py control --config=… --boundary="2|3"' in page.text
    page = read_page(make_run(tmp_path / "b", list("01234")))
    assert '--boundary="0|1"' in page.text
    assert "No boundary was named as important" in page.text


def test_decisions_and_what_they_cost_are_shown(tmp_path):
    folder = make_run(tmp_path / "run", list("012"))
    assert "Thresholds at" not in read_page(folder).text
    row = dict.fromkeys(field.name for field in dataclasses.fields(TradeOff))
    rates = {"crossing_missed_rate": 0.04, "crossing_false_alarm_rate": 0.3}
    costs = {"target": 0.05, "temperature": 1.0, "accuracy": 0.6, "mae": 0.5}
    rows = [
        TradeOff(**row | rates | costs),
        TradeOff(**row | {"target": 0.2, "temperature": 1.0}),
    ]
    change_results(folder, trade_off={"0|1": rows})
    decision = decisions.Decision(("0", "1", "2"), costs={"0|1": (5.0, 1.0)})
    files.write_sealed(folder.decision, decision.to_json())
    page = read_page(folder)
    assert "at 0|1 a missed image costs 5" in page.text
    assert "Thresholds at 0|1" in page.text
    assert page.row("5.0%", 5)[1][1:] == ["4.0%", "30.0%", "60.0%", "0.500"]
    assert page.row("20.0%", 5)[1][1:] == ["–"] * 4


def test_order_score_is_explained(tmp_path):
    page = read_page(make_run(tmp_path / "run", list("012")))
    assert "The order score is 0.812" in page.text and "Spearman" in page.text
    assert "lowest for “2” (0.583) and highest for “0” (0.750)" in page.text


def test_collapsed_margins_are_noted(tmp_path):
    margins = {"0|1": 0.019, "1|2": 0.3, "2|3": 0.0}
    folder = make_run(tmp_path / "run", list("0123"), margins=margins)
    page = read_page(folder)
    assert "Collapse: the margins of 0|1 , 2|3 fell below 0.02" in page.text
    assert view.COLLAPSED == 0.02
    kinds = {"0|1": "fixed", "1|2": "learned", "2|3": "fixed"}  # set so by hand
    fixed = {"margins": ReadoutValues("boundary", margins, kinds, 1.0)}
    change_results(folder, readouts=fixed)
    assert "Collapse" not in read_page(folder).text


def test_margins_without_influence_are_noted(tmp_path):
    folder = make_run(tmp_path / "run", list("012"))
    for violated, is_noted in (
        ({"0|1": 1.0, "1|2": 0.9995}, True),
        ({"0|1": 1.0, "1|2": None}, True),  # no triplets there
        ({"0|1": 1.0, "1|2": 0.99}, False),
        ({"0|1": None, "1|2": None}, False),
    ):
        change_results(folder, violated=violated)
        assert ("does not depend on the margins" in read_page(folder).text) == is_noted


@pytest.mark.parametrize(
    ("margins", "is_too_wide"),
    [({"0|1": 0.8, "1|2": 0.7}, True), ({"0|1": 0.75, "1|2": 0.25}, False)],
)
def test_margins_that_cannot_be_met_are_noted(tmp_path, margins, is_too_wide):
    page = read_page(make_run(tmp_path / "run", list("012"), margins=margins))
    assert ("sum to 1.500, more than the 1.000" in page.text) == is_too_wide
    assert page.row("Sum", 4)[1][2] == f"{sum(margins.values()):.3f}"


def test_nearest_images_are_the_most_doubtful_of_each_side(tmp_path):
    folder = make_run(tmp_path / "run", list("0123"), critical=["1|2"], shown=300)
    found = view.View.read(folder).nearest()
    test = predictions.read(folder.path, read_results(folder))["test"]
    above = decisions.probability_above(test.probabilities, 1)
    is_right = (test.predicted > 1) == (test.true > 1)
    ((name, sides),) = found
    assert name == "1|2"
    for side, some in (("right", is_right), ("wrong", ~is_right)):
        own = sorted(np.flatnonzero(some), key=lambda i: abs(above[i] - 0.5))
        wanted = own[: view.NEAREST]
        assert [image.item for image in sides[side]] == [test.items[i] for i in wanted]
        assert [image.probability for image in sides[side]] == above[wanted].tolist()
    page = read_page(folder)
    assert f"above: {100 * sides['wrong'][0].probability:.0f}%" in page.text
    shown = [image["alt"] for image in images_of(page)]
    assert {image.item for side in sides.values() for image in side} <= set(shown)


def test_questions_come_in_order(tmp_path):
    page = read_page(make_run(tmp_path / "run", list("01")))
    sections = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sections[:5] == ["good", "errors", "images", "trust", "decide"]
    assert sections[5:] == ["control", "network", "made"]


def test_critical_boundary_is_highlighted_and_named(tmp_path):
    folder = make_run(tmp_path / "run", list("01234"), critical=["1|2"])
    page = read_page(folder)
    assert page.row("1|2", 7)[0] == "critical" and page.row("1|2", 4)[0] == "critical"
    assert page.row("0|1", 7)[0] == "" and page.row("0|1", 4)[0] == ""
    rates = read_results(folder).final["test"].boundaries["1|2"]
    assert f"{rates.missed_count} images of “2” were called “1” (missed)" in page.text


def test_names_are_escaped(tmp_path):
    ranks = ["<b>", 'a & "b"', "'</style><script>alert(2)</script>"]
    boundary = metrics.boundary_names(ranks)[0]
    config = {"method": {"note": "<script>alert(1)</script>"}}
    folder = make_run(tmp_path / "run", ranks, critical=[boundary], config=config)
    text = html_page.write_report(folder).read_text(encoding="utf-8")
    page = Page(text)
    assert not any(tag in ("b", "i") for tag, _ in page.tags)
    kinds = [a.get("type") for tag, a in page.tags if tag == "script"]
    assert kinds == ["application/json", None]  # the data and the page's own
    assert "&lt;b&gt;" in text and "<b>" not in text
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(data)["ranks"] == ranks
    assert page.row(boundary, 7)[0] == "critical"
    assert "& <i>.png" in page.text
    assert page.row("method.note", 2)[1][1] == "<script>alert(1)</script>"


def test_one_stage_method_without_margins(tmp_path):
    pictures = [name for name in PICTURES if name != "embedding.png"]
    page = read_page(
        make_run(tmp_path / "run", list("012"), method="coral", pictures=pictures)
    )
    assert "The margins" not in page.text and "larger margin" not in page.text
    assert "Any method can be told what mistakes cost" in page.text
    assert "Phase one against the end" not in page.text
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


def test_mistakes_are_of_the_reported_split(tmp_path):
    folder = make_run(tmp_path / "run", list("012"))
    page = read_page(folder)
    test = predictions.read(folder.path, read_results(folder))["test"]
    off = np.abs(test.true - test.predicted)
    sure = test.probabilities[np.arange(len(off)), test.predicted]
    worst = np.lexsort((-sure, -off))[0]
    assert page.row(test.items[worst], 5)[1][1:] == [
        *(str(rank) for rank in (test.true[worst], test.predicted[worst])),
        str(off[worst]),
        f"{100 * sure[worst]:.1f}%",
    ]
    assert "val/" not in page.text


def test_missing_optional_files_leave_a_sentence(tmp_path):
    folder = make_run(tmp_path / "run", list("012"), pictures=())
    gone = ["history.jsonl", "config.json", "predictions.csv"]
    for name in gone:
        (folder.path / name).unlink()
    page = read_page(folder)
    for name in [*gone, *PICTURES]:
        assert f"({name}" in page.text
    assert not images_of(page)


def test_undefined_numbers_are_dashes(tmp_path):
    folder = make_run(tmp_path / "run", list("012"))
    one = metrics.ordinal_metrics([1, 1], [1, 1], list("012"))
    plain = read_results(folder).to_json() | {"final": {"test": one}}
    folder.write_metrics(plain)
    page = read_page(folder)
    assert page.row("0", 5)[1][3] == "–"
    assert "None" not in page.text and not re.search(r"\bnan\b", page.text.lower())
    assert not page.classes.get("ends") or "95% interval" not in page.text


def test_validation_stands_in_where_there_is_no_test_split(tmp_path):
    folder = make_run(tmp_path / "run", list("012"), splits=("val",))
    assert "Of 300 validation images" in read_page(folder).text


def test_two_ranks_have_no_one_off_card(tmp_path):
    page = read_page(make_run(tmp_path / "run", ["no", "yes"]))
    assert "were given exactly the right rank." in page.text
    cards = [1 for tag, attributes in page.tags if attributes.get("class") == "card"]
    assert len(cards) == 3


def test_long_tables_are_folded(tmp_path):
    page = read_page(make_run(tmp_path / "run", [str(i) for i in range(80)]))
    for what in ("80 ranks", "79 boundaries", "79 margins"):
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


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (59.97, "1 min 0 s"), (95.0, "1 min 35 s")]
    + [(3599.6, "1 h 0 min"), (7385, "2 h 3 min"), (None, "–")],
)
def test_durations(seconds, text):
    assert view.duration(seconds) == text
