"""From studies and the runs behind the tables to verdicts on the paper's claims."""

import dataclasses
import json
import math
import os

import numpy as np
import pytest
from launching import ROOT
from paper_runs import ABOUT_STUDY, full, write_run

from cloc_jax.paper import claims, table_summaries
from cloc_jax.paper.studies import Evidence, Study
from cloc_jax.runtime import files
from cloc_jax.scoring import intervals

RANKS = ["0", "1", "2"]
TRUE = np.arange(150) % 3
WRONG = {  # share of rank 1 that each setting gets wrong
    "cloc": 0.3,
    "ce": 0.9,
    "orcnn": 0.3,
    "cloc shared": 0.6,
    "cloc controlled 1": 0.05,
    "biased cloc": 0.5,
    "biased ce": 0.2,
    "biased cloc controlled 1": 0.1,
}


def predicted(share_wrong, seed=0):
    """Every image of rank 1 has a place in a queue; that share of it is called 2."""
    place = np.argsort(np.argsort(np.random.default_rng(seed).random(len(TRUE))))
    return np.where((TRUE == 1) & (place < share_wrong * len(TRUE)), 2, TRUE)


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    for setting, share in WRONG.items():
        for seed in range(3):
            # Seeds differ a little; the queue of images is the same for all settings.
            margin = 1.0 if "controlled" in setting else 0.6
            name = f"idrid,partial,{setting.replace(' ', '_')},seed={seed}"
            write_run(
                folder / name,
                TRUE,
                predicted(share + 0.02 * seed),
                RANKS,
                has_phase_one="cloc" in setting,
                margins={"0|1": 0.6, "1|2": margin},
                seed=seed,
            )
    (made,) = table_summaries.summarize(folder, "python launch.py tables")
    return made


def found(summary, claim):
    return [one for one in claims.of_tables(summary) if one.claim == claim]


def changed(summary, names, **changes):
    """The summary with settings changed."""
    settings = dict(summary.settings)
    for name in names:
        settings[name] = dataclasses.replace(settings[name], **changes)
    return dataclasses.replace(summary, settings=settings)


# --- evidence of tables ---


def test_without_pairs_the_interval_is_wider_and_says_so(summary):
    alone = changed(summary, summary.settings, paired_variance=None)
    widths = []
    for study, more in ((summary, ""), (alone, ", images not paired")):
        [evidence] = found(study, "beats_cross_entropy")
        assert evidence.tried == f"CLOC against CE{more}"
        *_, ends = claims._difference(study, "cloc", "ce", "accuracy")
        widths.append(ends.high - ends.low)
    assert 0 < widths[0] < widths[1]
    # One fold against several has no interval at all.
    study = changed(alone, ["ce"], images_variance=None)
    assert found(study, "beats_cross_entropy")[0].verdict == "not shown"
    *_, ends = claims._difference(study, "cloc", "ce", "accuracy")
    assert np.isnan(ends).all()


def test_differences_are_those_of_paired_images(summary):
    kept = summary.settings["ce"].paired_variance
    right = [
        np.mean([predicted(WRONG[name] + 0.02 * s) == TRUE for s in range(3)], 0)
        for name in ("ce", "cloc")
    ]
    expected = (right[0] - right[1]).var(ddof=1) / len(TRUE)
    assert kept["accuracy"] == pytest.approx(expected)
    # Of the same images one setting errs on those of the other and more, so that the
    # difference is surer than two samples would tell.
    apart = sum(
        summary.settings[n].images_variance["final"]["accuracy"] for n in ("ce", "cloc")
    )
    assert kept["accuracy"] < apart
    biased = summary.settings["biased ce"].paired_variance
    assert biased["accuracy"] > 0 and biased != kept
    assert summary.settings["cloc"].paired_variance is None


def test_margins_are_evidence_where_they_were_raised(summary):
    assert len(found(summary, "neighbour_errors")) == 1
    runs = tuple(
        dataclasses.replace(run, margins={"1|2": 0.5})
        for run in summary.settings["cloc controlled 1"].runs
    )
    study = changed(summary, ["cloc controlled 1"], runs=runs)
    assert not found(study, "neighbour_errors")
    # With biased labels only the first boundary has a fixed margin.
    study = dataclasses.replace(summary, critical=("1|2", "0|1"))
    tried = [e.tried for e in found(study, "biased_crossings")]
    assert tried == ["1|2, cloc controlled 1"]


