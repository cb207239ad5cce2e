"""Settings that are no numbers: refused before anything is read, made or compiled."""

import math
from typing import Any

from ml_collections import ConfigDict


def check(config: ConfigDict) -> None:
    """ValueError where a setting is not a number (NaN) or infinite."""
    odd = _odd("", config.to_dict())
    if odd:
        named = ", ".join(f"{name} is {value}" for name, value in odd)
        raise ValueError(f"{named}; use a finite number.")


def _odd(name: str, value: Any) -> list[tuple[str, float]]:
    if isinstance(value, dict):
        parts = [(f"{name}.{key}" if name else key, v) for key, v in value.items()]
    elif isinstance(value, list | tuple):
        parts = [(name, v) for v in value]
    else:
        is_odd = isinstance(value, float) and not math.isfinite(value)
        return [(name, value)] if is_odd else []
    return [found for part in parts for found in _odd(*part)]
