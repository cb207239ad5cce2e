"""The page of the paper's tables, from summaries alone."""

import dataclasses
import re

import numpy as np
import pytest
from launching import ROOT
from paper_runs import full, setting, summary

from cloc_jax.paper import table_plans, table_rows, tables_page
from cloc_jax.paper.table_rows import Place
from cloc_jax.report import published


def page(tmp_path, summaries, **options):
    made = table_plans.write(summaries, tmp_path, **options)
    return [path.read_text() for path in made]


def rows(text, title):
    """The cells of the Markdown rows with that title."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith(f"| {title} |")
    ]


def headings(text):
    return re.findall(r"^### (.*)$", text, re.MULTILINE)


def test_the_page_in_docs_is_that_of_its_summaries(tmp_path):
    docs = ROOT / "docs" / "paper"
    text, _ = page(tmp_path, table_plans.read_merged([docs]))
    assert text == (docs / "tables.md").read_text()


def test_a_cell_is_the_mean_and_its_distance_from_the_paper(tmp_path):
    one = summary(settings={"cloc": setting(accuracy=0.7)})
    values = [run.scores["final"]["accuracy"] for run in one.settings["cloc"].runs]
    text, html = page(tmp_path, [one], only=["comparison"], data=["idrid"])
    row = rows(text, "CLOC")[0]
    assert row[1:4] == [
        "0.7379",
        f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}",
        "3",
    ]
    cell = table_rows.cell(Place("cloc", "accuracy", 0.7379), one)
    assert cell.difference == pytest.approx(np.mean(values) - 0.7379)
    low, high = cell.ends
    assert low < cell.difference < high
    # Of images alone it would be 1.96 x 0.04 to either side; seeds make it wider.
    assert high - low > 2 * 1.96 * 0.04
    shown = f"{cell.difference:+.3f}".replace("-", "−")
    assert row[4].lstrip("*").startswith(shown) and shown in html
    assert row[-1] == "20–26 + 20–26 epochs"


def test_a_difference_that_is_sure_is_marked(tmp_path):
    near = summary(settings={"cloc": setting(accuracy=0.73)})
    far = summary(settings={"cloc": setting(accuracy=0.5)})
    for one, is_apart in ((near, False), (far, True)):
        cell = table_rows.cell(Place("cloc", "accuracy", 0.7379), one)
        text, html = page(tmp_path, [one], only=["comparison"], data=["idrid"])
        assert cell.is_apart == is_apart
        assert rows(text, "CLOC")[0][4].startswith("**") == is_apart
        apart = f"{cell.difference:+.3f}".replace("-", "−")
        assert (f"<strong>{apart}</strong>" in html) == is_apart


def test_folds_count_as_runs_and_one_run_has_an_interval_of_images():
    place = Place("cloc", "accuracy", 0.7379)
    # With folds each run has other images.
    folds = summary(settings={"cloc": setting(images_variance=None)})
    low, high = table_rows.cell(place, folds).ends
    assert high - low < 0.2
    single = table_rows.cell(place, summary(settings={"cloc": setting(seeds=1)}))
    low, high = single.ends
    assert single.std is None
    assert high - low == pytest.approx(2 * 1.96 * 0.04, abs=1e-3)


def test_every_table_has_its_rows(tmp_path):
    text, html = page(tmp_path, [full()], data=["idrid", "clap2015"])
    for title in table_rows.TABLES.values():
        assert f"## {title}" in text and f"<h2>{title}</h2>" in html
    for title, number in (
        ("CLOC, critical margin fixed", "0.7087"),
        ("Shared margin, phase one", "0.6893"),
        ("1\\|2 (critical)", "0.0270"),
        ("CLOC, phase one", "0.6500"),
        # 28 classes of 3 years, of which there are no runs here.
        ("CLOC, 28 classes of 3 years", "2.0180"),
    ):
        assert rows(text, title)[0][1] == number
    assert len(rows(text, "CLOC, critical margin fixed")) == 1
    assert rows(text, "Shared margin, phase one")[0][-1] == "20–26 epochs"
    assert rows(text, "VGG16")[0][1:3] != ["0.7476", ""]
    assert rows(text, "VGG16")[0][-1].endswith("vgg16")
    assert rows(text, "DenseNet-121")[0][1:3] == ["0.6990", ""]  # not trained
    assert "the weights were not found" in text and "the weights were not found" in html


def test_backbones_stand_in_their_own_rows_whichever_is_missing(tmp_path):
    dense = setting(accuracy=0.61, encoder="densenet121")
    # Runs on the usual encoder are to come.
    made = summary(settings={"cloc on densenet121": dense}, encoder="densenet121")
    text, _ = page(tmp_path, [made], data=["idrid"])
    assert rows(text, "DenseNet-121")[0][2].startswith("0.6")
    assert rows(text, "ResNet-50")[0][2] == ""


def test_time_is_per_hundred_epochs_of_each_stage():
    one = summary(settings={"cloc": setting(), "ce": setting(phases=1)})
    per = [1000 / epochs * 100 / 3600 for epochs in (20, 23, 26)]
    both, first, alone = (
        table_rows.cell(place, one)
        for place in (
            Place("cloc", table_rows.HOURS, 1.19),
            Place("cloc", table_rows.HOURS, 0.65, stage="phase one"),
            Place("ce", table_rows.HOURS),
        )
    )
    assert both.mean == pytest.approx(2 * np.mean(per))
    assert first.mean == alone.mean == pytest.approx(np.mean(per))
    assert both.difference is None  # another machine


def test_an_absent_dataset_leaves_cells_empty_and_says_how_to_get_it(tmp_path):
    how = "BRACS is not here: get it from there, and add --root=bracs=DIR."
    text, html = page(tmp_path, [full()], only=["comparison"], absent={"bracs": how})
    assert headings(text)[0].startswith("IDRiD")  # what has runs comes first
    assert how in text and how in html
    bracs = text.partition("### BRACS")[2].partition("### ")[0]
    assert rows(bracs, "CLOC")[0][1:4] == ["0.6035", "", ""]
    assert not rows(bracs, "Cross-entropy")


def test_quoted_cells_are_marked(tmp_path):
    text, _ = page(tmp_path, [], only=["comparison"])
    marked = re.findall(r"^\| (\w+) \| [\d.]+ †", text, re.MULTILINE)
    assert marked == ["ORCNN", "POE", "GOL", "MWR"] * 2  # Adience and HID
    assert published.document()["quoted"]["why"] in text


def test_what_differs_from_the_paper_is_said():
    koa = full("koa", size=(72, 120), images={"train": 5778, "val": 826, "test": 1656})
    for made, parts in (
        (
            koa,
            (
                "826 shipped images are kept apart",
                "72x120, not 120x200",
                "before layer4, with 4 kept views",
                "at most 60 per phase, where the paper has 500",
            ),
        ),
        (
            full("idrid", "whole"),
            (
                "41 of 413 training images",
                "224x224, as in",
                "Frozen parts: none",
            ),
        ),
        (full("idrid", "frozen"), ("Frozen parts: the whole encoder",)),
    ):
        said = " ".join(tables_page.common_differences(made))
        assert all(part in said for part in parts), said


def test_precision_batches_and_devices_of_single_rows_are_said(tmp_path):
    one = full()
    ce = {"dtype": "bfloat16", "device": "cpu x1", "batch_size": 64}
    one.settings["ce"] = dataclasses.replace(one.settings["ce"], **ce)
    text, _ = page(tmp_path, [one], only=["comparison", "time"], data=["idrid"])
    compared, timed = rows(text, "Cross-entropy")
    assert compared[-1] == "20–26 epochs, batches of 64, in bfloat16"
    assert timed[-1] == "20–26 epochs, batches of 64, in bfloat16, on cpu x1"
    assert "float" not in rows(text, "CLOC")[0][-1]
    assert "Ours: cpu x2, where not said otherwise." in text
    assert "one program" not in text
    one.settings["ce"] = dataclasses.replace(one.settings["ce"], together=3)
    assert "one program" in page(tmp_path, [one], only=["time"])[0]


def test_margins_without_influence_are_noted(tmp_path):
    said = "does not depend on the margins"

    def violating(violated):
        one = full()
        for name, found in one.settings.items():
            runs = tuple(dataclasses.replace(r, violated=violated) for r in found.runs)
            one.settings[name] = dataclasses.replace(found, runs=runs)
        return one

    text, html = page(tmp_path, [violating({"0|1": 1.0, "1|2": 0.9999})])
    assert text.count(said) == html.count(said) == 3  # not in the comparison
    for violated in ({"0|1": 0.9, "1|2": 0.9999}, {}):
        assert said not in page(tmp_path, [violating(violated)])[0]


def test_protocols_stand_below_each_other(tmp_path):
    few = summary("idrid", "whole", {"cloc": setting()})
    text, _ = page(tmp_path, [full(), few], only=["comparison"], data=["idrid"])
    assert headings(text) == [
        "IDRiD, partly trained encoder",
        "IDRiD, whole network trained",
    ]
    # The second block has only rows with runs.
    assert len(rows(text, "CLOC")) == 2 and len(rows(text, "ORCNN")) == 1


def test_runs_that_are_missing_for_one_reason_stand_together(tmp_path):
    why = "no weights; try again"
    one = full(fields={"unfinished": {"a": why, "b": "lost", "<b>c</b>": why}})
    text, html = page(tmp_path, [one], data=["idrid"])
    assert "- `a, <b>c</b>`: no weights\n- `b`: lost\n" in text
    assert "<code>a, &lt;b&gt;c&lt;/b&gt;</code>: no weights" in html
    # The page needs nothing else.
    assert not re.search(r"<(script|link|img|iframe)\b|url\(|@import", html)


def test_ranks_of_our_own_are_not_held_against_the_paper():
    merged = {"ranks": ("0", "1", "2", "3")}  # two grades are one
    one = summary("koa", settings={"cloc": setting()}, fields=merged)
    grid = table_rows.grid("controllability", "koa", one)
    assert all(place.paper is None for row in grid.rows for place in row.places)
