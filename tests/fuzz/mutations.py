"""Damage: a few changes to bytes, chosen by a generator."""

import copy
import csv
import io
import json
import random
from typing import Any

# What parsers stumble over, as text and as binary numbers.
WORDS = (
    *b'" , ; { } null true NaN -Infinity 1e999 -1 1e1 999999999999999999999'.split(),
    *b"../../../etc/passwd /dev/zero \x1b[2J \\udcff \xe2\x80\xae".split(),
    *(b"\0", b"\t", b"\n", b"\r", b"\xff", b"\xef\xbb\xbf", b"[" * 2000),
    *(b"\x7f\xff\xff\xff", b"\xff\xff\xff\x7f", b"\xff" * 8, b"\0" * 8),
    b"a" * 200_000,
)


CHANGES = (
    *("flip", "replace", "cut", "remove", "insert", "overwrite", "repeat", "splice"),
    "number",
)


def damaged(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """The bytes with one to six changes; `others` are spliced in."""
    found = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 6))):
        _change(found, rng, others)
    return bytes(found)


def _change(data: bytearray, rng: random.Random, others: list[bytes]) -> None:
    # Headers decide most, and stand in front.
    end = min(len(data), 64) if rng.random() < 0.3 else len(data)
    at, word = rng.randrange(end + 1), rng.choice(WORDS)
    match rng.choice(CHANGES):
        case "flip" if at < len(data):
            data[at] ^= 1 << rng.randrange(8)
        case "replace":
            data[at : at + 1] = bytes([rng.randrange(256)])
        case "cut":
            del data[at:]
        case "remove":
            del data[at : at + rng.choice((1, 2, 8, 64))]
        case "insert":
            data[at:at] = word
        case "overwrite":
            data[at : at + len(word)] = word
        case "repeat":
            data[at:at] = data[at : at + rng.choice((1, 16, 256))] * rng.choice((3, 50))
        case "splice":
            other = rng.choice(others)
            data[at:] = other[rng.randrange(len(other) + 1) :]
        case "number":  # a length or a count that is far too large, small or odd
            size, kind = rng.choice((2, 4, 8)), rng.choice(("little", "big"))
            value = rng.choice((0, 1, 2**15, 2**31 - 1, 2**31, 2**32 - 1, 2**63 - 1))
            data[at : at + size] = (value % 256**size).to_bytes(size, kind)


# --- damage that keeps the form ---

VALUES = (
    *(None, True, -1, 0, 10**30, 1.5, 1e308, float("nan"), float("-inf")),
    *("", "x", "\0", "../../x", "\udcff"),
    *([], {}, [[]], {"": None}, list(range(50))),
)


def odd_json(data: bytes, rng: random.Random) -> bytes:
    """JSON with one to three of its values or keys replaced or removed."""
    value = odd_value(json.loads(data), rng)
    return json.dumps(value, indent=rng.choice((None, 2))).encode()


def odd_value(value: Any, rng: random.Random) -> Any:
    """The value with one to three nodes of it replaced or removed."""
    for _ in range(rng.choice((1, 1, 2, 3))):
        value = _odd(value, rng)
    return value


def _odd(value: Any, rng: random.Random) -> Any:
    """The value with one node below it changed, or another one."""
    if not isinstance(value, dict | list) or not value or rng.random() < 0.05:
        return rng.choice(VALUES)
    keys: list[Any] = list(value) if isinstance(value, dict) else [*range(len(value))]
    key = rng.choice(keys)
    changed = copy.copy(value)
    if rng.random() < 0.15:
        del changed[key]
    elif isinstance(changed, dict) and rng.random() < 0.15:
        changed[rng.choice(("", "x", "0", "\udcff"))] = changed.pop(key)
    else:
        changed[key] = _odd(value[key], rng)
    return changed


def odd_cells(data: bytes, rng: random.Random) -> bytes:
    """A table with some of its cells replaced, moved, added or removed."""
    text = data.decode("utf-8-sig")
    separator = max(",;\t", key=text.partition("\n")[0].count)
    rows = list(csv.reader(io.StringIO(text, newline=""), delimiter=separator))
    for _ in range(rng.choice((1, 1, 2, 5))):
        row = rng.choice(rows)
        at = rng.randrange(len(row) + 1)
        cell = rng.choice((*WORDS, b"", b"2.0", b"nan", b"0", b"train", b"0.png"))
        row[at : at + rng.randrange(3)] = [cell.decode("utf-8", "surrogateescape")]
        if not row:
            row.append("")
    out = io.StringIO(newline="")
    quoting = rng.choice((csv.QUOTE_ALL, csv.QUOTE_MINIMAL))
    csv.writer(out, delimiter=separator, quoting=quoting).writerows(rows)
    return out.getvalue().encode("utf-8", "surrogateescape")


FORMS = {
    ".json": odd_json,
    ".csv": odd_cells,
}


def of_file(name: str, data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """A file damaged in its bytes, or, half of the time, within its form."""
    suffix = "." + name.rpartition(".")[2]
    if suffix in FORMS and rng.random() < 0.5:
        return FORMS[suffix](data, rng)
    return damaged(data, rng, others)
