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
    return table_plans.write(summaries, tmp_path, **options).read_text()


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
    text = page(tmp_path, table_plans.read_merged([docs]))
    assert text == (docs / "tables.md").read_text()


@pytest.mark.parametrize(("accuracy", "is_apart"), [(0.73, False), (0.5, True)])
def test_a_cell_is_the_mean_and_its_distance_from_the_paper(
    tmp_path, accuracy, is_apart
):
    one = summary(settings={"cloc": setting(accuracy=accuracy)})
    values = [run.scores["final"]["accuracy"] for run in one.settings["cloc"].runs]
    row = rows(page(tmp_path, [one], only=["comparison"], data=["idrid"]), "CLOC")[0]
    ours = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    assert row[1:4] == ["0.7379", ours, "3"]
    cell = table_rows.cell(Place("cloc", "accuracy", 0.7379), one)
    assert cell.difference == pytest.approx(np.mean(values) - 0.7379)
    low, high = cell.ends
    assert low < cell.difference < high
    # Of images alone it would be 1.96 x 0.04 to either side; seeds make it wider.
    assert high - low > 2 * 1.96 * 0.04
    shown = f"{cell.difference:+.3f}".replace("-", "−")
    assert cell.is_apart == is_apart
    assert row[4].startswith(f"**{shown}** [" if is_apart else f"{shown} [")
    assert row[-1] == "20–26 + 20–26 epochs"


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
    text = page(tmp_path, [full()], data=["idrid", "clap2015"])
    for table in table_rows.TABLES.values():
        assert f"## {table.title}" in text
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
    assert "the weights were not found" in text


def test_backbones_stand_in_their_own_rows_whichever_is_missing(tmp_path):
    dense = setting(accuracy=0.61, encoder="densenet121")
    # Runs on the usual encoder are to come.
    made = summary(settings={"cloc on densenet121": dense}, encoder="densenet121")
    text = page(tmp_path, [made], data=["idrid"])
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
    text = page(tmp_path, [full()], only=["comparison"], absent={"bracs": how})
    assert headings(text)[0].startswith("IDRiD")  # what has runs comes first
    assert how in text
    bracs = text.partition("### BRACS")[2].partition("### ")[0]
    assert rows(bracs, "CLOC")[0][1:4] == ["0.6035", "", ""]
    assert not rows(bracs, "Cross-entropy")
    # Cells that the paper seems to quote are marked, of Adience and HID.
    marked = re.findall(r"^\| (\w+) \| [\d.]+ †", text, re.MULTILINE)
    assert marked == ["ORCNN", "POE", "GOL", "MWR"] * 2
    assert published.document()["quoted"]["why"] in text


def test_what_differs_from_the_paper_is_said(tmp_path):
    koa = full("koa", size=(72, 120), images={"train": 5778, "val": 826, "test": 1656})
    for made, *parts in (
        (
            koa,
            "826 shipped images are kept apart",
            "72x120, not 120x200",
            "before layer4, with 4 kept views",
            "at most 60 per phase, where the paper has 500",
        ),
        (
            full("idrid", "whole"),
            "41 of 413 training images",
            "224x224, as in",
            "Frozen parts: none",
        ),
        (full("idrid", "frozen"), "Frozen parts: the whole encoder"),
    ):
        said = " ".join(tables_page.common_differences(made))
        assert all(part in said for part in parts), said
    one = full()
    ce = {"dtype": "bfloat16", "device": "cpu x1", "batch_size": 64, "together": 3}
    one.settings["ce"] = dataclasses.replace(one.settings["ce"], **ce)
    text = page(tmp_path, [one], only=["comparison", "time"], data=["idrid"])
    compared, timed = rows(text, "Cross-entropy")
    assert compared[-1] == "20–26 epochs, batches of 64, in bfloat16"
    assert timed[-1] == "20–26 epochs, batches of 64, in bfloat16, on cpu x1"
    assert "float" not in rows(text, "CLOC")[0][-1]
    assert "Ours: cpu x2, where not said otherwise." in text
    assert "one program" in text
    assert "one program" not in page(tmp_path, [full()], only=["time"])


@pytest.mark.parametrize(
    ("violated", "count"),
    [
        ({"0|1": 1.0, "1|2": 0.9999}, 3),  # not in the comparison
        ({"0|1": 0.9, "1|2": 0.9999}, 0),
        ({}, 0),
    ],
)
def test_margins_without_influence_are_noted(tmp_path, violated, count):
    one = full()
    for name, found in one.settings.items():
        runs = tuple(dataclasses.replace(r, violated=violated) for r in found.runs)
        one.settings[name] = dataclasses.replace(found, runs=runs)
    assert page(tmp_path, [one]).count("does not depend on the margins") == count


def test_protocols_stand_below_each_other(tmp_path):
    few = summary("idrid", "whole", {"cloc": setting()})
    text = page(tmp_path, [full(), few], only=["comparison"], data=["idrid"])
    assert headings(text) == [
        "IDRiD, partly trained encoder",
        "IDRiD, whole network trained",
    ]
    # The second block has only rows with runs.
    assert len(rows(text, "CLOC")) == 2 and len(rows(text, "ORCNN")) == 1


def test_runs_that_are_missing_for_one_reason_stand_together(tmp_path):
    why = "no weights; try again"
    one = full(fields={"unfinished": {"a": why, "b": "lost", "c": why}})
    text = page(tmp_path, [one], data=["idrid"])
    assert "- `a, c`: no weights\n- `b`: lost\n" in text


def test_ranks_of_our_own_are_not_held_against_the_paper():
    merged = {"ranks": ("0", "1", "2", "3")}  # two grades are one
    one = summary("koa", settings={"cloc": setting()}, fields=merged)
    found = table_rows.TABLES["controllability"].rows("koa", one)
    assert len(found) == 4
    assert all(place.paper is None for row in found for place in row.places)
