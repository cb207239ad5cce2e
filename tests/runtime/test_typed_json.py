"""Typed JSON: what was written comes back, and what was not is named."""

import dataclasses

import pytest

from cloc_jax.runtime import typed_json


@dataclasses.dataclass(frozen=True)
class Inner:
    share: float | None
    names: tuple[str, ...] = ()


@dataclasses.dataclass(frozen=True)
class Outer:
    count: int
    inner: dict[str, Inner]
    rows: list[list[int]]
    note: str = ""


VALUE = Outer(3, {"1|2": Inner(0.5, ("a", "b")), "2|3": Inner(None)}, [[1, 2], []])


def test_there_and_back():
    plain = typed_json.to_plain(VALUE)
    assert plain["inner"]["1|2"] == {"share": 0.5, "names": ["a", "b"]}
    assert typed_json.from_plain(Outer, plain) == VALUE


def test_whole_numbers_are_floats_and_more_is_ignored():
    plain = {"count": 1, "inner": {"x": {"share": 1}}, "rows": [], "more": 2}
    assert typed_json.from_plain(Outer, plain).inner["x"].share == 1


@pytest.mark.parametrize(
    "change, message",
    [
        ({"count": True}, "count is True, not int"),
        ({"count": 1.5}, "count is 1.5, not int"),
        ({"inner": {"1|2": {"share": "0.5"}}}, r"inner.1\|2.share is '0.5', not float"),
        ({"inner": {"1|2": {}}}, r"inner.1\|2.share is missing"),
        ({"inner": []}, "inner is \\[\\], not an object"),
        ({"rows": [[1], 2]}, r"rows\[1\] is 2, not a list"),
        ({"rows": [[1, None]]}, r"rows\[0\]\[1\] is None, not int"),
    ],
)
def test_what_is_not_as_annotated_is_named(change, message):
    with pytest.raises(ValueError, match=message):
        typed_json.from_plain(Outer, typed_json.to_plain(VALUE) | change)
