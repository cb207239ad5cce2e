"""Configurations of runs, also of those that an older version made."""

import copy
import json
import pathlib

import pytest

from cloc_jax.config import default_config
from cloc_jax.runtime.dotted_names import flatten
from cloc_jax.training import saved_config

# config.json of the version that had CLOC and cross-entropy only; what was moved since
# has other values than the defaults.
FILE = pathlib.Path(__file__).parent.parent / "goldens" / "first_config.json"
OLD = json.loads(FILE.read_text())
MOVED = {
    "method.margins": "method.cloc.margins",
    "method.rho": "method.cloc.rho",
    "method.margin_start": "method.cloc.margin_start",
    "method.margin_form": "method.cloc.margin_form",
    "method.margin_budget": "method.cloc.margin_budget",
    "method.weight": "method.cloc.weight",
    "method.reduction": "method.cloc.reduction",
    "method.algorithm": "method.cloc.algorithm",
    "method.contrast": "method.cloc.contrast",
    "method.projection": "head.projection",
    "method.projection_relu": "head.projection_relu",
    "method.classifier": "head.classifier",
    "method.hidden": "head.hidden",
    "method.activation": "head.activation",
    "optimizer.margins": "method.cloc.margin_optimizer",
    "optimizer.margin_learning_rate": "method.cloc.margin_learning_rate",
    "train.stop_accuracy": "method.cloc.stop_accuracy",
    "train.phases": "method.cloc.phases",
    "train.phase_two_init": "method.cloc.phase_two_init",
}


def test_every_value_of_an_older_run_is_in_its_new_place():
    defaults = flatten(default_config().to_dict())
    found = flatten(saved_config.read(OLD, default_config()).to_dict())
    assert found.keys() == defaults.keys()
    read = {MOVED.get(name, name): value for name, value in flatten(OLD).items()}
    for name, value in read.items():
        assert found[name] == (tuple(value) if isinstance(value, list) else value)
    assert all(found[name] != defaults[name] for name in MOVED.values())
    rest = defaults.keys() - read.keys()  # later fields
    assert {n: found[n] for n in rest} == {n: defaults[n] for n in rest}


@pytest.mark.parametrize(
    "group, field, value",
    [
        ("train", "turbo", 1),
        ("train", "batch_size", "many"),
        ("clusters", "count", 4),
        ("method", "turbo", 1),
    ],
)
def test_what_is_not_understood_is_named(group, field, value):
    values = copy.deepcopy(OLD)
    values.setdefault(group, {})[field] = value
    with pytest.raises(ValueError, match=f"has {group}.{field}={value!r}, which this"):
        saved_config.read(values, default_config())


def test_nothing_is_read_into_a_method_of_another_name():
    values = copy.deepcopy(OLD) | {"method": {"name": "ce"}}
    found = saved_config.read(values, default_config())
    assert found.method.name == "ce"
    assert found.method.cloc.margins == "learn"
