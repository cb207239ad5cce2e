"""From the runs behind the tables to verdicts on the paper's claims."""

import numpy as np
import pytest
import table_summaries

from cloc_jax.paper import claims, table_evidence
from cloc_jax.paper.tables import summaries
from cloc_jax.runtime import files
from cloc_jax.scoring import intervals, predictions
from configs import idrid

RANKS = ["0", "1", "2"]
TRUE = np.arange(150) % 3


def predicted(share_wrong, seed):
    """Every image of rank 1 has a place in a queue; that share of it is called 2."""
    place = np.argsort(np.argsort(np.random.default_rng(seed).random(len(TRUE))))
    return np.where((TRUE == 1) & (place < share_wrong * len(TRUE)), 2, TRUE)


def write_run(
    folder, predicted, *, has_phase_one, margin=0.6, ranks=RANKS, first=0, **settings
):
    """A run with predictions of images that are numbered from `first` on."""
    folder.mkdir(parents=True)
    confusion = np.zeros((3, 3), int)
    np.add.at(confusion, (TRUE, predicted), 1)
    wrong = [np.mean((predicted > h) != (TRUE > h)) for h in range(2)]
    among = (TRUE == 1) | (TRUE == 2)
    errors = np.mean(predicted[among] != TRUE[among])
    scores = {
        "accuracy": np.mean(predicted == TRUE),
        "mae": np.mean(np.abs(predicted - TRUE)),
        "qwk": 0.5,
        "one_off_accuracy": 1.0,
        "macro_mae": 0.5,
        "boundaries": {
            "0|1": {"error_rate": 0.0, "crossing_rate": wrong[0]},
            "1|2": {"error_rate": errors, "crossing_rate": wrong[1]},
        },
        "confusion": confusion.tolist(),
    }
    early = {**scores, "accuracy": scores["accuracy"] - 0.1, "mae": 0.9}
    found = {
        "final": {"val": scores, "test": scores},
        "ranks": ranks,
        "critical": ["1|2"],
        "stages": [{"name": "fit", "title": "", "epochs": 2, "seconds": 1.0}],
        "margins": {"0|1": 0.6, "1|2": margin},
        "readouts": {},
        "environment": {"device": "cpu x1"},
    }
    if has_phase_one:
        found["phase_one"] = {"val": early, "test": early}
    files.write_sealed(folder / "metrics.json", found)
    config = idrid.get_config()
    config.encoder.trainable_from = "layer4"
    config.update_from_flattened_dict(settings)
    files.write_sealed(folder / "config.json", config.to_dict())
    images = {"train": 8, "val": len(TRUE), "test": len(TRUE)}
    about = {"images": images, "ranks": RANKS, "sha256": "0"}
    files.write_sealed(folder / "dataset.json", about)
    names = [str(first + i) for i in range(len(TRUE))]
    one = predictions.Predictions(names, TRUE, predicted, None)
    predictions.write(folder / predictions.NAME, {"val": one, "test": one}, ranks)


def entry(name, setting, seed=0, **more):
    """What the list of runs says of one."""
    return {
        "name": name,
        "setting": setting,
        "seed": seed,
        "dataset": "idrid",
        "protocol": "partial",
        "command": "python launch.py tables",
    } | more


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


