"""NaN and infinity are refused wherever they stand in a configuration."""

import math

import pytest
from tiny_runs import tiny

from cloc_jax.sweeps import run_plan
from cloc_jax.training import finite_settings
from cloc_jax.training.dataset import build_dataset


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name",
    [
        "optimizer.learning_rate",
        "optimizer.weight_decay",
        "optimizer.encoder_learning_rate",
        "method.cloc.weight",
        "method.cloc.margins",
        "augment.scale",
        "data.val_fraction",
    ],
)
def test_a_setting_that_is_no_number_is_named(name, value):
    config = tiny()
    given = [0.5, value, 0.5, 0.5] if name.endswith("margins") else value
    config.update_from_flattened_dict({name: given})
    with pytest.raises(ValueError, match=f"{name} is {value}; use a finite number"):
        build_dataset(config)


def test_a_sweep_names_it_before_the_first_run():
    setting = run_plan.Setting("x", {"optimizer.learning_rate": math.nan})
    good = run_plan.Setting("y", {"optimizer.learning_rate": 0.1})
    with pytest.raises(ValueError, match="learning_rate is nan"):
        run_plan.plan_runs(tiny(), [good, setting], seeds=1)


def test_all_defaults_are_finite():
    finite_settings.check(tiny())
