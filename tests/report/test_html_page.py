"""The report: one safe file that holds what the run folder says."""

import base64
import csv
import hashlib
import html.parser
import io
import json
import re

import numpy as np
import pytest
from PIL import Image

from cloc_jax.report import html_page, written_numbers
from cloc_jax.runtime import files
from cloc_jax.scoring import decisions, intervals, metrics

IMAGES = (
    "confusion.png",
    "calibration.png",
    "curves.png",
    "margins.png",
    "embedding.png",
    "similarity.png",
    "nearest_0.jpg",
)


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


def split_scores(ranks, seed, count=400):
    rng = np.random.default_rng(seed)
    true = rng.integers(len(ranks), size=count)
    predicted = np.clip(true + rng.integers(-2, 3, size=count) // 2, 0, len(ranks) - 1)
    probabilities = np.full((count, len(ranks)), 0.5 / len(ranks))
    probabilities[np.arange(count), predicted] += 0.5
    scores = metrics.ordinal_metrics(true, predicted, ranks, probabilities)
    names = metrics.boundary_names(ranks)
    return scores | {"intervals": intervals.of_scores(scores["confusion"], names)}


def make_run(
    folder,
    ranks,
    *,
    method="cloc",
    dataset="synthetic",
    critical=(),
    margins=None,
    skip=(),
):
    """A run folder as training leaves it; `skip` names files to leave out."""
    folder.mkdir(exist_ok=True)
    names = metrics.boundary_names(ranks)
    is_cloc = method == "cloc"
    margins = margins or ({name: 0.2 for name in names} if is_cloc else {})
    readout = {
        "per": "boundary",
        "values": margins,
        "kinds": {name: "learned" for name in margins},
        "limit": 1.0,
    }
    scores = {
        "method": method,
        "dataset": dataset,
        "ranks": ranks,
        "critical": list(critical),
        "final": {"val": split_scores(ranks, 2), "test": split_scores(ranks, 3, 600)},
        "order_score": {
            "overall": 0.8125,
            "by_rank": {rank: 0.5 + 0.25 / (1 + i) for i, rank in enumerate(ranks)},
            "images": 600,
        },
        "margins": margins,
        "readouts": {"margins": readout} if is_cloc else {},
        "stages": [
            {
                "name": "joint" if is_cloc else "train",
                "epochs": 9,
                "steps": 279,
                "stop_rule": "train_accuracy",
                "stop_reason": "train accuracy 0.953 reached 0.95",
                "seconds": 61.2,
            }
        ],
        "seconds": {"total": 95.0},
        "expect": "MAE 0.30 ± 0.02",
        "environment": {"jax": "0.10.2", "device": "cpu x1"},
    }
    if is_cloc:
        scores["phase_one"] = {
            "val": split_scores(ranks, 0),
            "test": split_scores(ranks, 1, 600),
        }
        refine = {"name": "refine", "epochs": 6, "steps": 186, "stop_rule": "patience"}
        scores["stages"].append(refine | {"stop_reason": "no gain", "seconds": 30.1})
    row = {
        "stage": "joint",
        "epoch": 1,
        "train": {"loss": 1.234, "accuracy": 0.47},
        "train_eval": {"accuracy": 0.5},
        "val": {"accuracy": 0.4321, "mae": 0.7, "qwk": None},
        "readouts": {"margins": margins} if is_cloc else {},
        "seconds": 6.5,
    }
    config = {
        "seed": 7,
        "data": {"root": None, "augment": {"flip": True}},
        "method": {"name": method, "note": "<script>alert(1)</script>"},
    }
    written = {"metrics.json": scores, "history.jsonl": row, "config.json": config}
    for name, value in written.items():
        if name not in skip:
            text = json.dumps(files.sealed(value)) + "\n"
            (folder / name).write_text(text, encoding="utf-8")
    if "predictions.csv" not in skip:
        with (folder / "predictions.csv").open("w", newline="") as file:
            writer = csv.writer(file)
            writer.writerow(
                ["item", "split", "true", "predicted", *[f"p_{r}" for r in ranks]]
            )
            sure = [0.9] + [0.1 / (len(ranks) - 1)] * (len(ranks) - 1)
            writer.writerow(["far & off.png", "test", ranks[-1], ranks[0], *sure])
            writer.writerow(["right.png", "test", ranks[0], ranks[0], *sure])
            writer.writerow(["other split.png", "val", ranks[-1], ranks[0], *sure])
    for name in IMAGES:
        if name not in skip and (is_cloc or name != "margins.png"):
            image = Image.new("RGB", (300, 150), "white")
            image.save(folder / name, dpi=(150, 150))
    return scores


def read_page(folder):
    path = html_page.write_report(folder)
    assert path == folder / "report.html"
    return Page(path.read_text(encoding="utf-8"))


def test_is_self_contained(tmp_path):
    make_run(tmp_path, list("01234"))
    page = read_page(tmp_path)
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
    text = (tmp_path / "report.html").read_text(encoding="utf-8")
    assert "@import" not in text
    scripts = re.findall(r"<script>(.*?)</script>", text, re.DOTALL)
    mark = base64.b64encode(hashlib.sha256(scripts[0].encode()).digest()).decode()
    policy = next(a["content"] for tag, a in page.tags if "http-equiv" in a)
    assert len(scripts) == 1 and f"script-src 'sha256-{mark}';" in policy
    assert "default-src 'none'" in policy
    assert "Permission is hereby granted" in scripts[0]  # uPlot's licence
    assert "url(" not in text
    images = [attributes for tag, attributes in page.tags if tag == "img"]
    assert len(images) == len(IMAGES)
    assert all(image["alt"] and image["width"] == "192" for image in images)
    ids = {attributes["id"] for tag, attributes in page.tags if tag == "section"}
    links = {attributes["href"][1:] for tag, attributes in page.tags if tag == "a"}
    assert links == ids  # every section is linked, every link leads somewhere


def test_headline_and_tables_hold_the_scores(tmp_path):
    scores = make_run(tmp_path, list("01234"))
    page = read_page(tmp_path)
    test, val = scores["final"]["test"], scores["final"]["val"]
    assert (
        f"Of 600 test images, {100 * test['accuracy']:.1f}% were given exactly the "
        f"right rank and {100 * test['one_off_accuracy']:.1f}% were at most one rank "
        "off."
    ) in page.text
    assert f"{test['mae']:.3f}" in page.text and f"{test['qwk']:.3f}" in page.text
    assert f"validation {val['mae']:.3f}" in page.text
    assert "MAE 0.30 ± 0.02" in page.text
    for i, rank in enumerate(scores["ranks"]):
        assert page.row(rank, 5)[1][1:] == [
            str(test["true_counts"][rank]),
            str(test["confusion"][i][i]),
            f"{100 * test['recall'][rank]:.1f}%",
            str(test["predicted_counts"][rank]),
        ]
    for name, boundary in test["boundaries"].items():
        assert page.row(name, 7)[1][1:] == [
            f"{100 * boundary['error_rate']:.1f}%",
            f"{boundary['missed_count']} {100 * boundary['missed_rate']:.1f}%",
            f"{boundary['false_alarm_count']} "
            f"{100 * boundary['false_alarm_rate']:.1f}%",
            f"{100 * boundary['crossing_rate']:.1f}%",
            f"{100 * boundary['crossing_missed_rate']:.1f}%",
            f"{100 * boundary['crossing_false_alarm_rate']:.1f}%",
        ]
    phases = [
        scores[p][s]["mae"] for s in ("val", "test") for p in ("phase_one", "final")
    ]
    assert page.row("MAE", 5)[1][1:] == [f"{value:.3f}" for value in phases]
    assert page.row("joint (phase one)", 5)[1][1:4] == ["9", "279", "1 min 1 s"]
    assert "train accuracy 0.953 reached 0.95" in page.text
    assert page.row("joint", 8)[1][2:6] == ["1.234", "47.0%", "50.0%", "43.2%"]
    assert page.row("data.augment.flip", 2)[1][1] == "true"
    assert page.row("device", 2)[1][1] == "cpu x1"


def percents(ends):
    return f"{100 * ends[0]:.1f} to {100 * ends[1]:.1f}%"


def numbers(ends):
    return f"{ends[0]:.3f} to {ends[1]:.3f}"


def test_every_headline_has_its_interval(tmp_path):
    scores = make_run(tmp_path, list("01234"), critical=["1|2"])
    page = read_page(tmp_path)
    test = scores["final"]["test"]
    ends = test["intervals"]
    written = [percents(ends["accuracy"]), numbers(ends["mae"])]
    written += [numbers(ends["qwk"]), percents(ends["one_off_accuracy"])]
    shown = page.classes["ends"]
    assert shown[:4] == written
    rates, rate_ends = test["boundaries"]["1|2"], ends["boundaries"]["1|2"]
    assert page.row("1|2", 5)[1][1:] == [
        f"{100 * rates[name]:.1f}% {percents(rate_ends[name])}"
        for name in (
            "missed_rate",
            "false_alarm_rate",
            "crossing_missed_rate",
            "crossing_false_alarm_rate",
        )
    ]


def test_runs_without_intervals_have_none(tmp_path):
    scores = make_run(tmp_path, list("012"), critical=["0|1"])
    for split in scores["final"].values():
        del split["intervals"]
    del scores["order_score"]
    files.write_sealed(tmp_path / "metrics.json", scores)
    page = read_page(tmp_path)
    assert not page.classes.get("ends") and "95% interval" not in page.text
    assert "has no order score" in page.text
    assert "%" in page.row("0|1", 5)[1][1]


def test_the_commonest_rank_and_the_paper_stand_beside(tmp_path):
    scores = make_run(tmp_path, list("01234"), dataset="koa", critical=["1|2"])
    page = read_page(tmp_path)
    test = scores["final"]["test"]
    ends = test["intervals"]
    assert page.row("This run", 3)[1][1:] == [
        f"{100 * test['accuracy']:.1f}% {percents(ends['accuracy'])}",
        f"{test['mae']:.3f} {numbers(ends['mae'])}",
    ]
    true = np.repeat(np.arange(5), list(test["true_counts"].values()))
    commonest = np.bincount(true).argmax()
    assert page.row(f"Always the commonest rank, “{commonest}”", 3)[1][1:] == [
        f"{100 * np.mean(true == commonest):.1f}%",
        f"{np.mean(np.abs(true - commonest)):.3f}",
    ]
    assert page.row("CLOC in the paper", 3)[1][1:] == ["66.7%", "0.417"]
    assert "not the same split or size unless said" in page.text
    rates = test["boundaries"]["1|2"]
    found = [row for _, row in page.rows if len(row) == 4 and "17.0%" in row]
    assert len(found) == 1 and found[0][0].strip() == "1|2"
    assert found[0][1].startswith(f"{100 * rates['error_rate']:.1f}%")
    assert found[0][2:] == ["17.0%", "9.0%"]
    assert page.row("Accuracy", 4)[1][2:] == ["66.7%", "64.3%"]


def test_published_scores_are_left_out_elsewhere(tmp_path):
    for dataset, ranks in (("synthetic", "01234"), ("koa", "012")):
        make_run(tmp_path, list(ranks), dataset=dataset)
        page = read_page(tmp_path)
        assert "paper" not in page.text.lower()


def test_the_paper_where_it_has_no_accuracy(tmp_path):
    make_run(tmp_path, [str(i) for i in range(28)], dataset="clap2015")
    page = read_page(tmp_path)
    assert page.row("CLOC in the paper", 3)[1][1:] == ["–", "2.018"]
    assert "classes of 3 years" in page.text


STUDY = {
    "boundary": ["1|2"],
    "sentence": "Raising 1|2 to 0.5 <missed> fewer.",
    "warnings": ["A margin & more."],
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
        ("margins.json", "margin_study.png"),
        ("collapse.json", "collapse.png"),
    ],
)
def test_studies_are_shown(tmp_path, file, picture, is_beside):
    run = tmp_path / "study" / "run"
    run.parent.mkdir()
    make_run(run, list("01234"), critical=["1|2"])
    assert "± 0.01" not in read_page(run).text
    place = run if not is_beside else run.parent
    files.write_sealed(place / file, STUDY)
    before = sum(tag == "img" for tag, _ in read_page(run).tags)
    Image.new("RGB", (600, 300)).save(place / picture, dpi=(150, 150))
    page = read_page(run)
    assert sum(tag == "img" for tag, _ in page.tags) == before + 1
    assert STUDY["sentence"] in page.text and STUDY["command"] in page.text
    assert page.row("learned", 3)[1] == STUDY["rows"][0]
    assert page.row("0.5", 3)[1] == STUDY["rows"][1]
    has_warning = file == "margins.json"
    assert (STUDY["warnings"][0] in page.text) == has_warning


