"""Choosing: by validation alone, and what is chosen is a configuration."""

import json
import shlex
import sys

import pytest
from absl import flags
from ml_collections import config_flags
from tiny_runs import tiny

from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import results
from cloc_jax.sweeps import choice, summary, sweep
from cloc_jax.sweeps.plan import combinations, plan_runs, value_of

VARY = ["method.name=ce;sord", "optimizer.learning_rate=0.001;0.01"]
# Mean validation accuracy of the four settings; test accuracy ranks them otherwise.
VAL = {"ce 0.001": 0.6, "ce 0.01": 0.7, "sord 0.001": 0.8, "sord 0.01": 0.5}


@pytest.fixture
def played(tmp_path, monkeypatch):
    """A sweep whose runs are written, not trained."""

    def write(plans, folder, options):
        for p in plans:
            run = RunFolder(folder / p.name)
            run.path.mkdir(parents=True)
            name = f"{p.config.method.name} {p.config.optimizer.learning_rate:g}"
            val = VAL[name] + (0.01 if p.config.seed else -0.01)
            found = results.RunResults(
                final={"val": scores(val), "test": scores(0.987654)},
                ranks=["0", "1", "2"],
                critical=["1|2"],
                method=p.config.method.name,
                dataset="synthetic",
                readouts={},
                stages=[],
                seconds={},
                environment={},
                order_score=results.OrderScore(None, {}, 0),
            )
            run.write_metrics(found.to_json())

    monkeypatch.setattr(sweep, "train_runs", write)
    return tmp_path / "sweep"


def scores(accuracy):
    error = 1 - accuracy
    rates = results.BoundaryRates(*[error] * 6, missed_count=0, false_alarm_count=0)
    return results.SplitScores(
        count=20,
        accuracy=accuracy,
        mae=error,
        qwk=None,
        one_off_accuracy=1.0,
        macro_mae=error,
        recall={},
        true_counts={},
        predicted_counts={},
        confusion=[],
        boundaries={"1|2": rates},
    )


def swept(folder, choose, per=""):
    config = tiny(data__root="somewhere")
    options = {"vary": VARY, "seeds": 2}
    return sweep.sweep(config, folder, choose=choose, per=per, **options)


@pytest.mark.parametrize(
    "score, best",
    [("accuracy", "sord 0.001"), ("mae", "sord 0.001"), ("error 1|2", "sord 0.001")],
)
def test_settings_are_ranked_on_validation(played, score, best):
    found = swept(played, score)
    ranked = [" ".join(map(str, cell.settings.values())) for cell in found.cells]
    assert ranked == sorted(VAL, key=lambda name: -VAL[name])
    assert ranked[0] == best
    written = json.loads((played / "summary.json").read_text())
    assert written["chosen"][0]["val"]["mean"] == pytest.approx(
        0.8 if score == "accuracy" else 0.2
    )


def test_nothing_of_the_test_data_is_shown_or_written(played, capsys):
    swept(played, "accuracy")
    shown = capsys.readouterr().out
    assert "val accuracy" in shown and "0.800" in shown
    written = [
        (played / name).read_text()
        for name in ("summary.json", "summary.csv", "chosen.py")
    ]
    for text in (shown, *written):
        for figure in ("0.98", "0.0123"):
            assert figure not in text
    for text in (shown.replace(str(played), ""), *written[:2]):
        assert "test" not in text


def test_the_choice_is_a_configuration(played, monkeypatch, capsys):
    swept(played, "accuracy")
    path = played / "chosen.py"
    printed = "".join(capsys.readouterr().out.split())
    assert f"pythonlaunch.py--config={path}" in printed
    monkeypatch.setattr(sys, "argv", ["launch.py", f"--config={path}"])
    values = flags.FlagValues()
    found = config_flags.DEFINE_config_file("config", flag_values=values)
    values(sys.argv)
    wanted = tiny(data__root="somewhere")
    wanted.method.name = "sord"
    wanted.optimizer.learning_rate = 0.001
    assert found.value.to_dict() == wanted.to_dict()


def test_the_best_of_each_method(played, capsys):
    swept(played, "accuracy", per="method.name")
    chosen = json.loads((played / "summary.json").read_text())["chosen"]
    assert {c["per"]: c["settings"]["optimizer.learning_rate"] for c in chosen} == {
        "sord": 0.001,
        "ce": 0.01,
    }
    assert (played / "chosen_ce.py").exists() and (played / "chosen_sord.py").exists()
    shown = "".join(capsys.readouterr().out.split())
    assert "--set=synthetic/ce:optimizer.learning_rate=0.01" in shown


def test_flags_for_tables_survive_the_shell():
    margins = ("learn", 0.5)
    settings = {"method.name": "cloc", "method.cloc.margins": margins}
    found = choice.table_flags("idrid", settings)
    [word] = shlex.split(found)
    name, _, text = word.removeprefix("--set=idrid/cloc:").partition("=")
    assert (name, value_of(text)) == ("method.cloc.margins", margins)


def test_a_setting_with_a_run_missing_is_not_chosen(played):
    swept(played, "accuracy")
    (played / "name=sord,learning_rate=0.001,seed=1" / "metrics.json").unlink()
    plans = plan_runs(tiny(), combinations(VARY), seeds=2)
    found = summary.summarize(played, plans, is_choosing=True)
    ranked, [best] = choice.rank(found, "accuracy", "")
    assert best.settings["method.name"] == "ce"
    assert ranked.cells[-1].unfinished


@pytest.mark.parametrize(
    "vary, choose, per, message",
    [
        (VARY, "beauty", "", "--choose is 'beauty'; use one of accuracy"),
        ([], "accuracy", "", "needs several settings"),
        (VARY, "accuracy", "train.patience", "which no --vary names"),
        (VARY, "", "method.name", "add --choose"),
    ],
)
def test_refused(vary, choose, per, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        sweep.sweep(tiny(), tmp_path / "s", vary=vary, seeds=1, choose=choose, per=per)
    assert not (tmp_path / "s").exists()