@pytest.mark.parametrize(
    ("ends", "lower", "higher"),
    [
        ((-0.2, -0.1), "holds", "does not hold"),
        ((0.1, 0.2), "does not hold", "holds"),
        ((-0.1, 0.1), "not shown", "not shown"),
        ((math.nan, math.nan), "not shown", "not shown"),
    ],
)
def test_verdicts(ends, lower, higher):
    ends = intervals.Interval(*ends)
    assert claims.verdict_on(ends, is_lower_better=True) == lower
    assert claims.verdict_on(ends, is_lower_better=False) == higher


def test_scores_that_disagree_are_both_named():
    better, alike = intervals.Interval(0.05, 0.15), intervals.Interval(-0.1, 0.1)
    compared = {"accuracy": (0.7, 0.6, better), "mae": (0.5, 0.5, alike)}
    evidence = claims.by_scores("own_margins", "a against b", compared)
    assert evidence.verdict == "holds (accuracy), not shown (MAE)"


# --- the page ---

STUDY = Study(
    **ABOUT_STUDY,
    seeds=3,
    evidence=(Evidence("precautions", "phase one", "0 of 3 fell.", "holds"),),
)


def write_study(folder, study=STUDY, name="collapse.json"):
    folder.mkdir(parents=True, exist_ok=True)
    files.write_sealed(folder / name, files.to_plain(study))


def page(folder, target):
    claims.write_claims(folder, target)
    return target.read_text()


def section(text, title):
    return next(part for part in text.split("## ") if part.startswith(title))


def test_the_page_in_docs_is_that_of_its_files(tmp_path):
    docs = ROOT / "docs" / "paper"
    made = page(docs, tmp_path / "claims.md")
    assert made == (docs / "claims.md").read_text()


def test_rows_name_their_commands_and_the_page_is_written_again(tmp_path):
    made = full(fields={"commands": ("first", "second")})
    table_summaries.write_summaries([made], tmp_path / "runs")
    kept = {"studies": [files.to_plain(STUDY)]}
    files.write_sealed(tmp_path / "runs" / "studies.json", kept)
    again = Evidence("precautions", "phase one", "1 of 3 fell.", "holds")
    later = dataclasses.replace(STUDY, command="third", evidence=(again,))
    write_study(tmp_path / "runs" / "z", later)
    text = page(tmp_path / "runs", tmp_path / "claims.md")
    rows = [line for line in text.splitlines() if "| CLOC against " in line]
    assert rows and all(row.endswith("| [1], [2] |") for row in rows)
    rows = section(text, "Softplus").split("\n| ")[3:]
    assert ["0 of 3 fell." in row for row in rows] == [True, False]
    assert f"3. `{STUDY.command}`\n4. `third`\n" in text
    assert page(tmp_path / "runs", tmp_path / "claims.md") == text


def test_no_other_file_is_written_over(tmp_path):
    write_study(tmp_path / "runs")
    others = {"thesis.md": b"# Claims\n\nmine", "x.png": b"\x89PNG", "empty.md": b""}
    for name, content in others.items():
        (tmp_path / name).write_bytes(content)
    os.mkfifo(tmp_path / "pipe.md")
    for name in (*others, "runs", "pipe.md"):
        with pytest.raises(FileExistsError, match=f"{name} exists and is no page"):
            claims.write_claims(tmp_path / "runs", tmp_path / name)
    assert {name: (tmp_path / name).read_bytes() for name in others} == others


@pytest.mark.parametrize(
    ("name", "damage", "said"),
    [
        ("collapse", lambda text: text[:100], "it is not valid JSON"),
        ("collapse", lambda text: text.replace(": 3", ": 4"), "its checksum"),
        ("collapse", lambda _: sealed("{}"), "command is missing"),
        ("koa-frozen", lambda text: text.replace(": 60", ": 61"), "its checksum"),
        ("koa-frozen", lambda _: sealed("{}"), "dataset is missing"),
    ],
)
def test_damaged_files_are_named(name, damage, said, tmp_path):
    write_study(tmp_path)
    table_summaries.write_summaries([full("koa", "frozen")], tmp_path)
    path = tmp_path / f"{name}.json"
    path.write_text(damage(path.read_text()))
    with pytest.raises(files.Damaged) as error:
        claims.write_claims(tmp_path, tmp_path / "claims.md")
    assert str(error.value).startswith(f"{path} is damaged: ")
    assert said in str(error.value)


def sealed(text):
    return json.dumps(files.sealed(json.loads(text)))
