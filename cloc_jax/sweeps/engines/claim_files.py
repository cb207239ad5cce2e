"""Claims: files that keep two drivers or workers off one run, on any shared disk.

A claim is a file that only one process can create. Its owner touches it while it works,
so a claim whose owner has died is known by its age: measured by watching the file, not
by comparing clocks of two machines. On the owner's own machine the death is seen at
once.
"""

import contextlib
import errno
import json
import os
import pathlib
import platform
import threading
import time
import uuid
from collections.abc import Iterator

FOLDER = "claims"  # in that of the runs
BEAT_SECONDS = 10.0  # between two touches of a claim
STALE_SECONDS = 90.0  # untouched for so long, a claim counts for nothing
LOOK_SECONDS = 0.5
# What a disk says that has no hard links.
NO_LINKS = (errno.EPERM, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOSYS)


class Claims:
    """The claims of this process in a folder of runs; use as a context manager."""

    def __init__(self, folder: pathlib.Path):
        self._folder = folder / FOLDER
        self._held: dict[str, str] = {}  # the text of each, by its name
        self._ended = threading.Event()
        self._beat = threading.Thread(target=self._touch, daemon=True)

    def __enter__(self) -> "Claims":
        self._folder.mkdir(parents=True, exist_ok=True)
        self._beat.start()
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._beat.join()
        for name in list(self._held):
            self.release(name)

    def take(self, name: str, *, patience: float = STALE_SECONDS) -> bool:
        """Whether this process has the claim now.

        One whose owner is dead is taken over, after `patience` seconds of watching it
        if the owner was on another machine.
        """
        path = self._folder / name
        text = json.dumps(_myself() | {"token": uuid.uuid4().hex})
        first, seen = time.monotonic(), _state(path)
        while True:
            if _create(path, text):
                self._held[name] = text
                return True
            now = _state(path)
            if now is None:
                continue  # it was released just now
            is_old = now == seen and time.monotonic() - first >= patience
            dead = is_dead(path)
            if dead or (dead is None and is_old):
                _take_away(path, now)
            elif dead is False or now != seen:
                return False
            else:
                time.sleep(min(LOOK_SECONDS, patience))

    def release(self, name: str) -> None:
        """Gives the claim back, unless somebody took it over."""
        text = self._held.pop(name)
        with contextlib.suppress(FileNotFoundError):
            if self._is_mine(name, text):
                (self._folder / name).unlink()

    def _is_mine(self, name: str, text: str) -> bool:
        return (self._folder / name).read_text() == text

    def _touch(self) -> None:
        while not self._ended.wait(BEAT_SECONDS):
            for name, text in list(self._held.items()):
                # A shared disk may fail once; the next beat is in time.
                with contextlib.suppress(OSError):
                    if self._is_mine(name, text):
                        os.utime(self._folder / name)


@contextlib.contextmanager
def claimed(folder: pathlib.Path, names: list[str]) -> Iterator[list[str]]:
    """Claims those of the names that nobody else works on, and gives these."""
    with Claims(folder) as claims:
        yield [name for name in names if claims.take(name)]


@contextlib.contextmanager
def alone(folder: pathlib.Path, name: str) -> Iterator[None]:
    """Waits for a claim that others have for a moment only, and holds it."""
    with Claims(folder) as claims:
        while not claims.take(name):
            time.sleep(LOOK_SECONDS)
        yield


def owner(folder: pathlib.Path, name: str) -> str:
    """Who has a claim, for people; "" where nobody has."""
    try:
        about = json.loads((folder / FOLDER / name).read_text())
    except (FileNotFoundError, ValueError):
        return ""
    return f"process {about['pid']} on {about['host']}"


def is_dead(path: pathlib.Path) -> bool | None:
    """Whether a claim's owner has died; None where that cannot be seen from here."""
    try:
        about = json.loads(path.read_text())
    except FileNotFoundError:
        return None
    except ValueError:
        return None  # it is being written, or was cut off: its age will tell
    mine = _myself()
    if any(about[key] != mine[key] for key in ("host", "boot", "processes")):
        return None
    if not about["started"]:
        return None  # a system that does not say: the age will tell
    return _started(about["pid"]) != about["started"]


def _create(path: pathlib.Path, text: str) -> bool:
    """Makes the file with that text at one stroke, unless there is one."""
    part = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}")
    part.write_text(text)
    try:
        os.link(part, path)
        return True
    except FileExistsError:
        return False
    except OSError as error:
        if error.errno not in NO_LINKS:
            raise
        return _create_empty(path, text)
    finally:
        part.unlink()


def _create_empty(path: pathlib.Path, text: str) -> bool:
    """The same at two strokes, where there are no links."""
    try:
        with path.open("x") as file:
            file.write(text)
        return True
    except FileExistsError:
        return False


def _take_away(path: pathlib.Path, seen: tuple[int, int] | None) -> None:
    """Removes a claim that counts for nothing, unless it is another one by now."""
    moved = path.with_name(f".{path.name[:80]}.{uuid.uuid4().hex}")
    with contextlib.suppress(FileNotFoundError):
        os.rename(path, moved)  # of several that try, one succeeds
        if _state(moved) != seen:
            _create(path, moved.read_text())  # somebody had taken it over before us
        moved.unlink()


def _state(path: pathlib.Path) -> tuple[int, int] | None:
    """What changes whenever a claim is touched or made anew."""
    try:
        found = path.stat()
    except FileNotFoundError:
        return None
    return found.st_ino, found.st_mtime_ns


def _myself() -> dict[str, str | int]:
    return {
        "host": platform.node(),
        "boot": _read("/proc/sys/kernel/random/boot_id"),
        "processes": _link("/proc/self/ns/pid"),  # another in each container
        "pid": os.getpid(),
        "started": _started(os.getpid()),
    }


def _started(pid: int) -> str:
    """When a process started, in ticks; "" where there is none, or only its remains.

    A number may have been given to another process since.
    """
    fields = _read(f"/proc/{pid}/stat").rpartition(")")[2].split()
    return fields[19] if len(fields) > 19 and fields[0] not in "ZX" else ""


def _read(path: str) -> str:
    try:
        return pathlib.Path(path).read_text().strip()
    except OSError:
        return ""


def _link(path: str) -> str:
    try:
        return os.readlink(path)
    except OSError:
        return ""
