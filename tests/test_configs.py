"""Configurations: the paper's values, and that every file fits the one schema."""

import importlib
import json
import pathlib
import re

import pytest

import launch
from cloc_jax.build import saved_config
from configs import base

FILES = sorted(
    p.stem for p in (pathlib.Path(launch.__file__).parent / "configs").glob("[a-z]*.py")
)


def test_the_papers_values_are_the_defaults():
    config = base.get_config()
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
    schema = base.get_config()

    def names(part, prefix=""):
        for key, value in part.to_dict().items():
            if isinstance(value, dict):
                yield from names(part[key], f"{prefix}{key}.")
            else:
                yield prefix + key

    assert set(names(config)) == set(names(schema))
    saved = json.loads(json.dumps(config.to_dict()))
    assert saved_config.read(saved, base.get_config()).to_dict() == config.to_dict()


def test_every_field_of_base_has_its_comment():
    """On its line or on the one before; a stage's settings are the optimizer's."""
    lines = pathlib.Path(base.__file__).read_text().splitlines()
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
