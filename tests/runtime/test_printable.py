"""What people see of names that hold anything."""

import io
import os

import pytest
from rich.table import Table

from cloc_jax.runtime.console import SafeConsole
from cloc_jax.runtime.errors import printable


@pytest.mark.parametrize(
    "text, shown",
    [
        ("Grad 3, größer", "Grad 3, größer"),
        ("two\nlines\tand more", "two\nlines\tand more"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("a\rb\x08c\x7f\x9b", r"a\rb\x08c\x7f\x9b"),
        (os.fsdecode(b"caf\xe9.png"), r"caf\xe9.png"),
        ("abc\u202egnp.exe", r"abc\u202egnp.exe"),
        ("\ud800", r"\ud800"),
    ],
)
def test_shown(text, shown):
    assert printable(text) == shown
    assert printable(shown) == shown  # nothing is escaped twice


def test_console_obeys_nothing_in_text():
    out = io.TextIOWrapper(io.BytesIO(), encoding="utf-8")
    console = SafeConsole(file=out, markup=False, highlight=False, width=200)
    name = "\x1b[2J" + os.fsdecode(b"\xff.png")
    console.print(f"skipped {name}")
    table = Table(name, title=name)
    table.add_row(name)
    console.print(table)
    out.flush()
    written = out.buffer.getvalue()
    assert written.count(rb"\x1b[2J\xff.png") == 4 and b"\x1b" not in written
