"""Files that are whole or not there: written beside their place, then renamed."""

import csv
import io
import itertools
import json
import os
import pathlib
from collections.abc import Iterable, Sequence
from typing import Any

from cloc_jax.runtime import os_errors

PART = ".part"  # suffix of what is being written


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes UTF-8 text, replacing the file as a whole."""
    write_bytes(path, text.encode())


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes strict JSON, replacing the file as a whole."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_csv(path: pathlib.Path, rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table as UTF-8, replacing the file as a whole.

    Names of files that are not UTF-8 keep their bytes.
    """
    text = io.StringIO(newline="")
    csv.writer(text).writerows(rows)
    write_bytes(path, text.getvalue().encode(errors="surrogateescape"))


def write_bytes(path: pathlib.Path, data: bytes) -> None:
    """Writes bytes, replacing the file as a whole."""
    # Two processes may write the same file at once.
    part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    try:
        with os_errors.naming(path), part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else a crash may leave the name without content
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


def unused(path: pathlib.Path) -> pathlib.Path:
    """The path, or with -2, -3, … before its suffix: the first that does not exist."""
    others = (path.with_stem(f"{path.stem}-{n}") for n in range(2, 10**6))
    return next(p for p in itertools.chain([path], others) if not p.exists())
