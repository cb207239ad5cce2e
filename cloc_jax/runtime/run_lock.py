"""One writer per folder: a lock that ends with the process that holds it.

The lock is the operating system's, on an open file, so a killed process leaves nothing
that blocks. The file says who holds it, for the one that has to wait.
"""

import contextlib
import errno
import fcntl
import json
import os
import pathlib
import platform
import time
from collections.abc import Iterator
from typing import IO

NAME = "lock"
# What file systems without locks answer; there, nothing is locked.
NO_LOCKS = {errno.ENOLCK, errno.ENOSYS, errno.EOPNOTSUPP, errno.EINVAL}

# Locks of this process, which may ask for one again while it holds it.
_held: dict[pathlib.Path, int] = {}


class InUse(OSError):
    """Another process writes into the folder."""


@contextlib.contextmanager
def held(folder: pathlib.Path, job: str, *, is_new: bool = False) -> Iterator[None]:
    """Lets no other process write into a folder meanwhile; raises InUse if one does.

    With `is_new` the folder is made, and removed where nothing was written into it.
    """
    made = _make(folder) if is_new else []
    key = folder.resolve()
    if key in _held:
        _held[key] += 1
        try:
            yield
        finally:
            _held[key] -= 1
        return
    try:
        with _locked(folder, job):
            _held[key] = 1
            try:
                yield
            finally:
                del _held[key]
    finally:
        for path in reversed(made):
            with contextlib.suppress(OSError):  # it is not empty, as it should be
                path.rmdir()


def leftovers(folder: pathlib.Path) -> list[pathlib.Path]:
    """What is in a folder besides its lock."""
    return [path for path in folder.iterdir() if path.name != NAME]


@contextlib.contextmanager
def _locked(folder: pathlib.Path, job: str) -> Iterator[None]:
    path = folder / NAME
    file = _open(path)
    try:
        about = {
            "pid": os.getpid(),
            "host": platform.node(),
            "since": time.strftime("%Y-%m-%d %H:%M:%S"),
            "job": job,
        }
        file.seek(0)
        file.truncate()
        file.write(json.dumps(about) + "\n")
        with contextlib.suppress(OSError):  # a full disk: the lock holds without it
            file.flush()
        yield
    finally:
        path.unlink(missing_ok=True)  # while it is still locked
        with contextlib.suppress(OSError):
            file.close()


def _open(path: pathlib.Path) -> IO[str]:
    """The lock's file, locked."""
    while True:
        file = path.open("a+")
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            if error.errno in NO_LOCKS:
                return file
            with file:
                if isinstance(error, BlockingIOError):
                    raise InUse(_who(path.parent, file)) from None
                raise
        # The holder before may have removed it after it was opened here.
        try:
            if os.path.samestat(os.fstat(file.fileno()), path.stat()):
                return file
        except FileNotFoundError:
            pass
        file.close()


def _who(folder: pathlib.Path, file: IO[str]) -> str:
    file.seek(0)
    try:
        about = json.loads(file.read())
        holder = (
            f"process {about['pid']} on {about['host']} ({about['job']}) has been "
            f"writing into it since {about['since']}"
        )
    except (ValueError, KeyError, TypeError):
        holder = "another process writes into it"
    return (
        f"{folder} is in use: {holder}. Wait until it ends or end it, or give another "
        "--run folder."
    )


def _make(folder: pathlib.Path) -> list[pathlib.Path]:
    """Makes the folder; returns those that were made, outermost first."""
    missing = []
    for path in (folder, *folder.parents):
        if path.exists():
            break
        missing.append(path)
    folder.mkdir(parents=True, exist_ok=True)
    return missing[::-1]
