"""Nested settings by dotted names, such as train.batch_size."""

from collections.abc import Mapping
from typing import Any


def flatten(tree: Mapping[str, Any], prefix: str = "") -> dict[str, Any]:
    """The values of nested dicts by dotted name; empty dicts are left out."""
    flat: dict[str, Any] = {}
    for key, value in tree.items():
        name = f"{prefix}{key}"
        is_dict = isinstance(value, Mapping)
        flat |= flatten(value, f"{name}.") if is_dict else {name: value}
    return flat
