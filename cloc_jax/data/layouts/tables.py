"""Tables in text files: commas, semicolons or tabs, blanks and blank columns."""

import csv
import io
import pathlib
from collections.abc import Iterator, Sequence

from cloc_jax.data.layouts.listing import comma, plural
from cloc_jax.runtime import files

MAX_BYTES = 512 * files.MEBIBYTE


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


def read_table(
    path: pathlib.Path, *, has_header: bool = True, max_bytes: int = MAX_BYTES
) -> Table:
    """Reads a table; the separator is the one that is most common in its first line."""
    text = _text(path, max_bytes)
    lines = io.StringIO(text, newline="")
    first = next((line for line in lines if line.strip()), "")
    if not first:
        raise ValueError(f"{path} is empty; a table of images was wanted.")
    separator = max(",;\t", key=first.count)
    header: list[str] = []
    rows: list[Row] = []
    lines.seek(0)
    for cells, line in _parsed(lines, separator, path):
        width = len(header or cells)
        if any("\n" in cell or "\r" in cell for cell in cells):
            _check_quotes(cells, width, separator, line, path)
        cells = [cell.strip() for cell in cells]
        if not any(cells):
            continue
        if has_header and not header:
            header = cells
            continue
        cells += [""] * (len(header) - len(cells))
        rows.append(Row(cells, line))
    return Table(path, header, rows)


def _text(path: pathlib.Path, max_bytes: int) -> str:
    """The content of the file, as text."""
    try:
        text = files.read_regular(
            path, max_bytes=max_bytes, raise_limit="raise data.max_file_mib"
        ).decode("utf-8-sig")
    except FileNotFoundError:
        raise FileNotFoundError(f"there is no table {path}; check the path.") from None
    except UnicodeDecodeError:
        raise ValueError(
            f"{path} is not a text file in UTF-8; save the table as CSV (UTF-8)."
        ) from None
    except files.NotRegularError as error:
        why = str(error).removeprefix(f"{path}: ")
        raise ValueError(f"{path} cannot be read as a table: {why}") from None
    except OSError as error:
        raise ValueError(
            f"{path} cannot be read as a table ({error.strerror})."
        ) from None
    if "\0" in text:
        line = text.count("\n", 0, text.index("\0")) + 1
        raise ValueError(
            f"{path} line {line} has a NUL byte, which no table has: the file is "
            "damaged, or of another kind; save it as CSV (UTF-8) again."
        )
    return text


def _parsed(
    lines: io.StringIO, separator: str, path: pathlib.Path
) -> Iterator[tuple[list[str], int]]:
    """Cells of each row, and the line that it begins in."""
    reader = csv.reader(lines, delimiter=separator, strict=True)
    while True:
        begin = reader.line_num + 1
        try:
            cells = next(reader)
        except StopIteration:
            return
        except csv.Error as error:
            raise ValueError(
                f"{path} line {begin}: {_problem(str(error), separator)}"
            ) from None
        yield cells, begin


def _problem(error: str, separator: str) -> str:
    if "field limit" in error:
        return (
            f"a cell has more than {csv.field_size_limit():,} characters; a quote may "
            "be missing, or the file is damaged."
        )
    return (
        f'a quote (") opens a cell here that does not end before a {separator!r} or '
        "the line's end, and would swallow what follows; close it, or write it twice "
        "where it is meant."
    )


def _check_quotes(
    cells: Sequence[str], width: int, separator: str, line: int, path: pathlib.Path
) -> None:
    """ValueError where a cell of several lines has whole rows in it.

    Two quotes that are missing make a table that is right by its form.
    """
    for place, cell in enumerate(cells):
        first, *others = cell.splitlines() or [""]
        is_row = [other.count(separator) >= width - 1 for other in others]
        if others and place < width - 1:
            is_row.append(first.count(separator) >= width - 1 - place)
        if any(is_row):
            raise ValueError(
                f"{path} line {line}: a quoted cell begins here and ends "
                f"{len(others)} {plural(others, 'line')} below, with whole rows in it; "
                'a quote (") is missing or too many. Correct it, or take line breaks '
                "out of the cell."
            )
