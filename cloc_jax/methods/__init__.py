"""Methods: ways to learn ranks from images, one file each."""

import inspect
from collections.abc import Callable

from cloc_jax.methods.ce import ce
from cloc_jax.methods.cloc import cloc
from cloc_jax.methods.method import ENCODER, MARGINS, Method, Stage, freeze, group_of
from cloc_jax.methods.stopping import Stop, Verdict

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
    """The method called `name`, with those of the settings that it takes."""
    if name not in METHODS:
        raise ValueError(
            f"method.name is {name!r}; this version has {', '.join(METHODS)}."
        )
    takes = inspect.signature(METHODS[name]).parameters
    return METHODS[name](**{k: v for k, v in settings.items() if k in takes})