def test_without_a_study_the_page_says_how_to_make_it(tmp_path):
    make_run(tmp_path / "run", list("01234"), critical=["2|3"])
    page = read_page(tmp_path / "run")
    assert 'python launch.py control --config=… --boundary="2|3"' in page.text
    make_run(tmp_path / "run", list("01234"))
    page = read_page(tmp_path / "run")
    assert '--boundary="0|1"' in page.text
    assert "No boundary was named as important" in page.text


def test_decisions_and_what_they_cost_are_shown(tmp_path):
    scores = make_run(tmp_path, list("012"))
    assert "Thresholds at" not in read_page(tmp_path).text
    rates = {
        "crossing_missed_rate": 0.04,
        "crossing_false_alarm_rate": 0.3,
        "accuracy": 0.6,
        "mae": 0.5,
    }
    rows = [{"target": 0.05, **rates}, {"target": 0.2, **dict.fromkeys(rates)}]
    scores["trade_off"] = {"0|1": rows}
    files.write_sealed(tmp_path / "metrics.json", scores)
    decision = decisions.Decision(("0", "1", "2"), costs={"0|1": (5.0, 1.0)})
    files.write_sealed(tmp_path / "decision.json", decision.to_json())
    page = read_page(tmp_path)
    assert "at 0|1 a missed image costs 5" in page.text
    assert "Thresholds at 0|1" in page.text
    assert page.row("5.0%", 5)[1][1:] == ["4.0%", "30.0%", "60.0%", "0.500"]
    assert page.row("20.0%", 5)[1][1:] == ["–"] * 4


