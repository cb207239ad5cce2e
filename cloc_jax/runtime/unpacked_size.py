"""A limit on what packed files become in memory.

A few kilobytes can unpack to terabytes. What is read is therefore counted before or
while it is unpacked, and refused beyond a limit that the user can raise.
"""

import os
import pathlib
import zipfile
from typing import Any

LIMIT = "CLOC_UNPACKED_GIB"  # environment variable
DEFAULT_GIB = 4.0
_GIBIBYTE = 2**30
_MAX_HEADER = 64 * 2**20  # bytes read at once; a tar header can ask for any number


class TooLarge(ValueError):
    """Something that would take more memory than the limit."""


def limit() -> int:
    """Bytes that one file may unpack to."""
    given = os.environ.get(LIMIT, str(DEFAULT_GIB))
    try:
        gibibytes = float(given)
    except ValueError:
        gibibytes = 0.0
    if not 0 < gibibytes < 2**20:
        raise ValueError(f"{LIMIT} is {given!r}; give a number of GiB above 0.")
    return int(gibibytes * _GIBIBYTE)


def check(size: int, where: str | pathlib.Path) -> None:
    """TooLarge where so many bytes, unpacked from a file, are beyond the limit."""
    if size > limit():
        raise TooLarge(
            f"{where} unpacks to {size / _GIBIBYTE:,.2f} GiB or more, beyond the limit "
            f"of {limit() / _GIBIBYTE:g} GiB that guards memory; get another file, or "
            f"raise the limit with the environment variable {LIMIT} if you trust it."
        )


def check_zip(file: Any, where: str | pathlib.Path) -> None:
    """The same for a zip archive, such as .npz, by what its members say they hold.

    No member gives more than it says. What is no archive is left to its reader.
    """
    try:
        with zipfile.ZipFile(file) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):
        return
    finally:
        if hasattr(file, "seek"):
            file.seek(0)
    check(size, where)


class LimitedReader:
    """An unpacking file that ends with TooLarge where it goes beyond the limit."""

    def __init__(self, file: Any, where: str | pathlib.Path):
        self._file, self._where = file, where

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= _MAX_HEADER:
            raise TooLarge(
                f"{self._where} has a header of {size:,} bytes; get another file."
            )
        check(self._file.tell() + size, self._where)
        return self._file.read(size)

    def seek(self, place: int, whence: int = os.SEEK_SET) -> int:
        assert whence == os.SEEK_SET
        check(place, self._where)  # seeking unpacks all before
        return self._file.seek(place)

    def tell(self) -> int:
        return self._file.tell()
