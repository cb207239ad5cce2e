"""Tables in text files: commas, semicolons or tabs, blanks and blank columns."""

import csv
import io
import pathlib
from collections.abc import Sequence
from typing import NamedTuple

from cloc_jax.data.layouts.listing import comma
from cloc_jax.runtime import files

MAX_BYTES = 512 * files.MEBIBYTE


class Row(list[str]):
    """Stripped cells of a line, as many as the header has."""

    def __init__(self, cells: Sequence[str], line: int):
        super().__init__(cells)
        self.line = line


class Table(NamedTuple):
    """A table with or without a header."""

    path: pathlib.Path
    header: list[str]  # names of the columns; empty where there is no header
    rows: list[Row]  # lines that are not blank

    def column(self, *names: str) -> int:
        """Place of the first column with one of the names, whatever their case."""
        lower = [name.lower() for name in self.header]
        for name in names:
            if name.lower() in lower:
                return lower.index(name.lower())
        raise ValueError(
            f"{self.path} has no column {' or '.join(names)}; it has "
            f"{comma(filter(None, self.header)) or 'none with a name'}."
        )


def read_table(
    path: pathlib.Path, *, has_header: bool = True, max_bytes: int = MAX_BYTES
) -> Table:
    """Reads a table; the separator is the one that is most common in its first line."""
    text = _text(path, max_bytes)
    first = next((line for line in text.splitlines() if line.strip()), "")
    if not first:
        raise ValueError(f"{path} is empty; a table of images was wanted.")
    separator = max(",;\t", key=first.count)
    header: list[str] = []
    rows: list[Row] = []
    reader = csv.reader(io.StringIO(text, newline=""), delimiter=separator, strict=True)
    line = 1
    try:
        for cells in reader:
            cells = [cell.strip() for cell in cells]
            if any(cells) and has_header and not header:
                header = cells
            elif any(cells):
                rows.append(Row(cells + [""] * (len(header) - len(cells)), line))
            line = reader.line_num + 1
    except csv.Error as error:
        raise ValueError(
            f'{path} line {line}: {error}; a quote (") is missing or too many, or the '
            "file is damaged. Correct the line."
        ) from None
    return Table(path, header, rows)


def _text(path: pathlib.Path, max_bytes: int) -> str:
    """The content of the file, as text."""
    try:
        data = files.read_regular(
            path, max_bytes=max_bytes, raise_limit="raise data.max_file_mib"
        )
        return data.decode("utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no table {path}; check the path.") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a text file in UTF-8; save the table as CSV (UTF-8)."
        ) from None
    except (OSError, ValueError) as error:
        raise ValueError(f"the table cannot be read: {error}") from None