def test_order_score_is_explained(tmp_path):
    make_run(tmp_path, list("012"))
    page = read_page(tmp_path)
    assert "The order score is 0.812" in page.text and "Spearman" in page.text
    assert "lowest for “2” (0.583) and highest for “0” (0.750)" in page.text


def test_collapsed_margins_are_noted(tmp_path):
    margins = {"0|1": 0.019, "1|2": 0.3, "2|3": 0.0}
    scores = make_run(tmp_path, list("0123"), margins=margins)
    page = read_page(tmp_path)
    assert "Collapse: the margins of 0|1 , 2|3 fell below 0.02" in page.text
    kinds = scores["readouts"]["margins"]["kinds"]
    kinds |= {"0|1": "fixed", "2|3": "fixed"}  # set so by hand
    files.write_sealed(tmp_path / "metrics.json", scores)
    assert "Collapse" not in read_page(tmp_path).text


def test_margins_without_influence_are_noted(tmp_path):
    scores = make_run(tmp_path, list("012"), margins={"0|1": 0.5, "1|2": 0.6})
    for violated, is_noted in (
        ({"0|1": 1.0, "1|2": 0.9995}, True),
        ({"0|1": 1.0, "1|2": None}, True),  # no triplets there
        ({"0|1": 1.0, "1|2": 0.99}, False),
        ({"0|1": None, "1|2": None}, False),
    ):
        scores["violated"] = violated
        files.write_sealed(tmp_path / "metrics.json", scores)
        assert (
            "does not depend on the margins" in read_page(tmp_path).text
        ) == is_noted


