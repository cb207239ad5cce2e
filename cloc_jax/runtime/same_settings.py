"""Which settings of a run differ from those it is to go on with."""

import json
from collections.abc import Mapping
from typing import Any

from cloc_jax.runtime import dotted_names


def changes(before: Mapping[str, Any], now: Mapping[str, Any]) -> list[str]:
    """What makes two configurations different runs, as a user would write it.

    Devices do not, nor do settings of methods other than the chosen one: those of one
    method may change in a sweep over several.
    """
    saved, given = _used(before), _used(now)
    return [
        f"config.{name} was {saved.get(name)!r}, is now {given.get(name)!r}"
        for name in sorted(saved | given)
        if saved.get(name) != given.get(name)
    ]


def _used(config: Mapping[str, Any]) -> dict[str, Any]:
    """Settings by dotted name, as JSON keeps them: tuples are lists."""
    tree = json.loads(json.dumps(config))
    tree.pop("mesh", None)
    method = tree.get("method", {})
    chosen = method.get("name")
    tree["method"] = {
        name: value
        for name, value in method.items()
        if name == chosen or not isinstance(value, dict)
    }
    return dotted_names.flatten(tree)
