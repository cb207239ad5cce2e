"""Choosing: by validation alone, and what is chosen is a configuration."""

import json

import pytest
from finished_runs import run_results
from tiny_runs import tiny

from cloc_jax.cli.studies import combinations
from cloc_jax.config_files import load_config
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import results
from cloc_jax.sweeps import sweep
from cloc_jax.sweeps.sweep import plan_runs

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
            found = run_results(
                {},
                ("0", "1", "2"),
                method=p.config.method.name,
                critical=["1|2"],
                final={"val": scores(val), "test": scores(0.987654)},
            )
            run.write(run.metrics, found.to_json())

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
        gmsec=accuracy,
        rps=error,
        recall={},
        true_counts={},
        predicted_counts={},
        confusion=[],
        boundaries={"1|2": rates},
    )


def swept(folder, choose):
    config = tiny(data__root="somewhere")
    return sweep.sweep(config, folder, combinations(VARY), seeds=2, choose=choose)


@pytest.mark.parametrize("score", ["accuracy", "mae", "rps", "gmsec", "error 1|2"])
def test_settings_are_ranked_on_validation(played, score):
    found = swept(played, score)
    ranked = [" ".join(map(str, cell.settings.values())) for cell in found.cells]
    assert ranked == sorted(VAL, key=lambda name: -VAL[name])
    chosen = json.loads((played / "summary.json").read_text())["chosen"]
    assert chosen["settings"] == found.cells[0].settings
    best = 0.8 if score in ("accuracy", "gmsec") else 0.2
    assert chosen["val"]["mean"] == pytest.approx(best)


def test_nothing_of_the_test_data_is_shown_or_written(played, capsys):
    swept(played, "accuracy")
    shown = capsys.readouterr().out
    assert "val accuracy" in shown and "0.800" in shown
    written = [
        (played / name).read_text()
        for name in ("summary.json", "summary.csv", "chosen.json")
    ]
    for text in (shown, *written):
        for figure in ("0.98", "0.0123"):
            assert figure not in text
    for text in (shown.replace(str(played), ""), *written[:2]):
        assert "test" not in text


def test_the_choice_is_a_configuration(played, capsys):
    swept(played, "accuracy")
    path = played / "chosen.json"
    assert f"python launch.py --config={path}" in capsys.readouterr().out
    found, _ = load_config(str(path))
    wanted = tiny(data__root="somewhere")
    wanted.method.name = "sord"
    wanted.optimizer.learning_rate = 0.001
    assert found.to_dict() == wanted.to_dict()


def test_a_setting_with_a_run_missing_is_not_chosen(played):
    swept(played, "accuracy")
    (played / "name=sord,learning_rate=0.001,seed=1" / "metrics.json").unlink()
    plans = plan_runs(tiny(), combinations(VARY), seeds=2)
    found = sweep.summarize(played, plans, is_choosing=True)
    ranked = sweep.rank_cells(found, "accuracy").cells
    assert ranked[0].settings["method.name"] == "ce" and ranked[-1].unfinished


@pytest.mark.parametrize(
    "vary, choose, message",
    [
        (VARY, "beauty", "--choose is 'beauty'; use one of accuracy"),
        ([], "accuracy", "needs several settings"),
    ],
)
def test_refused(vary, choose, message, tmp_path):
    with pytest.raises(ValueError, match=message):
        settings = combinations(vary)
        sweep.sweep(tiny(), tmp_path / "s", settings, seeds=1, choose=choose)
    assert not (tmp_path / "s").exists()
