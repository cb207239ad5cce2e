"""The page of the paper's tables, from summaries alone."""

import json
import re

import numpy as np
import pytest
from table_summaries import full, setting, summary

from cloc_jax.paper import table_cells, table_rows, tables_page
from cloc_jax.paper.table_rows import Place
from cloc_jax.report import published


def page(tmp_path, summaries, **options):
    found = tables_page.sections(summaries, **options)
    tables_page.write(tmp_path, found, summaries)
    texts = [
        (tmp_path / name).read_text()
        for name in (tables_page.MARKDOWN, tables_page.HTML)
    ]
    return found, *texts


def rows(text, title):
    """The cells of the first Markdown row with that title below each heading."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith(f"| {title} |")
    ]


def test_a_cell_is_the_mean_and_its_distance_from_the_paper(tmp_path):
    one = summary(settings={"cloc": setting(accuracy=0.7)})
    values = [
        run["scores"]["final"]["accuracy"] for run in one["settings"]["cloc"]["runs"]
    ]
    _, text, html = page(tmp_path, [one], only=["comparison"], data=["idrid"])
    row = rows(text, "CLOC")[0]
    assert row[1:4] == [
        "0.7379",
        f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}",
        "3",
    ]
    cell = table_cells.cell(Place("cloc", "accuracy", 0.7379), one)
    assert cell.difference == pytest.approx(np.mean(values) - 0.7379)
    assert cell.low < cell.difference < cell.high
    # Of images alone it would be 1.96 x 0.04 to either side; seeds make it wider.
    assert cell.high - cell.low > 2 * 1.96 * 0.04
    shown = f"{cell.difference:+.3f}".replace("-", "−")
    assert row[4].lstrip("*").startswith(shown) and shown in html
    assert row[-1] == "20–26 + 20–26 epochs"


def test_a_difference_that_is_sure_is_marked():
    near = summary(settings={"cloc": setting(accuracy=0.73)})
    far = summary(settings={"cloc": setting(accuracy=0.5)})
    place = Place("cloc", "accuracy", 0.7379)
    assert not table_cells.cell(place, near).is_apart
    assert table_cells.cell(place, far).is_apart


def test_folds_count_as_runs_and_one_run_has_an_interval_of_images():
    folds = summary(settings={"cloc": setting()})
    del folds["settings"]["cloc"]["images_variance"]  # other images in each run
    place = Place("cloc", "accuracy", 0.7379)
    found = table_cells.cell(place, folds)
    assert found.high - found.low < 0.2
    single = table_cells.cell(place, summary(settings={"cloc": setting(seeds=1)}))
    assert single.std is None and single.high - single.low == pytest.approx(
        2 * 1.96 * 0.04, abs=1e-3
    )


def test_every_table_has_its_rows(tmp_path):
    found, text, html = page(tmp_path, [full()], data=["idrid", "clap2015"])
    assert [s.name for s in found] == list(table_rows.TABLES)
    for title in table_rows.TABLES.values():
        assert f"## {title}" in text and title in html
    assert len(rows(text, "CLOC, critical margin fixed")) == 1
    assert rows(text, "CLOC, critical margin fixed")[0][1] == "0.7087"
    assert rows(text, "Shared margin, phase one")[0][1] == "0.6893"
    assert rows(text, "Shared margin, phase one")[0][-1] == "20–26 epochs"
    assert rows(text, "VGG16")[0][1:3] != ["0.7476", ""]
    assert rows(text, "VGG16")[0][-1].endswith("vgg16")
    assert rows(text, "DenseNet-121")[0][1:3] == ["0.6990", ""]  # not trained
    assert rows(text, "1\\|2 (critical)")[0][1] == "0.0270"
    assert rows(text, "CLOC, phase one")[0][1] == "0.6500"
    assert "the weights were not found" in text and "the weights were not found" in html
    assert rows(text, "No early stop")[0][1:] == [
        "20–26",
        "0.400 " * 3 + "0.400",
        "0 of 3",
    ]
    # 28 classes of 3 years, of which there are no runs here.
    assert rows(text, "CLOC, 28 classes of 3 years")[0][1] == "2.0180"


def test_backbones_stand_in_their_own_rows_whichever_is_missing(tmp_path):
    dense = setting(accuracy=0.61, encoder="densenet121")
    # Runs on the usual encoder are to come.
    made = summary(settings={"cloc on densenet121": dense}, encoder="densenet121")
    _, text, _ = page(tmp_path, [made], data=["idrid"])
    assert rows(text, "DenseNet-121")[0][2].startswith("0.6")
    assert rows(text, "ResNet-50")[0][2] == ""


def test_time_is_per_hundred_epochs_of_each_stage():
    one = summary(settings={"cloc": setting(), "ce": setting(phases=1)})
    per = [1000 / epochs * 100 / 3600 for epochs in (20, 23, 26)]
    both = table_cells.cell(Place("cloc", table_rows.HOURS, 1.19), one)
    first = table_cells.cell(
        Place("cloc", table_rows.HOURS, 0.65, stage="phase one"), one
    )
    alone = table_cells.cell(Place("ce", table_rows.HOURS), one)
    assert both.mean == pytest.approx(2 * np.mean(per))
    assert first.mean == alone.mean == pytest.approx(np.mean(per))
    assert both.difference is None  # another machine


def test_an_absent_dataset_leaves_cells_empty_and_says_how_to_get_it(tmp_path):
    how = "BRACS is not here: get it from there, and add --root=bracs=DIR."
    found, text, html = page(
        tmp_path, [full()], only=["comparison"], absent={"bracs": how}
    )
    assert found[0].blocks[0].title.startswith("IDRiD")  # what has runs comes first
    assert how in text and how in html
    bracs = next(b for b in found[0].blocks if b.title == "BRACS")
    cloc = next(line for line in bracs.lines if line.title == "CLOC")
    assert cloc.cells[0].paper == 0.6035 and not cloc.cells[0].runs
    assert not any(line.title == "Cross-entropy" for line in bracs.lines)


def test_quoted_cells_are_marked(tmp_path):
    found, text, html = page(tmp_path, [], only=["comparison"])
    marked = re.findall(r"^\| (\w+) \| [\d.]+ †", text, re.MULTILINE)
    assert marked == ["ORCNN", "POE", "GOL", "MWR"] * 2  # Adience and HID
    assert published.document()["quoted"]["why"] in text
    assert html.count("<span title=") == 16


def test_what_differs_from_the_paper_is_said(tmp_path):
    koa = full("koa", size=[72, 120], images={"train": 5778, "val": 826, "test": 1656})
    said = " ".join(table_cells.common_differences(koa))
    for part in (
        "826 shipped images are kept apart",
        "72x120, not 120x200",
        "before layer4, with 4 kept views",
        "at most 60 per phase, where the paper has 500",
    ):
        assert part in said
    whole = " ".join(table_cells.common_differences(full("idrid", "whole")))
    assert "41 of 413 training images" in whole and "224x224, as in" in whole
    assert "Frozen parts: none" in whole
    frozen = " ".join(table_cells.common_differences(full("idrid", "frozen")))
    assert "Frozen parts: the whole encoder" in frozen


def test_precision_and_devices_of_single_rows_are_said(tmp_path):
    one = full()
    one["settings"]["ce"] |= {"dtype": "bfloat16", "device": "cpu x1"}
    _, text, html = page(tmp_path, [one], only=["comparison", "time"])
    said = {
        r[0]: r[-1] for title in ("CLOC", "Cross-entropy") for r in rows(text, title)
    }
    assert said["Cross-entropy"].endswith(" epochs, in bfloat16")
    assert "float" not in said["CLOC"]
    for shown in (text, html):
        assert "SupCon, DINO, CLOC on cpu x2; Cross-entropy on cpu x1." in shown


def test_margins_without_influence_are_noted(tmp_path):
    said = "does not depend on the margins"
    found = full()
    for one in found["settings"].values():
        for run in one["runs"]:
            run["violated"] = {"0|1": 1.0, "1|2": 0.9999}
    _, text, html = page(tmp_path, [found], only=list(table_rows.TABLES))
    assert text.count(said) == html.count(said) == 3  # not in the comparison
    found["settings"]["cloc"]["runs"][0]["violated"]["0|1"] = 0.9
    _, text, _ = page(tmp_path, [found], only=["controllability", "ablations"])
    assert said not in text
    _, text, _ = page(tmp_path, [full()], only=["ablations"])  # of an earlier version
    assert said not in text


def test_protocols_stand_below_each_other(tmp_path):
    few = summary("idrid", "whole", {"cloc": setting()})
    found, _, _ = page(tmp_path, [full(), few], only=["comparison"], data=["idrid"])
    first, second = found[0].blocks
    assert len(first.lines) == 10 and [line.title for line in second.lines] == ["CLOC"]
    assert "partly trained" in first.title and "whole network" in second.title


def test_runs_that_are_missing_for_one_reason_stand_together(tmp_path):
    one = full()
    why = "no weights; try again"
    one["unfinished"] = {"a": why, "b": "lost", "c": why}
    _, text, html = page(tmp_path, [one], data=["idrid"])
    assert "- `a, c`: no weights\n- `b`: lost\n" in text
    assert "<code>a, c</code>: no weights" in html


def test_the_page_needs_nothing_else(tmp_path):
    one = full()
    one["unfinished"] = {"<b>run</b>": "failed with <script>"}
    _, _, html = page(tmp_path, [json.loads(json.dumps(one))])
    assert not re.search(r"<(script|link|img|iframe)\b", html)
    assert "url(" not in html and "@import" not in html
    assert "&lt;b&gt;run" in html


def test_ranks_of_our_own_are_not_held_against_the_paper():
    one = summary("koa", settings={"cloc": setting()})
    one["ranks"] = ["0", "1", "2", "3"]  # two grades merged
    grid = table_rows.grid(
        "controllability",
        "koa",
        ranks=one["ranks"],
        critical=["1|2"],
        encoder="resnet50",
        settings=["cloc"],
        controlled={},
    )
    assert all(place.paper is None for row in grid.rows for place in row.places)
