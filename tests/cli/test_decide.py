"""The job `decide`, on run folders written by hand and through launch.py."""

import pytest
from damage import flip
from finished_runs import change_results, finished_run
from launching import launched, stand_ins

from cloc_jax.cli import decide
from cloc_jax.cli.command_line import DecisionFlags
from cloc_jax.runtime import files
from cloc_jax.scoring import conformal_sets, decisions, metrics, predictions
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.results import read_results

RANKS = ["0", "1", "2", "3", "4"]


def make_run(path, *, splits=("val", "test"), critical=("1|2",), has_chances=True):
    """A finished run, too sure of itself, whose files a test may change."""
    return finished_run(
        path,
        ranks=RANKS,
        splits=splits,
        critical=critical,
        has_probabilities=has_chances,
        count=400,
        shown=0,
        pictures=(),
    )


@pytest.fixture
def run(tmp_path):
    return make_run(tmp_path / "run")


def read(run):
    return predictions.read(run.path, read_results(run))


def saved(run):
    return Decision.read(run.decision, RANKS)


def test_the_decision_is_fitted_on_validation_alone(run, capsys):
    decision = decide.decide(run, DecisionFlags(boundary=["1|2"], max_missed=[0.05]))
    assert saved(run) == decision
    val = read(run)["val"]
    temperature = decisions.fit_temperature(val.probabilities, val.true)
    assert decision.temperature == temperature > 1.5  # it was too sure
    at = decisions.apply_temperature(val.probabilities, temperature)
    fitted = {"1|2": decisions.fit_threshold(at, val.true, 1, 0.05)}
    assert decision.thresholds == fitted and not decision.guarantee
    # Other test images, same decision.
    path = run.path / predictions.NAME
    rows = path.read_text().splitlines(keepends=True)
    path.write_text("".join(row for row in rows if ",test,4" not in row))
    change_results(run, files={path.name: files.sha256(path)})
    assert (
        decide.decide(run, DecisionFlags(boundary=["1|2"], max_missed=[0.05]))
        == decision
    )
    assert "kept as" not in capsys.readouterr().out  # the same decision again
    assert not (run.path / "decision-2.json").exists()


def test_a_damaged_picture_does_not_undo_a_decision(tmp_path, capsys):
    run = finished_run(tmp_path / "run")
    (run.path / "report.html").touch()
    flip(run.path / "confusion.png", 40)
    decision = decide.decide(run, DecisionFlags(max_missed=[0.05]))
    assert decision == Decision.read(run.decision, run.read_metrics()["ranks"])
    said = capsys.readouterr().out
    assert "confusion.png is damaged: it is no picture" in said.replace("\n", " ")
    assert "the report was not drawn again" in said and "`predict` now goes by" in said


def test_what_is_printed_is_what_happens_on_test(run, capsys):
    decision = decide.decide(
        run, DecisionFlags(max_missed=[0.05])
    )  # at the critical boundary
    out = capsys.readouterr().out
    test = read(run)["test"]
    labels = decision.apply(test.probabilities)
    before = metrics.ordinal_metrics(test.true, test.predicted, RANKS)
    after = metrics.ordinal_metrics(test.true, labels, RANKS)

    def cells(title):
        """What stands before the brackets in the two columns of a row."""
        (line,) = (row for row in out.splitlines() if row.startswith(f"{title} "))
        return [cell.split("(")[0].strip() for cell in line[len(title) :].split(")")]

    for place, scores in enumerate((before, after)):
        rates = scores["boundaries"]["1|2"]
        for title, value in (
            ("accuracy", scores["accuracy"]),
            ("missed at 1|2", rates["crossing_missed_rate"]),
            ("false alarms at 1|2", rates["crossing_false_alarm_rate"]),
        ):
            assert cells(title)[place] == f"{100 * value:.1f}%"
        for title in ("MAE", "QWK"):
            assert cells(title)[place] == f"{scores[title.lower()]:.3f}"
    for rank in RANKS:
        title = f"graded {rank} ({before['true_counts'][rank]} truly are)"
        (line,) = (row for row in out.splitlines() if row.startswith(title))
        counts = [s["predicted_counts"][rank] for s in (before, after)]
        assert line.removeprefix(title).split() == [str(count) for count in counts]
    assert "chosen to miss at most 5%" in out


