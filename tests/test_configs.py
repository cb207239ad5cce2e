"""Configurations: the paper's values, and that every file fits the one schema."""

import importlib
import json
import math
import re

import numpy as np
import pytest
from flax import nnx

from cloc_jax.config import (
    AUGMENT_LIMITS,
    check_settings,
    default_config,
    saved_config,
)
from cloc_jax.config_files import CONFIGS
from cloc_jax.data.augment import Augment
from cloc_jax.methods import METHODS
from cloc_jax.runtime import sharding
from cloc_jax.runtime.run_folder import flatten
from cloc_jax.training import assembly, encoder
from cloc_jax.training.assembly import build_dataset
from configs import official

OFFICIAL = list(official.RECIPES)
NAMES = [p.stem for p in sorted(CONFIGS.glob("[a-z]*.py")) if p.stem != "official"]
VARIANTS = [
    *((name, variant) for name in NAMES for variant in ("", "frozen")),
    *(("official", name) for name in OFFICIAL),
]


def config_of(name, variant):
    return importlib.import_module(f"configs.{name}").get_config(variant)


def test_the_papers_values_are_the_defaults():
    config = default_config()
    assert config.optimizer.name == "adam"
    assert config.optimizer.learning_rate == 1e-3
    assert config.optimizer.weight_decay == 0
    assert config.train.max_epochs == 500
    assert config.method.cloc.stop_accuracy == 0.95
    assert config.train.patience == 10
    assert config.method.name == "cloc"
    assert config.method.cloc.margins == "learn"
    assert config.method.cloc.rho == 0
    assert config.method.cloc.margin_start == (0.5, 1.0)
    assert config.method.cloc.weight == 1
    assert config.method.cloc.contrast == "embedding"
    assert config.head.projection == 0


@pytest.mark.parametrize("name", NAMES)
def test_margins_are_as_free_as_the_papers_when_asked(name):
    for variants, is_frozen in (("literal", False), ("frozen,literal", True)):
        config = config_of(name, variants)
        assert config.method.cloc.margin_budget == 0
        assert config.encoder.frozen == is_frozen
    assert config_of(name, "").method.cloc.margin_budget > 0


def test_koa_is_the_papers_protocol():
    from configs import koa

    config = koa.get_config()
    assert config.data.crop == (120, 200) and config.data.equalize
    assert config.data.critical == ("1|2",)
    assert config.augment.perspective and config.augment.blur_sigma
    assert not config.augment.flip_horizontal and not config.augment.flip_vertical


@pytest.mark.parametrize("name, variant", VARIANTS)
def test_every_file_has_the_fields_of_base_and_survives_json(name, variant):
    config = config_of(name, variant)
    schema = default_config().to_dict()
    assert flatten(config.to_dict()).keys() == flatten(schema).keys()
    saved = json.loads(json.dumps(config.to_dict()))
    assert saved_config(saved).to_dict() == config.to_dict()


def test_the_papers_competitors_have_their_official_recipe():
    wanted = {"orcnn", "poe", "gol", "mwr", "rnc", "simclr", "supcon", "dino"}
    assert wanted <= set(OFFICIAL) <= set(METHODS)


@pytest.mark.parametrize(
    "name",
    [
        pytest.param(name, marks=() if name == "gol" else pytest.mark.slow)
        for name in OFFICIAL
    ],
)
def test_an_official_recipe_builds_its_method_on_drawn_data(name):
    config = config_of("official", name)
    assert config.method.name == name
    needs = official.RECIPES[name].__doc__
    assert re.search(r"\bGPUs?\b|\bTPUs?\b", needs)
    dataset = build_dataset(config)
    config.encoder.weights = "random"  # so that nothing is downloaded
    method = assembly.build_method(config, len(dataset.ranks), sharding.make_mesh(1))
    parts = assembly.check(config, dataset)
    assert all(batches.steps_per_epoch > 0 for batches in parts.samplers)
    create = encoder.Creator(encoder.resolve(config), method)
    shapes = nnx.state(nnx.eval_shape(create.random), nnx.Param)
    assert sum(np.prod(p.shape) for p in nnx.to_flat_state(shapes).leaves) > 10_000_000


@pytest.mark.parametrize("name", [*NAMES, "official"])
def test_a_variant_that_there_is_not_is_named_with_those_there_are(name):
    last = "dino" if name == "official" else "frozen"
    with pytest.raises(ValueError, match=f"no variant 'x'; it has .*:{last}"):
        config_of(name, "x")


@pytest.mark.parametrize(
    "group, field, value",
    [
        ("train", "turbo", 1),
        ("train", "batch_size", "many"),
    ],
)
def test_what_a_saved_configuration_may_not_hold_is_named(group, field, value):
    values = default_config().to_dict()
    values.setdefault(group, {})[field] = value
    with pytest.raises(ValueError, match=f"has {group}.{field}={value!r}, which this"):
        saved_config(values)


def test_every_strength_of_augmentation_has_its_limit():
    assert set(AUGMENT_LIMITS) == set(default_config().augment)
    assert set(AUGMENT_LIMITS) == set(Augment._fields)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
@pytest.mark.parametrize(
    "name",
    [
        "optimizer.learning_rate",
        "method.cloc.margins",
        "augment.scale",
    ],
)
def test_a_setting_that_is_no_number_is_named(name, value):
    config = default_config()
    given = [0.5, value, 0.5, 0.5] if name.endswith("margins") else value
    config.update_from_flattened_dict({name: given})
    with pytest.raises(ValueError, match=f"{name} is {value}; use a finite number"):
        check_settings(config)


SIZES = [(32, "a"), (32.5, 32), (32,), (8, 32), (True, 32), (), (32, None)]


@pytest.mark.parametrize(
    "changes, message",
    [
        *(({"data.size": size}, "data.size is .* whole numbers") for size in SIZES),
        *(
            ({f"augment.{name}": value}, rf"augment\.{name} is .*give a number from 0")
            for name in AUGMENT_LIMITS
            for value in (-0.1, 1000.0)
        ),
        ({"seed": -1}, "seed is -1; use a number from 0"),
        ({"data.seed": 2**32}, "data.seed is 4294967296"),
        ({"data.channels": 2}, "data.channels is 2; use 1 for grey"),
        ({"data.crop": (1, 2, 3)}, r"data.crop is \(1, 2, 3\)"),
        ({"data.threads": 0}, "data.threads is 0; use 1 or more"),
        ({"data.threads": 100_000}, "data.threads is 100000; use 1024 at most"),
        ({"data.max_pixels": 0}, "data.max_pixels is 0"),
        ({"encoder.batch_norm": "sync"}, "batch_norm is 'sync'; use one of global"),
        ({"encoder.views": 2}, "no part of the encoder is frozen"),
        (
            {"encoder.frozen": True, "encoder.trainable_from": "layer4"},
            "set one of them",
        ),
        ({"method.gol.tau": 2}, "method.gol.tau is set, but method.name is cloc"),
        ({"method.rnc.probe.epochs": 2}, "method.rnc.probe is set, but"),
    ],
)
def test_settings_that_make_no_sense_are_refused(changes, message):
    config = default_config()
    check_settings(config, ["cloc"])
    config.update_from_flattened_dict(changes)
    with pytest.raises(ValueError, match=message):
        check_settings(config, ["cloc"])
