"""Configurations: the paper's values, and that every file fits the one schema."""

import importlib
import json
import pathlib
import re

import numpy as np
import pytest
from flax import nnx

import launch
from cloc_jax import config as schema_module
from cloc_jax.config import default_config
from cloc_jax.methods import METHODS
from cloc_jax.runtime import sharding
from cloc_jax.runtime.dotted_names import flatten
from cloc_jax.training import assembly, encoder, saved_config
from cloc_jax.training.dataset import build_dataset

FOLDER = pathlib.Path(launch.__file__).parent / "configs"
FILES = sorted(
    ".".join(p.relative_to(FOLDER).with_suffix("").parts)
    for p in FOLDER.glob("**/[a-z]*.py")
)
OFFICIAL = [
    name.removeprefix("official.")
    for name in FILES
    if name.startswith("official.") and name != "official.recipe_parts"
]


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


def test_koa_is_the_papers_protocol():
    from configs import koa

    config = koa.get_config()
    assert config.data.crop == (120, 200) and config.data.equalize
    assert config.data.critical == ("1|2",)
    assert config.augment.perspective and config.augment.blur_sigma
    assert not config.augment.flip_horizontal and not config.augment.flip_vertical


@pytest.mark.parametrize("name", FILES)
def test_every_file_has_the_fields_of_base_and_survives_json(name):
    config = importlib.import_module(f"configs.{name}").get_config()
    schema = default_config().to_dict()
    assert flatten(config.to_dict()).keys() == flatten(schema).keys()
    saved = json.loads(json.dumps(config.to_dict()))
    assert saved_config.read(saved, default_config()).to_dict() == config.to_dict()


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
    module = importlib.import_module(f"configs.official.{name}")
    config = module.get_config()
    assert config.method.name == name
    assert re.search(r"\bGPUs?\b|\bTPUs?\b", module.__doc__)  # what it needs
    dataset = build_dataset(config)
    config.encoder.weights = "random"  # so that nothing is downloaded
    method = assembly.build_method(config, len(dataset.ranks), sharding.make_mesh(1))
    for index, stage in enumerate(method.stages):
        batches = assembly.sampler(config, dataset, stage, index)
        assert batches.steps_per_epoch > 0
        assembly.build_optimizer(config, stage, batches)
        assembly.check_views(config, stage)
    create = encoder.Creator(encoder.resolve(config), method)
    shapes = nnx.state(nnx.eval_shape(create.random), nnx.Param)
    assert sum(np.prod(p.shape) for p in nnx.to_flat_state(shapes).leaves) > 10_000_000


def rates(name):
    """Learning rates of a recipe's stages."""
    config = importlib.import_module(f"configs.official.{name}").get_config()
    method = assembly.build_method(config, 5, sharding.make_mesh(1))
    return [
        dict(config.optimizer.to_dict() | dict(s.optimizer))["learning_rate"]
        for s in method.stages
    ]


@pytest.mark.parametrize(
    "name, expected",
    [
        ("orcnn", [5e-4]),
        ("poe", [1e-4]),
        ("gol", [1e-4]),
        ("mwr", [1e-4]),
        ("rnc", [0.5, 0.2]),
        ("simclr", [4.8, 1.6]),  # batch 4096
        ("supcon", [0.5, 10.0]),
        ("dino", [0.06, 0.002]),  # batch 512
    ],
)
def test_official_rates_are_those_of_the_authors_batch(name, expected):
    assert rates(name) == pytest.approx(expected)


def test_every_field_of_base_has_its_comment():
    """On its line or on the one before; a stage's settings are the optimizer's."""
    lines = pathlib.Path(schema_module.__file__).read_text().splitlines()
    fields = re.compile(r"    (?!stage\.)\w+\.(\w+\.)*\w+ = (?P<value>.*)")
    bare = [
        line.strip()
        for before, line in zip(lines, lines[1:], strict=False)
        if (field := fields.fullmatch(line))
        and not re.match(r"ConfigDict\(|_\w+\(", field["value"])
        and ".pretrain." not in line
        and "#" not in line
        and not before.strip().startswith("#")
    ]
    assert bare == []
