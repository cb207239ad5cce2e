"""Frozen dataclasses to plain JSON and back, checked against their annotations."""

import dataclasses
import functools
import types
import typing
from collections.abc import Mapping
from typing import Any, TypeVar

T = TypeVar("T")


def to_plain(value: Any) -> Any:
    """Dataclasses as dicts and tuples as lists, all the way down."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: to_plain(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], plain: Any, name: str = "") -> T:
    """An instance of a dataclass from what `to_plain` made of it.

    Fields that are missing get their defaults; unknown ones are ignored, so that a file
    may hold more than its reader needs.

    Args:
      kind: a dataclass whose fields are annotated with plain types, other dataclasses,
        `list[…]`, `tuple[…, ...]`, `dict[str, …]` and unions with None of these.
      plain: as read from JSON.
      name: of the value, for messages.

    Raises:
      ValueError: naming the field whose value is not as annotated.
    """
    if not isinstance(plain, Mapping):
        raise ValueError(f"{name or kind.__name__} is {_shown(plain)}, not an object")
    values = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        place = f"{name}.{field.name}" if name else field.name
        if field.name in plain:
            annotation = _annotations(kind)[field.name]  # type: ignore[arg-type]
            values[field.name] = _read(annotation, plain[field.name], place)
        elif _is_required(field):
            raise ValueError(f"{place} is missing")
    return kind(**values)


def _is_required(field: dataclasses.Field) -> bool:
    missing = dataclasses.MISSING
    return field.default is missing and field.default_factory is missing


@functools.cache
def _annotations(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _read(annotation: Any, value: Any, name: str) -> Any:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any:
        return value
    if origin in (types.UnionType, typing.Union):
        if value is None and type(None) in inner:
            return None
        (only,) = [kind for kind in inner if kind is not type(None)]
        return _read(only, value, name)
    if dataclasses.is_dataclass(annotation):
        return from_plain(typing.cast(type, annotation), value, name)
    if origin in (list, tuple):
        if not isinstance(value, list | tuple):
            raise ValueError(f"{name} is {_shown(value)}, not a list")
        items = [_read(inner[0], v, f"{name}[{i}]") for i, v in enumerate(value)]
        return origin(items)
    if origin is dict:
        if not isinstance(value, Mapping):
            raise ValueError(f"{name} is {_shown(value)}, not an object")
        return {k: _read(inner[1], v, f"{name}.{k}") for k, v in value.items()}
    # A whole number is a float too, but True is no number.
    accepted = (int, float) if annotation is float else (annotation,)
    if type(value) not in accepted:
        raise ValueError(f"{name} is {_shown(value)}, not {annotation.__name__}")
    return float(value) if annotation is float else value


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 40 else f"{text[:37]}..."