def test_costs(run, capsys):
    decision = decide.decide(run, DecisionFlags(cost=["1|2=5", "3|4=2:0.5"]))
    assert decision.costs == {"1|2": (5.0, 5.0), "3|4": (2.0, 0.5)}
    assert saved(run) == decision
    out = capsys.readouterr().out
    (line,) = (row for row in out.splitlines() if row.startswith("mean cost"))
    test = read(run)["test"]
    matrix, truths = decision.cost_matrix(), test.true
    for shown, labels in zip(
        line.split()[-2:],
        (test.predicted, decision.apply(test.probabilities)),
        strict=True,
    ):
        assert shown == f"{matrix[truths, labels].mean():.3f}"
    assert float(line.split()[-1]) < float(line.split()[-2])


def test_a_guarantee_is_fitted_on_the_calibration_slice(tmp_path):
    run = make_run(tmp_path / "run", splits=("val", "test", "calibration"))
    decision = decide.decide(run, DecisionFlags(max_missed=[0.05], guarantee=True))
    assert decision.guarantee and saved(run) == decision
    found = read(run)
    val, held = found["val"], found["calibration"]
    temperature = decisions.fit_temperature(val.probabilities, val.true)
    assert decision.temperature == temperature
    at = decisions.apply_temperature(held.probabilities, temperature)
    above = held.true > 1
    missed = (decisions.probability_above(at, 1) <= decision.thresholds["1|2"])[above]
    assert (missed.sum() + 1) / (above.sum() + 1) <= 0.05
    assert (missed.sum() + 2) / (above.sum() + 1) > 0.05
    with pytest.raises(ValueError, match="at least 999 images above it"):
        decide.decide(run, DecisionFlags(max_missed=[0.001], guarantee=True))


def test_no_decision_is_lost(run, capsys):
    first = decide.decide(run, DecisionFlags(max_missed=[0.05]))
    second = decide.decide(run, DecisionFlags(max_missed=[0.1]))
    assert "kept as decision-2.json" in capsys.readouterr().out
    third = decide.decide(run, DecisionFlags(cost=["1|2=3"]))
    names = ["decision-2.json", "decision-3.json", "decision.json"]
    for name, decision in zip(names, (first, second, third), strict=True):
        assert Decision.read(run.path / name, RANKS) == decision
    decide.remove(run)
    assert not run.decision.exists()
    assert Decision.read(run.path / "decision-4.json", RANKS) == third
    with pytest.raises(FileNotFoundError, match="no saved decision"):
        decide.remove(run)


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ({"max_missed": [0.1], "cost": ["1|2=5"]}, "either --max-missed"),
        ({"cost": ["1|2=5"], "boundary": ["1|2"]}, "--boundary belongs to"),
        ({"cost": ["1|2=5"], "guarantee": True}, "--guarantee belongs to"),
        ({"cost": ["1|2=5"], "sets": "rps"}, "--sets=rps belongs to --coverage"),
        ({"max_missed": [5.0]}, "may be missed is 5.0; give a number from 0"),
        ({"max_missed": [0.1], "boundary": ["1|3"]}, "names 1|3, and the run's"),
        ({"cost": ["1|2"]}, "--cost='1|2' is not understood"),
        ({"cost": ["1|2=-1:2"]}, "numbers above 0"),
        ({"cost": ["1|2=5", "1|2=6"]}, "each boundary once"),
        ({"cost": ["1|3=5"]}, "There are 0|1, 1|2, 2|3, 3|4"),
        ({"coverage": 90.0}, "the coverage is 90; give the share of sets"),
        ({"coverage": 0.9}, "--config.data.calibration_fraction=0.1"),
        (
            {"max_missed": [0.05], "guarantee": True},
            "--config.data.calibration_fraction=0.1",
        ),
    ],
)
def test_mistakes_are_named(run, asked, message):
    with pytest.raises(ValueError) as caught:
        decide.decide(run, DecisionFlags(**asked))
    assert message in str(caught.value)
    assert not run.decision.exists()


