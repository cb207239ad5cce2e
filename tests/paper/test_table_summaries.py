"""Summaries of runs, and those of several machines: one table, or why not."""

import dataclasses

import numpy as np
import pytest
from launching import launched
from paper_runs import full, listed, write_run

from cloc_jax.paper import table_summaries
from cloc_jax.paper.table_summaries import merge, read_summaries, summarize

TRUE = np.arange(60) % 3
RANKS = ("0", "1", "2")


def parts():
    """A whole summary, and two that have CLOC and half of the other settings each."""
    whole = full()
    names = [name for name in whole.settings if name != "cloc"]
    for name in whole.settings:
        paired = {"with": "cloc", "accuracy": 0.001} if name in names else None
        more = {"commands": whole.commands, "paired_variance": paired}
        whole.settings[name] = dataclasses.replace(whole.settings[name], **more)
    halves = []
    for left_out in (names[::2], names[1::2]):
        own = {k: v for k, v in whole.settings.items() if k not in left_out}
        missing = {
            f"idrid,partial,{name.replace(' ', '_')},seed=0": "not trained yet"
            for name in left_out
        }
        halves.append(
            dataclasses.replace(
                whole,
                settings=own,
                controlled={k: v for k, v in whole.controlled.items() if v in own},
                unfinished=whole.unfinished | missing,
            )
        )
    return whole, *halves


def with_setting(summary, name, **changes):
    settings = dict(summary.settings)
    settings[name] = dataclasses.replace(settings[name], **changes)
    return dataclasses.replace(summary, settings=settings)


def with_about(summary, **changes):
    return dataclasses.replace(
        summary, about=dataclasses.replace(summary.about, **changes)
    )


def test_halves_make_the_whole():
    whole, first, second = parts()
    elsewhere = ("python launch.py tables elsewhere",)
    second = dataclasses.replace(second, commands=elsewhere)
    second = with_about(second, device="gpu x1", batch_size=64)
    runs = tuple(
        dataclasses.replace(run, stages=())  # times differ by machine
        for run in second.settings["cloc"].runs
    )
    (made,) = merge([first, with_setting(second, "cloc", runs=runs)])
    # Either has what CLOC's runs found.
    made.settings["cloc"] = whole.settings["cloc"]
    assert made == dataclasses.replace(whole, commands=whole.commands + elsewhere)
    # Pairs are kept from the summary that has them.
    name = next(s for s in second.settings if s not in first.settings)
    first.settings[name] = second.settings[name]
    alone = with_setting(first, name, paired_variance=None)
    for halves in ([alone, second], [second, alone]):
        (made,) = merge(halves)
        assert made.settings[name].paired_variance["with"] == "cloc"


def test_what_cannot_stand_in_one_table():
    found = [full(protocol=p) for p in ("frozen", "partial")] + [full("koa")]
    assert merge(found) == found  # other datasets and protocols stay apart
    _, first, second = parts()
    runs = second.settings["cloc"].runs
    other = dataclasses.replace(runs[0], val={"accuracy": 0.1})
    for wrong, said in (
        (with_setting(second, "cloc", runs=(other, *runs[1:])), "other runs of 'cloc'"),
        (with_setting(second, "cloc", runs=runs[1:]), "other runs of 'cloc'"),
        (with_about(second, size=(72, 120)), r"\(224, 224\) in one .*\(72, 120\)"),
        (dataclasses.replace(second, critical=("0|1",)), "critical is "),
    ):
        with pytest.raises(ValueError, match=f"idrid-partial: .*{said}"):
            merge([first, wrong])


def test_the_page_and_the_summaries_of_two_folders(tmp_path):
    whole, *halves = parts()
    for name, one in zip(("here", "there", "both"), (*halves, whole), strict=True):
        table_summaries.write_summaries([one], tmp_path / name)
    launched("tables", "--from=both", "--to=expected", cwd=tmp_path)
    two = ["--from=here", "--from=there"]
    launched("tables", *two, "--summaries=kept", "--to=page", cwd=tmp_path)
    made, expected = (tmp_path / d / "tables.md" for d in ("page", "expected"))
    assert made.read_text() == expected.read_text()
    assert read_summaries(tmp_path / "kept") == [whole]


# --- from runs ---


def wrong_by(count):
    """As many images of rank 1 called 2."""
    predicted = TRUE.copy()
    predicted[np.flatnonzero(TRUE == 1)[:count]] = 2
    return predicted


def test_other_ranks_test_images_or_folds_are_not_paired(tmp_path):
    runs = {
        "cloc": {},
        "cloc bin 1": {"ranks": ("3", "4", "5")},
        "ce": {"first": 1},
        "sord": {},
    }
    for name, more in runs.items():
        write_run(tmp_path / name, TRUE, wrong_by(5), **{"ranks": RANKS, **more})
    made = summarize(tmp_path, [listed(name, name) for name in runs], {})
    paired = [n for n, one in made.settings.items() if one.paired_variance]
    assert paired == ["sord"]
    # One fold of a method beside several of CLOC.
    folds = [listed("sord", "sord", fold=0)]
    for fold in range(2):
        folds.append(listed(f"cloc {fold}", "cloc", fold=fold))
        write_run(tmp_path / folds[-1].name, TRUE, wrong_by(5), RANKS, first=500 * fold)
    made = summarize(tmp_path, folds, {}).settings
    assert made["sord"].paired_variance is None and made["sord"].images_variance
    assert made["cloc"].images_variance is None


@pytest.mark.parametrize("order", [1, -1])
def test_what_most_runs_were_does_not_depend_on_their_order(order, tmp_path):
    runs = {
        "cloc on densenet121": {"encoder.name": "densenet121"},
        "simclr": {"encoder.views": 1},
        "ce": {"encoder.views": 4},
        "cloc": {"encoder.views": 4},
    }
    for name, more in runs.items():
        write_run(tmp_path / name, TRUE, wrong_by(5), RANKS, **more)
    for last in ("cloc", "ce"):  # also while CLOC's runs are missing
        about = summarize(
            tmp_path, [listed(name, name) for name in list(runs)[::order]], {}
        ).about
        assert (about.encoder, about.views) == ("resnet50", 4)
        runs.pop(last)


def test_no_folder_of_this_machine_is_passed_on(tmp_path):
    runs = [listed(name, name) for name in ("cloc", "ce")]
    assert summarize(tmp_path, runs, {}) is None  # none is finished
    true = np.array([0, 0, 0, 1, 1, 1])
    write_run(tmp_path / "cloc", true, np.array([0, 0, 1, 1, 1, 1]), ("0", "1"))
    failed = {"ce": "no /home/me/koa/train, see https://example.org/a/b (/tmp/x.log)"}
    made = summarize(tmp_path, runs, failed)
    assert made.unfinished == {
        "ce": "no …/train, see https://example.org/a/b (…/x.log)"
    }
    # One of six is wrong: as p (1 - p) / (n - 1) has it.
    variance = made.settings["cloc"].images_variance["final"]
    assert variance["accuracy"] == pytest.approx(5 / 36 / 5)
    assert variance["error 0|1"] == variance["mae"] == variance["accuracy"]


def test_phase_one_has_a_variance_by_its_counts(tmp_path):
    write_run(tmp_path / "cloc", TRUE, wrong_by(5), RANKS, has_phase_one=True)
    made = summarize(tmp_path, [listed("cloc", "cloc")], {}).settings["cloc"]
    early, final = (made.images_variance[s] for s in ("phase_one", "final"))
    assert early == pytest.approx(final)  # one run, the same counts
    assert made.runs[0].scores["phase_one"]["mae"] == 0.9
