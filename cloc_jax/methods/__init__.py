"""Methods: ways to learn ranks from images, one file each."""

import dataclasses
import inspect
from collections.abc import Callable

from cloc_jax.methods.ce import ce
from cloc_jax.methods.cloc import cloc
from cloc_jax.methods.heads import HeadOptions
from cloc_jax.methods.interface import ENCODER, MARGINS, Method, Stage, freeze, group_of
from cloc_jax.methods.stop_rules import LIMITS, Stop, Verdict

__all__ = [
    "ENCODER",
    "MARGINS",
    "METHODS",
    "Method",
    "Stage",
    "Stop",
    "Verdict",
    "build",
    "freeze",
    "group_of",
]

METHODS: dict[str, Callable[..., Method]] = {"ce": ce, "cloc": cloc}


def build(name: str, **settings) -> Method:
    """The method called `name`, with those of the settings that it takes.

    Settings that belong together go together: those of the head as `head`, those of
    every stop rule as `limits`.
    """
    if name not in METHODS:
        raise ValueError(
            f"method.name is {name!r}; this version has {', '.join(METHODS)}."
        )
    fields = [field.name for field in dataclasses.fields(HeadOptions)]
    settings["head"] = HeadOptions(**{k: settings[k] for k in fields})
    settings["limits"] = {k: settings[k] for k in LIMITS}
    takes = inspect.signature(METHODS[name]).parameters
    return METHODS[name](**{k: v for k, v in settings.items() if k in takes})