def test_runs_that_cannot_be_decided_on(tmp_path):
    silent = make_run(tmp_path / "silent", has_chances=False)
    with pytest.raises(ValueError, match="gives no probabilities"):
        decide.decide(silent, DecisionFlags(max_missed=[0.05]))
    calm = make_run(tmp_path / "calm", critical=())
    with pytest.raises(
        ValueError, match="critical boundaries are none; give some of 0"
    ):
        decide.decide(calm, DecisionFlags(max_missed=[0.05]))
    table = calm.path / predictions.NAME
    rows = table.read_text().splitlines(keepends=True)
    for cut in ("".join(rows)[:9999], "".join(rows[:99])):  # also between two rows
        table.write_text(cut)
        with pytest.raises(files.Damaged, match="predictions.csv is .*evaluate"):
            decide.decide(calm, DecisionFlags(boundary=["1|2"], max_missed=[0.05]))
    assert not calm.decision.exists()
    calm.metrics.unlink()
    with pytest.raises(FileNotFoundError, match="not finished"):
        decide.decide(calm, DecisionFlags(max_missed=[0.05]))


def test_launch_decides_without_jax(run, tmp_path):
    trace, variables = stand_ins(tmp_path / "without", "jax", "sklearn", "cv2")
    words = ["--run=run", "--boundary=1|2", "--max-missed=0.05"]
    process = launched("decide", *words, cwd=tmp_path, **variables)
    assert process.stderr == "" and not trace.exists()
    assert "test images" in process.stdout and "\x1b" not in process.stdout
    assert saved(run).max_missed == {"1|2": 0.05}


def test_each_boundary_may_have_its_own_missed_rate(run, capsys):
    decision = decide.decide(
        run, DecisionFlags(boundary=["2|3", "0|1"], max_missed=[0.2, 0.05])
    )
    assert decision.max_missed == {"0|1": 0.05, "2|3": 0.2} and saved(run) == decision
    for name, share in decision.max_missed.items():
        alone = decide.decide(run, DecisionFlags(boundary=[name], max_missed=[share]))
        assert alone.thresholds[name] == decision.thresholds[name]
    out = capsys.readouterr().out
    assert "miss at most 5%" in out and "miss at most 20%" in out
    for boundaries in (["0|1"], [], ["0|1", "0|1"]):
        with pytest.raises(ValueError, match="given 2 times and --boundary"):
            decide.decide(
                run, DecisionFlags(boundary=boundaries, max_missed=[0.2, 0.05])
            )


@pytest.mark.parametrize("kind", ["greedy", "rps"])
def test_prediction_sets_come_from_the_calibration_slice(tmp_path, capsys, kind):
    run = make_run(tmp_path / "run", splits=("val", "test", "calibration"))
    decision = decide.decide(run, DecisionFlags(coverage=0.9, sets=kind))
    out = " ".join(capsys.readouterr().out.split())
    found = read(run)
    val, held, test = (found[name] for name in ("val", "calibration", "test"))
    temperature = decisions.fit_temperature(val.probabilities, val.true)
    assert saved(run) == decision and decision.temperature == temperature
    at = decisions.apply_temperature(held.probabilities, temperature)
    assert decision.sets == conformal_sets.fit(at, held.true, 0.9, kind)
    low, high = decision.apply_sets(test.probabilities)
    overall, _ = conformal_sets.fare(low, high, test.true, 5)
    assert f"{overall.held} have their true rank in the set" in out
    assert f"{overall.mean_size:.2f} ranks on average" in out
    assert f"{overall.verdict(0.9)} the coverage of 90%" in out
    assert "accuracy" not in out  # labels are as they were


def test_a_decision_has_what_one_command_asks_for(tmp_path):
    run = make_run(tmp_path / "run", splits=("val", "test", "calibration"))
    both = decide.decide(run, DecisionFlags(cost=["1|2=5"], coverage=0.8))
    assert both.thresholds is None and both.sets.coverage == 0.8
    run.decision.write_text("{}")  # a damaged one is kept beside it
    assert decide.decide(run, DecisionFlags(max_missed=[0.05])).sets is None
    assert (run.path / "decision-2.json").read_text() == "{}"