def test_pictures_of_boundaries_come_with_their_names(tmp_path):
    ranks = list("0123")
    make_run(tmp_path, ranks, skip=["nearest_0.jpg"])
    for h in (0, 2):
        image = Image.new("RGB", (300, 150), "white")
        image.save(tmp_path / f"nearest_{h}.jpg", dpi=(150, 150))
    page = read_page(tmp_path)
    alts = [a["alt"] for tag, a in page.tags if tag == "img"]
    named = [alt for alt in alts if "nearest the boundary" in alt]
    assert [alt.split()[-1] for alt in named] == ["0|1", "2|3"]


def test_questions_come_in_order(tmp_path):
    make_run(tmp_path, list("01"))
    page = read_page(tmp_path)
    sections = [attributes["id"] for tag, attributes in page.tags if tag == "section"]
    assert sections[:5] == ["good", "errors", "images", "trust", "decide"]
    assert sections[5:] == ["control", "network", "made"]


def test_critical_boundary_is_highlighted_and_named(tmp_path):
    scores = make_run(tmp_path, list("01234"), critical=["1|2"])
    page = read_page(tmp_path)
    assert page.row("1|2", 7)[0] == "critical" and page.row("1|2", 4)[0] == "critical"
    assert page.row("0|1", 7)[0] == "" and page.row("0|1", 4)[0] == ""
    boundary = scores["final"]["test"]["boundaries"]["1|2"]
    assert (
        f"{boundary['missed_count']} images of “2” were called “1” (missed)"
    ) in page.text


