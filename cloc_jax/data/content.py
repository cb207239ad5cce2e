"""What files hold, as a digest: the one fingerprint of data.

A digest is the sha256 of all bytes of a file, so that no change goes unnoticed and two
copies have the same. Digests are kept in the user's cache folder by path and by what
the file system says of the file (size, inode, times of change of content and of
attributes), so a file is read again only when one of these differs. What cannot be
kept is computed each time.
"""

import contextlib
import hashlib
import os
import pathlib
import sqlite3
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent import futures

from cloc_jax.runtime import environment, files

CACHE = "content.sqlite3"  # in the user's cache folder
UNREADABLE = "unreadable"  # begins what stands in place of a digest
# A file that changed a moment ago may change once more within one tick of the clock,
# so its digest is not kept yet.
_SETTLED_NS = 2 * 10**9
_AT_ONCE = 4096  # files between two writes of the cache


def digest(path: str | pathlib.Path, *, max_bytes: int = 0) -> str:
    """sha256 of a file's bytes, 64 hexadecimal digits; from the cache if it is there.

    Raises OSError, or ValueError for what is no regular file or has more than
    `max_bytes` (0 for any number).
    """
    with _kept(max_bytes) as kept:
        return kept.digest(path)


def digests(
    paths: Sequence[str | pathlib.Path],
    *,
    threads: int = 2,
    max_bytes: int = 0,
    advance: Callable[[], None] = lambda: None,
) -> list[str]:
    """As `digest`, of many files; UNREADABLE and why for those that cannot be read.

    `advance` is called after each file.
    """
    found: list[str] = []
    with _kept(max_bytes) as kept, futures.ThreadPoolExecutor(threads) as pool:
        for start in range(0, len(paths), _AT_ONCE):
            for one in pool.map(kept.known, paths[start : start + _AT_ONCE]):
                found.append(one)
                advance()
            kept.write()
    return found


def unreadable(contents: Mapping[str, str]) -> set[str]:
    """The names whose file could not be read, where each has what `digests` gave."""
    return {name for name, one in contents.items() if one.startswith(UNREADABLE)}


class _Kept:
    """Digests that are kept, and those to be kept."""

    def __init__(self, database: sqlite3.Connection | None, max_bytes: int):
        self._database, self._max_bytes = database, max_bytes
        self._new: dict[bytes, tuple[str, str]] = {}

    def known(self, path: str | pathlib.Path) -> str:
        try:
            return self.digest(path)
        except (OSError, ValueError) as error:
            return f"{UNREADABLE} {type(error).__name__}"

    def digest(self, path: str | pathlib.Path) -> str:
        name = os.fsencode(os.path.abspath(path))
        # Opened also where the digest is known: it fails where reading would.
        with files.open_regular(path, max_bytes=self._max_bytes) as file:
            before = _state(file.fileno())
            if old := self._read(name, before):
                return old
            found = hashlib.file_digest(file, "sha256").hexdigest()
            is_settled = time.time_ns() - _changed_ns(file.fileno()) > _SETTLED_NS
            if is_settled and _state(file.fileno()) == before:
                self._new[name] = (before, found)
        return found

    def write(self) -> None:
        """Keeps what was computed."""
        new, self._new = self._new, {}
        if self._database is None or not new:
            return
        rows = [(name, state, found) for name, (state, found) in new.items()]
        # A cache that cannot be written costs time only.
        with contextlib.suppress(sqlite3.Error), self._database:
            self._database.executemany(
                "INSERT OR REPLACE INTO content VALUES (?, ?, ?)", rows
            )

    def _read(self, name: bytes, state: str) -> str:
        if self._database is None:
            return ""
        with contextlib.suppress(sqlite3.Error):
            row = self._database.execute(
                "SELECT sha256 FROM content WHERE path = ? AND state = ?", (name, state)
            ).fetchone()
            return row[0] if row and len(row[0]) == 64 else ""
        return ""


@contextlib.contextmanager
def _kept(max_bytes: int) -> Iterator[_Kept]:
    database = _opened(environment.cache_folder() / CACHE)
    kept = _Kept(database, max_bytes)
    try:
        yield kept
        kept.write()
    finally:
        if database is not None:
            database.close()


def _opened(path: pathlib.Path) -> sqlite3.Connection | None:
    """The cache, made if it is not there; None where that cannot be."""
    for _ in range(2):
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            # Python's sqlite3 lets one thread at a time use the connection.
            database = sqlite3.connect(path, timeout=5, check_same_thread=False)
            database.execute(
                "CREATE TABLE IF NOT EXISTS content "
                "(path BLOB PRIMARY KEY, state TEXT, sha256 TEXT)"
            )
            return database
        except sqlite3.OperationalError:  # locked for long, or a folder without locks
            return None
        except sqlite3.DatabaseError:  # damaged: only a cache, and made again
            with contextlib.suppress(OSError):
                path.unlink()
        except OSError:
            return None
    return None


def _state(descriptor: int) -> str:
    status = os.fstat(descriptor)
    # The time of change of attributes moves with every write and cannot be set back.
    return f"{status.st_size} {status.st_mtime_ns} {status.st_ctime_ns} {status.st_ino}"


def _changed_ns(descriptor: int) -> int:
    status = os.fstat(descriptor)
    return max(status.st_mtime_ns, status.st_ctime_ns)
