"""Configurations of runs, also of those that an older version made."""

import copy

import pytest

from cloc_jax.build import saved_config
from configs import base

# config.json of the version that had CLOC and cross-entropy only; what was moved since
# has other values than the defaults.
OLD = {
    "seed": 3,
    "expect": "MAE 0.3",
    "data": {
        "name": "koa",
        "root": "/data/koa",
        "prepared": "",
        "on_bad_image": "error",
        "max_pixels": 89478485,
        "size": [120, 200],
        "channels": 1,
        "crop": [120, 200],
        "equalize": True,
        "order": [],
        "csv": "",
        "columns": {"path": "", "label": "", "split": "", "group": ""},
        "critical": ["1|2"],
        "val_fraction": 0.1,
        "test_fraction": 0.15,
        "calibration_fraction": 0.0,
        "merge_val": False,
        "group_pattern": "",
        "fold": 0,
        "subset": "",
        "bin": 1,
        "landmarks": "",
        "relabel": [],
        "permute": 0,
        "subsample": [],
        "seed": 0,
        "num_train": 2000,
        "num_val": 400,
        "num_test": 1000,
        "threads": 2,
        "cache_gib": 4.0,
    },
    "augment": {
        "flip_horizontal": 0.0,
        "flip_vertical": 0.0,
        "rotate_degrees": 8.0,
        "translate": 0.0,
        "scale": 0.0,
        "shear_degrees": 0.0,
        "perspective": 0.0,
        "perspective_probability": 0.5,
        "blur_sigma": 0.0,
        "brightness": 0.0,
        "contrast": 0.0,
        "saturation": 0.0,
        "hue": 0.0,
        "random_crop": 0.0,
        "autoaugment": 0.0,
    },
    "encoder": {
        "name": "resnet50",
        "weights": "resnet50.safetensors",
        "widths": [16, 32, 64, 128],
        "pooling": "fc",
        "channels": "repeat",
        "dtype": "float32",
        "remat": False,
        "stride": "3x3",
        "epsilon": 1e-05,
        "preprocessing": "imagenet_rgb",
        "frozen": True,
        "trainable_from": "",
        "views": 1,
        "cache_gib": 32.0,
    },
    "method": {
        "name": "cloc",
        "margins": ["learn", 0.8, "learn=0.7", "learn>=0.2"],
        "rho": 0.1,
        "margin_start": [0.4, 0.9],
        "margin_form": "relu",
        "margin_budget": 2.0,
        "weight": 0.5,
        "reduction": "paper",
        "algorithm": "dense",
        "contrast": "logits",
        "projection": 128,
        "projection_relu": True,
        "classifier": "cosine",
        "hidden": 64,
        "activation": "tanh",
    },
    "optimizer": {
        "name": "sgd",
        "learning_rate": 0.01,
        "encoder_learning_rate": None,
        "weight_decay": 0.0001,
        "margins": "adam",
        "margin_learning_rate": 0.05,
    },
    "mesh": {"devices": 0, "shard_params": False},
    "train": {
        "batch_size": 32,
        "max_epochs": 40,
        "stop_accuracy": 0.9,
        "patience": 5,
        "monitor": "qwk",
        "phases": 1,
        "phase_two_init": "pretrained",
        "sampling": "balanced",
        "eval_batch_size": 256,
        "log_steps": 20,
        "checkpoint_steps": 500,
    },
}
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


def flat(tree, prefix=""):
    for key, value in tree.items():
        if isinstance(value, dict):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def test_every_value_of_an_older_run_is_in_its_new_place():
    defaults = dict(flat(base.get_config().to_dict()))
    found = dict(flat(saved_config.read(OLD, base.get_config()).to_dict()))
    assert found.keys() == defaults.keys()
    read = {MOVED.get(name, name): value for name, value in flat(OLD)}
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
        saved_config.read(values, base.get_config())


def test_nothing_is_read_into_a_method_of_another_name():
    values = copy.deepcopy(OLD) | {"method": {"name": "ce"}}
    found = saved_config.read(values, base.get_config())
    assert found.method.name == "ce"
    assert found.method.cloc.margins == "learn"