def test_names_are_escaped(tmp_path):
    ranks = ["<b>", 'a & "b"', "'</style><script>alert(2)</script>"]
    boundary = metrics.boundary_names(ranks)[0]
    make_run(tmp_path, ranks, critical=[boundary])
    text = html_page.write_report(tmp_path).read_text(encoding="utf-8")
    page = Page(text)
    assert not any(tag == "b" for tag, _ in page.tags)
    kinds = [a.get("type") for tag, a in page.tags if tag == "script"]
    assert kinds == ["application/json", None]  # the data and the page's own
    assert "&lt;b&gt;" in text and "<b>" not in text
    data = re.search(r'id="data">(.*?)</script>', text, re.DOTALL)[1]
    assert json.loads(data)["ranks"] == ranks
    assert page.row(boundary, 7)[0] == "critical"
    assert "far & off.png" in page.text
    assert page.row("method.note", 2)[1][1] == "<script>alert(1)</script>"


def test_one_stage_method_without_margins(tmp_path):
    make_run(tmp_path, list("012"), method="coral", skip=["embedding.png"])
    page = read_page(tmp_path)
    assert "The margins" not in page.text and "larger margin" not in page.text
    assert "Any method can be told what mistakes cost" in page.text
    assert "Phase one against the end" not in page.text
    assert "no map of the embeddings" in page.text
    assert len([tag for tag, _ in page.tags if tag == "img"]) == len(IMAGES) - 2


def test_readouts_of_other_methods_have_a_table_and_a_picture(tmp_path):
    scores = make_run(tmp_path, list("012"), method="clm")
    values = {"0|1": -0.5, "1|2": 1.25}
    scores["readouts"] = {"first_thresholds": {"per": "boundary", "values": values}}
    files.write_sealed(tmp_path / "metrics.json", scores)
    image = Image.new("RGB", (300, 150), "white")
    image.save(tmp_path / "first_thresholds.png", dpi=(150, 150))
    page = read_page(tmp_path)
    assert "First thresholds" in page.text
    assert page.row("1|2", 2)[1][1] == "1.250" and page.row("0|1", 2)[1][1] == "−0.500"
    alts = [a["alt"] for tag, a in page.tags if tag == "img"]
    assert "First thresholds against epoch" in alts


