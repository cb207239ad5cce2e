"""Summaries of several machines: one table, or a sentence why not."""

import copy
import json

import pytest
import table_summaries
from launching import launched

from cloc_jax.paper import table_cells, table_rows
from cloc_jax.paper.tables import merged_summaries
from cloc_jax.runtime import files


def parts():
    """A whole summary, and two that have CLOC and half of the other settings each."""
    whole = table_summaries.full()
    for name, setting in whole["settings"].items():
        if name != "cloc":
            setting["paired_variance"] = {"with": "cloc", "accuracy": 0.001}
    halves = [copy.deepcopy(whole) for _ in range(2)]
    names = [name for name in whole["settings"] if name != "cloc"]
    for half, left_out in zip(halves, (names[::2], names[1::2]), strict=True):
        for name in left_out:
            del half["settings"][name]
        tried = {k: v for k, v in half["controlled"].items() if v in half["settings"]}
        half["controlled"] = tried
        half["unfinished"] |= {
            f"idrid,partial,{name.replace(' ', '_')},seed=0": "not trained yet"
            for name in left_out
        }
    return whole, *halves


def test_halves_make_the_whole():
    whole, first, second = parts()
    second["commands"] = ["python launch.py tables elsewhere"]
    second["about"] |= {"device": "gpu x1", "learning_rate": 0.1}
    for run in second["settings"]["cloc"]["runs"]:
        run["stages"][0]["seconds"] = 1.0  # a faster machine
    (made,) = merged_summaries.merge([first, second])
    assert made["commands"] == whole["commands"] + second["commands"]
    assert made | {"commands": whole["commands"]} == whole


def test_other_datasets_and_protocols_stay_apart():
    found = [table_summaries.full(protocol=p) for p in ("frozen", "partial")]
    found.append(table_summaries.full("koa"))
    assert merged_summaries.merge(found) == found


def test_pairs_are_kept_from_the_summary_that_has_them():
    _, first, second = parts()
    name = next(s for s in second["settings"] if s not in ("cloc", "biased cloc"))
    first["settings"][name] = copy.deepcopy(second["settings"][name])
    del first["settings"][name]["paired_variance"]
    (made,) = merged_summaries.merge([first, second])
    assert made["settings"][name]["paired_variance"]["with"] == "cloc"


def test_summaries_of_earlier_versions_say_less_of_a_run():
    whole, first, second = parts()
    for run in second["settings"]["cloc"]["runs"]:
        run["violated"] = {"0|1": 1.0}
    for halves in ([first, second], [second, first]):
        (made,) = merged_summaries.merge(halves)
        runs = made["settings"]["cloc"]["runs"]
        assert [run.pop("violated") for run in runs] == 3 * [{"0|1": 1.0}]
        assert runs == whole["settings"]["cloc"]["runs"]


def test_what_cannot_stand_in_one_table():
    _, first, second = parts()
    other = copy.deepcopy(second)
    other["settings"]["cloc"]["runs"][0]["scores"]["final"]["accuracy"] += 0.01
    with pytest.raises(ValueError, match="idrid-partial: .* other runs of 'cloc'"):
        merged_summaries.merge([first, other])
    other = copy.deepcopy(second)
    other["settings"]["cloc"]["runs"].pop()
    with pytest.raises(ValueError, match="other runs of 'cloc'"):
        merged_summaries.merge([first, other])
    second["about"]["size"] = [72, 120]
    with pytest.raises(ValueError, match=r"size is \[224, 224\] in one .*\[72, 120\]"):
        merged_summaries.merge([first, second])


def test_methods_may_have_batches_of_their_own():
    _, first, second = parts()
    second["about"]["batch_size"] = 64
    for setting in second["settings"].values():
        setting["batch_size"] = 64
    (made,) = merged_summaries.merge([first, second])
    own = next(name for name in second["settings"] if name not in first["settings"])
    said = table_cells.row_differences(made, [table_rows.Place(own, "accuracy")])
    assert said.endswith("batches of 64")


def test_the_page_and_the_summaries_of_two_folders(tmp_path):
    whole, *halves = parts()
    for name, one in zip(("here", "there", "both"), (*halves, whole), strict=True):
        (tmp_path / name).mkdir()
        files.write_sealed(tmp_path / name / "idrid-partial.json", one)
    launched("tables", "--from=both", "--to=expected", cwd=tmp_path)
    two = ["--from=here", "--from=there"]
    launched("tables", *two, "--summaries=kept", "--to=page", cwd=tmp_path)
    for name in ("tables.md", "tables.html"):
        made, expected = (tmp_path / d / name for d in ("page", "expected"))
        assert made.read_text() == expected.read_text()
    kept = json.loads((tmp_path / "kept" / "idrid-partial.json").read_text())
    assert kept.pop("integrity") and kept == whole
