"""Errors of the operating system as sentences: what failed, where, and what to do."""

import contextlib
import errno
import os
import pathlib
import re
import tempfile
from collections.abc import Iterator

GO_ON = "An interrupted run goes on with --resume, a sweep with the same command."
# What can be done, by kind of error; the sentence has the file and the system's words.
ADVICE = {
    errno.ENOSPC: f"Make room on that disk; what was written before is whole. {GO_ON}",
    errno.EDQUOT: "The quota there is used up: make room; what was written before is "
    f"whole. {GO_ON}",
    errno.EFBIG: "Files may not grow further there (ulimit -f, or the file system); "
    f"raise the limit. {GO_ON}",
    errno.EACCES: "Change its permissions, or give another place.",
    errno.EPERM: "Change its permissions, or give another place.",
    errno.EROFS: "Give a place that can be written to.",
    errno.ENOENT: "Check the name, and whether it was removed meanwhile.",
    errno.ENOTDIR: "A part of the path is a file; give another path.",
    errno.EISDIR: "It is a folder; name a file.",
    errno.EEXIST: "Give another name, or move it away.",
    errno.ELOOP: "It is a link that leads back to itself; remove the link.",
    errno.ENAMETOOLONG: "Give a shorter name.",
    errno.EIO: "The disk or the network behind it fails; copy what is there to another "
    "place.",
    errno.ESTALE: "The network file system was mounted anew; start again.",
    errno.EMFILE: "Too many files are open; raise the limit (ulimit -n).",
    errno.ENOMEM: "There is not enough memory; use smaller batches or images.",
}
NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
NO_MEMORY = "RESOURCE_EXHAUSTED: Out of memory"  # as XLA says it of a device
BY_TEXT = (
    errno.ENOSPC,
    errno.EDQUOT,
    errno.EFBIG,
    errno.EROFS,
    errno.EACCES,
    errno.EIO,
)


def sentence(error: BaseException) -> str:
    """What happened and what to do, where the system is behind an error; else "".

    Libraries in C++ wrap the system's errors in their own, which have its words.
    """
    causes: list[BaseException] = []
    cause: BaseException | None = error
    while cause is not None and cause not in causes:
        causes.append(cause)
        cause = cause.__cause__ or cause.__context__
    known = [c for c in causes if isinstance(c, OSError) and c.errno is not None]
    # The first that names a file, since some do not.
    for found in sorted(known, key=lambda c: c.filename is None):
        return _sentence(found.errno or 0, found.filename, found.filename2)
    if any(isinstance(c, MemoryError) or NO_MEMORY in str(c) for c in causes):
        return _sentence(errno.ENOMEM)
    numbers = (_number(str(cause)) for cause in causes)
    return next((_sentence(number) for number in numbers if number), "")


@contextlib.contextmanager
def naming(path: str | os.PathLike) -> Iterator[None]:
    """Lets errors of the system name the file, which those of writing do not."""
    try:
        yield
    except OSError as error:
        if error.errno is not None and error.filename is None:
            error.filename = os.fspath(path)
        raise


def check_writable(path: pathlib.Path, flag: str) -> None:
    """OSError where nothing could be written at a path, which need not exist yet."""
    place = next(p for p in (path, *path.absolute().parents) if p.exists())
    place = place if place.is_dir() or place != path else place.parent
    try:
        with tempfile.TemporaryFile(dir=place):
            pass
    except OSError as error:
        number = errno.ENOTDIR if not place.is_dir() else error.errno
        words = os.strerror(number or errno.EIO)
        raise OSError(
            f"{flag}={path} cannot be written: {place}: {words}. "
            f"{ADVICE.get(number or 0, 'Give another place.')}"
        ) from None


def _sentence(number: int, *names: str | bytes | int | None) -> str:
    files = [os.fsdecode(n) for n in names if isinstance(n, str | bytes) and n]
    words = os.strerror(number)
    where = f"{' -> '.join(files)}: {words}" if files else words
    return f"{where}. {ADVICE.get(number, '')}".rstrip()


def _number(text: str) -> int:
    """The system's error that a message of a library is about, or 0."""
    found = re.search(r"OS error (\d+)", text) or re.search(r"errno[= ]+(\d+)", text)
    if found:
        return int(found[1])
    return next((n for n in BY_TEXT if os.strerror(n).lower() in text.lower()), 0)


@contextlib.contextmanager
def of_library(path: str | os.PathLike) -> Iterator[None]:
    """Turns a library's errors about the system into an OSError that names a path."""
    try:
        yield
    except Exception as error:
        number = error.errno if isinstance(error, OSError) else _number(str(error))
        if not number:
            raise
        raise OSError(number, os.strerror(number), os.fspath(path)) from error
