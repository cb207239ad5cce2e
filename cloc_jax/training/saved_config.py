"""The configuration of a run as the current schema has it, also of older runs."""

import os
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.runtime import dotted_names

# Fields that had another name when only two methods existed.
RENAMED = {
    **{
        f"method.{name}": f"method.cloc.{name}"
        for name in (
            "margins",
            "rho",
            "margin_start",
            "margin_form",
            "margin_budget",
            "weight",
            "reduction",
            "algorithm",
            "contrast",
        )
    },
    **{
        f"method.{name}": f"head.{name}"
        for name in (
            "projection",
            "projection_relu",
            "classifier",
            "hidden",
            "activation",
        )
    },
    "train.stop_accuracy": "method.cloc.stop_accuracy",
    "train.phases": "method.cloc.phases",
    "train.phase_two_init": "method.cloc.phase_two_init",
    "optimizer.margins": "method.cloc.margin_optimizer",
    "optimizer.margin_learning_rate": "method.cloc.margin_learning_rate",
}


def read(values: Mapping[str, Any], schema: ConfigDict) -> ConfigDict:
    """What config.json holds, typed as the schema; fields it lacks get its defaults.

    Args:
      values: as read from the file.
      schema: with every field; it is filled in, locked and returned.
    """
    schema.lock()  # a field that it lacks is an error
    if values.get("encoder", {}).get("trainable_from"):
        schema.encoder.kept_dtype = "float32"  # before there was a choice
    for name, value in dotted_names.flatten(values).items():
        name = RENAMED.get(name, name)
        *groups, field = name.split(".")
        part = schema
        try:
            for group in groups:
                part = part[group]
            part[field] = tuple(value) if isinstance(value, list) else value
        except (KeyError, TypeError):
            raise ValueError(
                f"the run's config.json has {name}={value!r}, which this version does "
                "not understand; use the version of cloc_jax that made the run."
            ) from None
    return with_absolute_places(schema)


def with_absolute_places(config: ConfigDict) -> ConfigDict:
    """The configuration with folders that mean the same wherever a job is started.

    In place. Runs of earlier versions may have them relative to where they started.
    """
    for place in ("root", "prepared"):
        if config.data[place]:
            config.data[place] = os.path.abspath(os.path.expanduser(config.data[place]))
    return config
