"""Tables in text files: commas, semicolons or tabs, blanks and blank columns."""

import csv
import pathlib
from collections.abc import Sequence

from cloc_jax.data.layouts.listing import comma


class Row(list[str]):
    """Stripped cells of a line, as many as the header has."""

    def __init__(self, cells: Sequence[str], line: int):
        super().__init__(cells)
        self.line = line


class Table:
    """A table with or without a header.

    Attributes:
        path: The file.
        header: Names of the columns; empty where there is no header.
        rows: Lines that are not blank.
    """

    def __init__(self, path: pathlib.Path, header: list[str], rows: list[Row]):
        self.path, self.header, self.rows = path, header, rows

    def column(self, *names: str) -> int:
        """Place of the first column with one of the names, whatever their case."""
        place = self.find(*names)
        if place is None:
            raise ValueError(
                f"{self.path} has no column {' or '.join(names)}; it has "
                f"{comma(filter(None, self.header)) or 'none with a name'}."
            )
        return place

    def find(self, *names: str) -> int | None:
        """As `column`, or None where there is none."""
        lower = [name.lower() for name in self.header]
        for name in names:
            if name.lower() in lower:
                return lower.index(name.lower())
        return None


def read(path: pathlib.Path, *, has_header: bool = True) -> Table:
    """Reads a table; the separator is the one that is most common in its first line."""
    try:
        text = path.read_text(encoding="utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no table {path}; check the path.") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a text file in UTF-8; save the table as CSV (UTF-8)."
        ) from None
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read as a table ({error.strerror})."
        ) from None
    lines = text.splitlines()
    first = next((line for line in lines if line.strip()), "")
    if not first:
        raise ValueError(f"{path} is empty; a table of images was wanted.")
    separator = max(",;\t", key=first.count)
    header: list[str] = []
    rows: list[Row] = []
    reader = csv.reader(lines, delimiter=separator)
    for cells in reader:
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if has_header and not header:
            header = cells
            continue
        cells += [""] * (len(header) - len(cells))
        rows.append(Row(cells, reader.line_num))
    return Table(path, header, rows)
