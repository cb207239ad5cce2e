"""Opening files that a user names: only regular ones, and none that is far too large.

A named pipe waits for a writer that may never come, a device may never end, and both
can carry the name of an image or a table.
"""

import io
import os
import pathlib
import stat

MEBIBYTE = 2**20
_KINDS = (
    (stat.S_ISFIFO, "a named pipe"),
    (stat.S_ISSOCK, "a socket"),
    (stat.S_ISCHR, "a device"),
    (stat.S_ISBLK, "a device"),
    (stat.S_ISDIR, "a folder"),
)


class NotRegularError(ValueError):
    """Something that has a file's name, but is none or is too large."""


def open_regular(
    path: str | pathlib.Path, *, max_bytes: int = 0, raise_limit: str = ""
) -> io.BufferedReader:
    """A file opened for reading bytes, whatever its name may stand for.

    Args:
      path: what to open; links are followed.
      max_bytes: the largest size that is opened; 0 for any.
      raise_limit: how the user can raise it, for the message.

    Raises:
      NotRegularError: it is no regular file, or larger than that.
      OSError: it cannot be opened.
    """
    if kind := _kind(os.stat(path).st_mode):  # before opening, which may have effects
        raise NotRegularError(_refusal(path, kind))
    # Without waiting: it may have become a pipe since. Regular files never wait.
    file = os.fdopen(os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC), "rb")
    try:
        status = os.fstat(file.fileno())
        if kind := _kind(status.st_mode):
            raise NotRegularError(_refusal(path, kind))
        if max_bytes and status.st_size > max_bytes:
            size, limit = status.st_size / MEBIBYTE, max_bytes / MEBIBYTE
            raise NotRegularError(
                f"{path}: the file has {size:,.0f} MiB, more than the limit of "
                f"{limit:,.0f} MiB that guards memory; make it smaller"
                f"{f', or {raise_limit}' if raise_limit else ''}."
            )
    except BaseException:
        file.close()
        raise
    return file


def read_regular(
    path: str | pathlib.Path, *, max_bytes: int = 0, raise_limit: str = ""
) -> bytes:
    """The content of a file, as `open_regular` opens it."""
    with open_regular(path, max_bytes=max_bytes, raise_limit=raise_limit) as file:
        # A file that grows while it is read stays within the limit too.
        return file.read(max_bytes or -1)


def _kind(mode: int) -> str:
    """What a thing is in words; "" for a regular file."""
    if stat.S_ISREG(mode):
        return ""
    return next((word for is_one, word in _KINDS if is_one(mode)), "no regular file")


def _refusal(path: str | pathlib.Path, kind: str) -> str:
    return f"{path}: it is {kind}, and only regular files are read; remove or copy it."
