"""The page of the paper's tables, from summaries alone."""

import re

import numpy as np
import pytest
from launching import ROOT
from paper_runs import setting, summary

from cloc_jax.paper import table_rows, table_summaries, tables_page
from cloc_jax.paper.table_rows import Data, Row
from cloc_jax.paper.tables_page import markdown


def rows(text, title):
    """The cells of the Markdown rows with that title."""
    return [
        [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]
        for line in text.splitlines()
        if line.startswith(f"| {title} |")
    ]


def test_the_page_in_docs_is_that_of_its_summaries():
    docs = ROOT / "docs" / "paper"
    text = markdown(table_summaries.read_summaries(docs))
    assert text == (docs / "tables.md").read_text()


@pytest.mark.parametrize(("accuracy", "is_apart"), [(0.73, False), (0.5, True)])
def test_a_cell_is_the_mean_and_its_distance_from_the_paper(accuracy, is_apart):
    one = summary(settings={"cloc": setting(accuracy=accuracy), "ce": setting()})
    values = [run.scores["final"]["accuracy"] for run in one.settings["cloc"].runs]
    row = rows(markdown([one]), "CLOC")[0]
    ours = f"{np.mean(values):.3f} ± {np.std(values, ddof=1):.3f}"
    assert row[1:4] == ["0.7379", ours, "3"]
    place = Row("CLOC", "cloc", {"accuracy": 0.7379})
    cell = tables_page.cell(place, "accuracy", one)
    assert cell.difference == pytest.approx(np.mean(values) - 0.7379)
    low, high = cell.ends
    assert low < cell.difference < high
    # Of images alone it would be 1.96 x 0.04 to either side; seeds make it wider.
    assert high - low > 2 * 1.96 * 0.04
    shown = f"{cell.difference:+.3f}".replace("-", "−")
    assert row[4].startswith(f"**{shown}** [" if is_apart else f"{shown} [")
    assert row[-1] == "20–26 + 20–26 epochs, cpu x2"


def test_folds_count_as_runs_and_one_run_has_an_interval_of_images():
    place = Row("CLOC", "cloc", {"accuracy": 0.7379})
    # With folds each run has other images.
    folds = summary(settings={"cloc": setting(images_variance=None)})
    low, high = tables_page.cell(place, "accuracy", folds).ends
    assert high - low < 0.2
    single = summary(settings={"cloc": setting(seeds=1), "ce": setting()})
    low, high = tables_page.cell(place, "accuracy", single).ends
    assert high - low == pytest.approx(2 * 1.96 * 0.04, abs=1e-3)
    assert "±" not in rows(markdown([single]), "CLOC")[0][2]


def test_many_classes_are_those_of_the_paper():
    years = table_rows.TABLES["classes"](
        Data("clap2015", tuple(map(str, range(28))), (), "vgg16", {})
    )
    printed = {row.setting: row.paper["mae"] for row in years}
    assert printed["cloc"] == 2.018 and printed["cloc bin 1"] == 6.094


def test_ranks_of_our_own_are_not_held_against_the_paper():
    merged = Data("koa", tuple("0123"), ("1|2",), "resnet50", {})  # two grades are one
    found = table_rows.TABLES["controllability"](merged)
    assert len(found) == 8
    assert all(number is None for row in found for number in row.paper.values())