def test_margins_beyond_the_limit_are_noted(tmp_path):
    wide = {"0|1": 0.75, "1|2": 0.5}
    make_run(tmp_path, list("012"), margins=wide)
    page = read_page(tmp_path)
    assert "The margins sum to 1.250, more than the 1.000" in page.text
    assert page.row("0|1", 4)[1][1:3] == ["learned", "0.750"]
    assert "compare several seeds" in page.text
    make_run(tmp_path, list("012"), margins={"0|1": 0.75, "1|2": 0.25})
    assert "more than the" not in read_page(tmp_path).text


def test_mistakes_are_of_the_reported_split(tmp_path):
    make_run(tmp_path, list("012"))
    page = read_page(tmp_path)
    assert page.row("far & off.png", 5)[1][1:] == ["2", "0", "2", "90.0%"]
    assert "right.png" not in page.text and "other split.png" not in page.text


def test_missing_optional_files_leave_a_sentence(tmp_path):
    skip = ["history.jsonl", "config.json", "predictions.csv"]
    make_run(tmp_path, list("012"), skip=[*skip, *IMAGES])
    page = read_page(tmp_path)
    for name in [*skip, *IMAGES]:
        assert f"({name}" in page.text
    assert not any(tag == "img" for tag, _ in page.tags)


def test_undefined_numbers_are_dashes(tmp_path):
    scores = make_run(tmp_path, list("012"))
    one = metrics.ordinal_metrics([1, 1], [1, 1], list("012"))
    scores["final"] = {"test": one}
    files.write_sealed(tmp_path / "metrics.json", scores)
    page = read_page(tmp_path)
    assert page.row("0", 5)[1][3] == "–"
    assert "None" not in page.text and not re.search(r"\bnan\b", page.text.lower())


def test_validation_stands_in_where_there_is_no_test_split(tmp_path):
    scores = make_run(tmp_path, list("012"))
    del scores["final"]["test"]
    files.write_sealed(tmp_path / "metrics.json", scores)
    assert "Of 400 validation images" in read_page(tmp_path).text


def test_two_ranks_have_no_one_off_card(tmp_path):
    make_run(tmp_path, ["no", "yes"])
    page = read_page(tmp_path)
    assert "were given exactly the right rank." in page.text
    cards = [1 for tag, attributes in page.tags if attributes.get("class") == "card"]
    assert len(cards) == 3


def test_long_tables_are_folded(tmp_path):
    make_run(tmp_path, [str(i) for i in range(80)])
    page = read_page(tmp_path)
    for what in ("80 ranks", "79 boundaries", "79 margins"):
        assert f"Show all {what}" in page.text


def test_missing_metrics_say_what_to_do(tmp_path):
    with pytest.raises(FileNotFoundError, match=f"{tmp_path.name} is not a run"):
        html_page.write_report(tmp_path)
    files.write_sealed(tmp_path / "config.json", {})
    with pytest.raises(FileNotFoundError, match="not finished: it has no metrics.json"):
        html_page.write_report(tmp_path)
    files.write_sealed(tmp_path / "metrics.json", {"ranks": ["0"], "final": {}})
    with pytest.raises(ValueError, match="neither"):
        html_page.write_report(tmp_path)


@pytest.mark.parametrize(
    ("seconds", "text"),
    [(0.04, "0.0 s"), (59.94, "59.9 s"), (59.97, "1 min 0 s"), (95.0, "1 min 35 s")]
    + [(3599.6, "1 h 0 min"), (7385, "2 h 3 min"), (None, "–")],
)
def test_durations(seconds, text):
    assert written_numbers.duration(seconds) == text