@pytest.fixture(scope="module")
def summary(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    listed = []
    for setting, share in WRONG.items():
        for seed in range(3):
            name = f"{setting}, {seed}"
            # Seeds differ a little; the queue of images is the same for all settings.
            write_run(
                folder / name,
                predicted(share + 0.02 * seed, 0),
                has_phase_one="cloc" in setting,
                margin=1.0 if "controlled" in setting else 0.6,
            )
            listed.append(entry(name, setting, seed))
    return summaries.summarize(folder, listed, {})


def test_without_pairs_the_interval_is_wider_and_says_so(summary):
    find = table_evidence.outperforms(["ce"])
    [paired] = find("tables", summary)
    settings = {
        name: {k: v for k, v in one.items() if k != "paired_variance"}
        for name, one in summary["settings"].items()
    }
    [alone] = find("tables", {**summary, "settings": settings})
    assert paired.setting == "CLOC against Cross-entropy"
    assert alone.setting == "CLOC against Cross-entropy, images not paired"
    widths = []
    for kept in (summary["settings"], settings):
        study = {**summary, "settings": kept}
        *_, ends = table_evidence._difference(study, "cloc", "ce", "accuracy")
        widths.append(ends.high - ends.low)
    assert 0 < widths[0] < widths[1]


def test_one_fold_against_several_has_no_interval(summary):
    settings = {name: dict(one) for name, one in summary["settings"].items()}
    for name in ("paired_variance", "images_variance"):
        settings["ce"].pop(name)
    study = {**summary, "settings": settings}
    [found] = table_evidence.outperforms(["ce"])("tables", study)
    assert found.verdict == "not shown"
    *_, ends = table_evidence._difference(study, "cloc", "ce", "accuracy")
    assert np.isnan(ends).all()


def test_differences_are_those_of_paired_images(summary):
    kept = summary["settings"]["ce"]["paired_variance"]
    assert kept["with"] == "cloc"
    right = [
        np.mean([predicted(WRONG[name] + 0.02 * s, 0) == TRUE for s in range(3)], 0)
        for name in ("ce", "cloc")
    ]
    expected = (right[0] - right[1]).var(ddof=1) / len(TRUE)
    assert kept["accuracy"] == pytest.approx(expected)
    # Of the same images one setting errs on those of the other and more, so that the
    # difference is surer than two samples would tell.
    apart = sum(
        summary["settings"][n]["images_variance"]["final"]["accuracy"]
        for n in ("ce", "cloc")
    )
    assert kept["accuracy"] < apart
    assert summary["settings"]["biased ce"]["paired_variance"]["with"] == "biased cloc"
    assert "paired_variance" not in summary["settings"]["cloc"]


def test_other_ranks_or_test_images_are_not_paired(tmp_path):
    runs = {
        "cloc": {},
        "cloc bin 1": {"ranks": ["3", "4", "5"]},
        "ce": {"first": 1},
        "sord": {},
    }
    for name, more in runs.items():
        write_run(tmp_path / name, predicted(0.5, 0), has_phase_one=False, **more)
    made = summaries.summarize(tmp_path, [entry(name, name) for name in runs], {})
    paired = [n for n, one in made["settings"].items() if "paired_variance" in one]
    assert paired == ["sord"]


def test_one_fold_of_a_method_beside_several_of_cloc(tmp_path):
    listed = [entry("ce", "ce", **{"data.fold": 0})]
    write_run(tmp_path / "ce", predicted(0.5, 0), has_phase_one=False)
    for fold in range(2):
        name = f"cloc {fold}"
        write_run(
            tmp_path / name, predicted(0.5, 0), has_phase_one=False, first=500 * fold
        )
        listed.append(entry(name, "cloc", **{"data.fold": fold}))
    made = summaries.summarize(tmp_path, listed, {})
    assert "paired_variance" not in made["settings"]["ce"]


@pytest.mark.parametrize("order", [1, -1])
def test_what_most_runs_were_does_not_depend_on_their_order(order, tmp_path):
    runs = {
        "cloc on densenet121": {"encoder.name": "densenet121"},
        "simclr": {"encoder.views": 1},
        "ce": {"encoder.views": 4},
        "cloc": {"encoder.views": 4},
    }
    for name, more in runs.items():
        write_run(tmp_path / name, predicted(0.5, 0), has_phase_one=False, **more)
    for last in ("cloc", "ce"):  # also while CLOC's runs are missing
        listed = [entry(name, name) for name in list(runs)[::order]]
        about = summaries.summarize(tmp_path, listed, {})["about"]
        assert (about["encoder"], about["views"]) == ("resnet50", 4)
        runs.pop(last)


def test_seeds_on_one_fold_are_not_independent():
    """Coverage of the interval where both folds and seeds scatter."""
    rng = np.random.default_rng(0)
    folds = np.repeat(np.arange(5), 3).tolist()
    covered = {"runs": 0, "folds": 0}
    for _ in range(2000):
        scores = (rng.normal(size=5).repeat(3) + rng.normal(0, 0.5, 15)).tolist()
        for kind, given in (
            ("runs", scores),
            ("folds", intervals.mean_by_fold(scores, folds)),
        ):
            low, high = intervals.of_run_mean(given, 0.0)
            covered[kind] += low <= 0 <= high
    assert covered["runs"] < 0.85 * 2000  # why it is done
    assert 0.93 * 2000 < covered["folds"] < 0.97 * 2000
    assert intervals.mean_by_fold([1.0, 2.0], [None, None]) == [1.0, 2.0]
    assert intervals.mean_by_fold([1.0, 2.0], [3, 3]) == [1.0, 2.0]


def test_a_margin_that_was_not_raised_is_no_evidence(summary):
    find = table_evidence.lower_errors("error", is_biased=False)
    assert len(list(find("tables", summary))) == 1
    settings = {name: dict(one) for name, one in summary["settings"].items()}
    fixed = settings["cloc controlled 1"]
    fixed["runs"] = [run | {"margins": {"1|2": 0.5}} for run in fixed["runs"]]
    assert not list(find("tables", {**summary, "settings": settings}))


def test_with_biased_labels_only_the_first_boundary_is_fixed(summary):
    study = {**summary, "critical": ["1|2", "0|1"]}
    find = table_evidence.lower_errors("error", is_biased=True)
    assert [e.setting for e in find("tables", study)] == ["1|2, cloc controlled 1"]


def test_difference_over_seeds_is_welch_s():
    from scipy import stats

    first, second = [0.6, 0.64, 0.71], [0.5, 0.58]
    found = intervals.of_run_difference(first, second, 0.0)
    expected = stats.ttest_ind(first, second, equal_var=False).confidence_interval()
    assert found == pytest.approx((expected.low, expected.high))
    wider = intervals.of_run_difference(first, second, 0.01)
    assert wider.high - wider.low > 0.4
    assert np.isnan(intervals.of_run_difference([0.6], [0.5], 0.0).low)


def section(page, text):
    return next(part for part in page.split("## ") if part.startswith(text))


def test_page_of_claims_from_a_summary(summary, tmp_path):
    (tmp_path / "runs" / "summaries").mkdir(parents=True)
    path = tmp_path / "runs" / "summaries" / "idrid-partial.json"
    files.write_sealed(path, summary)
    assert claims.write_claims(tmp_path / "runs", tmp_path / "claims.md") == 1
    page = (tmp_path / "claims.md").read_text()
    data = "| IDRiD, 224x224, resnet50 trained from layer4 on | 3 |"
    better = section(page, "CLOC with learned margins")
    assert f"{data} CLOC against Cross-entropy | accuracy 0." in better
    assert "| holds | [1] |" in better
    alike = section(page, "CLOC outperforms existing")
    assert "against ORCNN" in alike and "| not shown |" in alike
    assert "Cross-entropy" not in alike
    biased = section(page, "Trained on biased labels, CLOC")
    assert "| does not hold |" in biased and "SimCLR" not in biased
    for text in ("A larger margin fixed", "With biased training labels a", "A margin"):
        assert "| holds |" in section(page, text)
    phases = section(page, "Phase two")
    assert "difference +0.100" in phases and "| holds |" in phases
    assert "Not tested: needs a GPU" in section(page, "CLOC outperforms other methods")
    assert "1. `python launch.py tables`" in page


@pytest.mark.parametrize(
    ("protocol", "data"),
    [
        ("frozen", "frozen resnet50"),
        ("partial", "resnet50 trained from layer4 on"),
        ("whole", "resnet50 trained whole"),
    ],
)
def test_rows_say_which_part_of_the_encoder_was_trained(protocol, data, tmp_path):
    made = table_summaries.full(protocol=protocol)
    path = tmp_path / "summaries" / f"idrid-{protocol}.json"
    path.parent.mkdir()
    files.write_sealed(path, made)
    claims.write_claims(tmp_path, tmp_path / "claims.md")
    assert f"| IDRiD, 224x224, {data} | 3 |" in (tmp_path / "claims.md").read_text()


def write_page(folder, made, *, add=False):
    """The page of claims from one summary."""
    kept = folder / "summaries"
    kept.mkdir(exist_ok=True)
    files.write_sealed(kept / "idrid-partial.json", made)
    claims.write_claims(folder, folder / "claims.md", add=add)
    return (folder / "claims.md").read_text()


def test_rows_of_several_commands_name_them_all_and_replace_those_of_each(tmp_path):
    def write(commands, add):
        made = table_summaries.full() | {"commands": commands}
        for setting in made["settings"].values():
            del setting["commands"]  # as in summaries of earlier versions
        return write_page(tmp_path, made, add=add)

    first = write(["first"], add=False)
    both = write(["first", "second"], add=True)
    assert both.count("[1], [2] |") == first.count("[1] |") > 0
    assert "| [1] |" not in both
    assert "1. `first`\n2. `second`\n" in both
    # What no row cites any more is not listed either.
    second = write(["second"], add=True)
    assert second == first.replace("`first`", "`second`")


def test_a_row_names_the_commands_of_its_own_settings(tmp_path):
    made = table_summaries.full()
    made["commands"] = ["first", "second", "of no finished run"]
    for name, setting in made["settings"].items():
        setting["commands"] = ["second" if name == "supcon" else "first"]
    text = write_page(tmp_path, made)
    rows = [line for line in text.splitlines() if "| CLOC against " in line]
    both = [row for row in rows if row.endswith("| [1], [2] |")]
    assert len(both) == 1 and "CLOC against SupCon" in both[0]
    assert all(row.endswith("| [1] |") for row in rows if row not in both)
    assert text.endswith("1. `first`\n2. `second`\n")


def test_scores_that_disagree_are_both_named():
    found = table_evidence._evidence(
        "a against b",
        {
            "accuracy": (0.7, 0.6, intervals.Interval(0.05, 0.15)),
            "mae": (0.5, 0.5, intervals.Interval(-0.1, 0.1)),
        },
        ("a", "b"),
    )
    assert found.verdict == "holds (accuracy), not shown (MAE)"
