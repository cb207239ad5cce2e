"""Summaries of runs: from their folders to files."""

import numpy as np
import pytest
from paper_runs import write_run

from cloc_jax.paper import table_summaries
from cloc_jax.paper.table_summaries import summarize
from cloc_jax.runtime.run_folder import RunFolder

TRUE = np.arange(60) % 3
RANKS = ("0", "1", "2")


def wrong_by(count):
    """As many images of rank 1 called 2."""
    predicted = TRUE.copy()
    predicted[np.flatnonzero(TRUE == 1)[:count]] = 2
    return predicted


def write(folder, setting, fold="", **more):
    """A run of the setting, called as `tables` calls it."""
    name = f"idrid,partial,{setting.replace(' ', '_')}{fold},seed=0"
    more = {"ranks": RANKS, "true": TRUE, "predicted": wrong_by(5)} | more
    write_run(folder / name, **more)


def test_settings_and_commands_of_a_folder(tmp_path):
    for setting in ("cloc", "biased cloc controlled 0.5", "biased cloc controlled 1"):
        write(tmp_path, setting, predicted=wrong_by(9 if "0.5" in setting else 5))
    (made,) = summarize(tmp_path, "first")
    table_summaries.write_summaries([made], tmp_path / "summaries")
    assert made.controlled == {"biased ": "biased cloc controlled 1"}  # fewer errors
    write(tmp_path, "ce")
    for _ in range(2):
        (again,) = summarize(tmp_path, "second")
        assert again.commands == ("first", "second")
    assert set(again.settings) == {*made.settings, "ce"}
    assert table_summaries.read_summaries(tmp_path / "summaries") == [made]
    with pytest.raises(ValueError, match="there is none"):
        table_summaries.read_summaries(tmp_path)


def test_other_ranks_test_images_or_folds_are_not_paired(tmp_path):
    write(tmp_path / "a", "cloc")
    write(tmp_path / "a", "cloc bin 1", ranks=("3", "4", "5"))
    write(tmp_path / "a", "ce", first=1)
    write(tmp_path / "a", "sord")
    (made,) = summarize(tmp_path / "a")
    paired = [name for name, one in made.settings.items() if one.paired_variance]
    assert paired == ["sord"]
    # One fold of a method beside several of CLOC.
    for fold in range(2):
        more = {"first": 500 * fold, "data.fold": fold}
        write(tmp_path / "b", "cloc", f",fold={fold}", **more)
    write(tmp_path / "b", "sord", ",fold=0")
    (made,) = summarize(tmp_path / "b")
    assert made.settings["sord"].paired_variance is None
    assert made.settings["sord"].images_variance
    assert made.settings["cloc"].images_variance is None


def test_no_folder_of_this_machine_is_passed_on(tmp_path):
    failed = RunFolder(tmp_path / "idrid,partial,ce,seed=0")
    failed.path.mkdir()
    failed.write_failure("no /home/me/koa, see https://example.org/a/b (/tmp/x.log)")
    assert summarize(tmp_path) == []  # none is finished
    true = np.array([0, 0, 0, 1, 1, 1])
    predicted = np.array([0, 0, 1, 1, 1, 1])
    write(tmp_path, "cloc", true=true, predicted=predicted, ranks=("0", "1"))
    (made,) = summarize(tmp_path)
    assert made.unfinished == {
        failed.path.name: "no …/koa, see https://example.org/a/b (…/x.log)"
    }
    # One of six is wrong: as p (1 - p) / (n - 1) has it.
    variance = made.settings["cloc"].images_variance["final"]
    assert variance["accuracy"] == pytest.approx(5 / 36 / 5)
    assert variance["error 0|1"] == variance["mae"] == variance["accuracy"]
