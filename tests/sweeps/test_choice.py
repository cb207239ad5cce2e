"""Choosing: by validation alone, and what is chosen is a configuration."""

import shlex
import sys

import pytest
from absl import flags
from ml_collections import config_flags
from tiny_runs import tiny

from cloc_jax.config import default_config
from cloc_jax.paper import table_plans
from cloc_jax.runtime import files
from cloc_jax.sweeps import choice, sweep, sweep_summary
from cloc_jax.sweeps.run_plan import plan_runs

VARY = ["method.name=ce;sord", "optimizer.learning_rate=0.001;0.01"]
# Mean validation accuracy of the four settings; test accuracy ranks them otherwise.
VAL = {"ce 0.001": 0.6, "ce 0.01": 0.7, "sord 0.001": 0.8, "sord 0.01": 0.5}


@pytest.fixture
def played(tmp_path, monkeypatch):
    """A sweep whose runs are written, not trained."""

    def run(plans, folder, options):
        for p in plans:
            place = folder / p.name
            place.mkdir(parents=True)
            name = f"{p.config.method.name} {p.config.optimizer.learning_rate:g}"
            val = VAL[name] + (0.01 if p.config.seed else -0.01)
            rates = {"1|2": {"error_rate": 1 - val, "crossing_rate": 1 - val}}
            found = {
                "final": {
                    "val": scores(val, 1 - val, rates),
                    "test": scores(0.987654, 0.0123456, rates),
                },
                "critical": ["1|2"],
                "margins": {},
                "readouts": {},
            }
            files.write_sealed(place / "metrics.json", found)

    monkeypatch.setattr(sweep, "carry_out", run)
    return tmp_path / "sweep"


def scores(accuracy, mae, rates):
    return {
        "accuracy": accuracy,
        "mae": mae,
        "qwk": None,
        "count": 20,
        "macro_mae": mae,
        "boundaries": rates,
    }


def swept(folder, choose, per=""):
    config = tiny(data__root="somewhere")
    options = {"vary": VARY, "seeds": 2, "schema": default_config}
    return sweep.sweep(config, folder, choose=choose, per=per, **options)


@pytest.mark.parametrize(
    "score, best",
    [("accuracy", "sord 0.001"), ("mae", "sord 0.001"), ("error 1|2", "sord 0.001")],
)
def test_settings_are_ranked_on_validation(played, score, best):
    summary = swept(played, score)
    ranked = [" ".join(map(str, c["settings"].values())) for c in summary["cells"]]
    assert ranked == sorted(VAL, key=lambda name: -VAL[name])
    assert ranked[0] == best
    assert summary["chosen"][0]["val"]["mean"] == pytest.approx(
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
    summary = swept(played, "accuracy", per="method.name")
    assert {
        c["per"]: c["settings"]["optimizer.learning_rate"] for c in summary["chosen"]
    } == {
        "sord": 0.001,
        "ce": 0.01,
    }
    assert (played / "chosen_ce.py").exists() and (played / "chosen_sord.py").exists()
    shown = "".join(capsys.readouterr().out.split())
    assert "--set=synthetic/ce:optimizer.learning_rate=0.01" in shown


def test_flags_for_tables_survive_the_shell():
    margins = ("learn", 0.5)
    found = choice._flags(
        "idrid", {"per": "cloc", "settings": {"method.cloc.margins": margins}}
    )
    [word] = shlex.split(found)
    name, value = table_plans.pair(word.removeprefix("--set=idrid/cloc:"), "")
    assert (name, value) == ("method.cloc.margins", margins)


def test_a_setting_with_a_run_missing_is_not_chosen(played):
    swept(played, "accuracy")
    (played / "name=sord,learning_rate=0.001,seed=1" / "metrics.json").unlink()
    settings = sweep.combinations(VARY)
    plans = plan_runs(tiny(), settings, seeds=2, is_resolved=False)
    summary = sweep_summary.summarize(played, plans, splits=("val",))
    ranked = choice.rank(summary, "accuracy", "")
    assert ranked["chosen"][0]["settings"]["method.name"] == "ce"
    assert ranked["cells"][-1]["unfinished"]


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
