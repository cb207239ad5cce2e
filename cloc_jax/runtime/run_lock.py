"""One writer per folder: a lock that ends with the process that holds it.

The lock is the operating system's, on an open file, so a killed process leaves nothing
that blocks. The file says who holds it, for the one that has to wait.
"""

import contextlib
import errno
import json
import os
import pathlib
import platform
import time
from collections.abc import Iterator

NAME = "lock"
# What file systems without locks answer; there, nothing is locked.
NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.EINVAL}


class InUse(OSError):
    """Another process writes into the folder."""


@contextlib.contextmanager
def held(folder: pathlib.Path, job: str, *, is_new: bool = False) -> Iterator[None]:
    """Lets no other process write into a folder meanwhile; raises InUse if one does.

    The same process may hold it several times. With `is_new` the folder is made, and
    removed where nothing was written into it.
    """
    import filelock  # late: `launch.py --help` answers at once

    missing = [path for path in (folder, *folder.parents) if not path.exists()]
    if is_new:
        folder.mkdir(parents=True, exist_ok=True)
    path = folder.resolve() / NAME
    lock = filelock.FileLock(path, timeout=0, is_singleton=True, thread_local=False)
    try:
        lock.acquire()
    except filelock.Timeout:
        raise InUse(_who(folder)) from None
    except OSError as error:
        if error.errno not in NO_LOCKS:
            raise
    is_first = lock.lock_counter <= 1
    try:
        if is_first:
            _write_holder(path, job)
        yield
    finally:
        if is_first:
            path.unlink(missing_ok=True)  # while it is still locked
        lock.release()
        for made in missing if is_new else ():
            with contextlib.suppress(OSError):  # it is not empty, as it should be
                made.rmdir()


def leftovers(folder: pathlib.Path) -> list[pathlib.Path]:
    """What is in a folder besides its lock."""
    return [path for path in folder.iterdir() if path.name != NAME]


def _write_holder(path: pathlib.Path, job: str) -> None:
    holder = {
        "pid": os.getpid(),
        "host": platform.node(),
        "since": time.strftime("%Y-%m-%d %H:%M:%S"),
        "job": job,
    }
    with contextlib.suppress(OSError):  # a full disk: the lock holds without it
        path.write_text(json.dumps(holder) + "\n")


def _who(folder: pathlib.Path) -> str:
    try:
        holder = json.loads((folder / NAME).read_text())
        who = (
            f"process {holder['pid']} on {holder['host']} ({holder['job']}) has been "
            f"writing into it since {holder['since']}"
        )
    except (OSError, ValueError, KeyError, TypeError):
        who = "another process writes into it"
    return (
        f"{folder} is in use: {who}. Wait until it ends or end it, or give another "
        "--run folder."
    )
