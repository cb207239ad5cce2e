"""Images prepared once: checked, shrunk where they are far too large, in ArrayRecord.

    <prepared>/<dataset>-<mark of root>/records-<key>/    records and prepared.json
    <prepared>/<dataset>-<mark of root>/splits-<key>.json

The key is a hash of every file's name and content, of what is stored of it, and of the
format: other sources are another preparation, and a copy of the same at another place
is not prepared again. Records are written into a folder of their own that gets its name
when all is done, so whatever has the name is whole. Sources are only read.
"""

import collections
import contextlib
import errno
import fcntl
import functools
import hashlib
import json
import os
import pathlib
import platform
import shutil
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent import futures
from typing import Any, NamedTuple

from cloc_jax.data import content
from cloc_jax.data.layouts.listing import Item, count_of
from cloc_jax.data.prepared import stored_image
from cloc_jax.data.prepared.stored_image import Stored, Wanted
from cloc_jax.runtime import files

FORMAT = 1  # changes when the same sources would be stored otherwise
CONTENT = "content"  # how a preparation knows its sources; earlier ones do not say
_FIELDS = {"ids", "bad", "facts", "source", "options"}  # of every manifest
MANIFEST = "prepared.json"
SMALL_BYTES = 1 << 16  # files that are read as a whole to check them
SHARD_BYTES = 64 << 20  # a shard is in memory while it is written

Track = Callable[[str, int], contextlib.AbstractContextManager[Callable[[], None]]]


class Preparation(NamedTuple):
    """Prepared images."""

    path: pathlib.Path  # folder of the records
    positions: dict[str, int]  # id -> record
    bad: dict[str, str]  # id -> why it could not be read
    facts: dict[str, Any]  # sizes and kinds of the images
    contents: dict[str, str]  # id -> digest of its file

    @property
    def bad_list(self) -> pathlib.Path:
        """A table of the images that could not be read, where there are any."""
        return self.path.with_name(f"unreadable-{self.path.name[8:]}.csv")


def no_track(text: str, total: int):
    """No progress bar."""
    return contextlib.nullcontext(lambda: None)


def home(folder: pathlib.Path, name: str, root: pathlib.Path) -> pathlib.Path:
    """Where the preparations of a dataset below a root lie."""
    real = os.path.realpath(root)
    if pathlib.Path(os.path.realpath(folder)).is_relative_to(real):
        raise ValueError(
            f"data.prepared={folder} lies inside data.root={root}, which is never "
            "written to; give another folder."
        )
    mark = hashlib.blake2b(os.fsencode(real), digest_size=4).hexdigest()
    return folder / f"{name}-{mark}"


def prepare(
    items: Sequence[Item],
    folder: pathlib.Path,
    wanted: Wanted,
    *,
    options: Any = None,
    threads: int = 2,
    max_bytes: int = 0,
    say: Callable[[str], None] = print,
    track: Track = no_track,
) -> Preparation:
    """The prepared images of a listing, made now if they are not there.

    Args:
        items: What to prepare, in this order.
        folder: Where, as `home` names it.
        wanted: What is read of an image later.
        options: How items were chosen, so that another choice is not taken for what
            the sources were before; plain data.
        threads: That decode.
        max_bytes: Larger files are bad; 0 for any size.
        say: Told what is done, in one line.
        track: Context manager of a text and a total that gives a function to call
            after each image.
    """
    contents = _contents(items, threads, max_bytes, track)
    source = _hash([[i.id, contents[i.id], i.row, i.eyes] for i in items])
    path = folder / f"records-{_hash([FORMAT, source, *wanted])}"
    with _writing(folder):
        folder.mkdir(parents=True, exist_ok=True)
    manifest = _read(path)
    if manifest is None and (earlier := _made_earlier(items, folder, wanted)):
        path, manifest = earlier
    if manifest is None:
        with _lock(folder, say) as is_alone:
            manifest = _read(path)  # another process may have made it meanwhile
            if manifest is None:
                if is_alone:
                    _clean(folder, path, say)
                manifest = _take_over(path, say)
            if manifest is None:
                say(f"preparing {count_of(items)} once, in {folder}")
                about = {"source": source, "options": options, "by": CONTENT}
                store = functools.partial(
                    stored_image.store, wanted=wanted, max_bytes=max_bytes
                )
                notes = Notes(content.unreadable(contents))
                manifest = _make(
                    _shards(items, wanted), path, store, about, notes, threads, track
                )
    made = Preparation(
        path,
        {id_: position for position, id_ in enumerate(manifest["ids"])},
        dict(manifest["bad"]),
        manifest["facts"],
        contents,
    )
    if made.bad and not made.bad_list.exists():
        with _writing(folder):
            table = [("image", "why"), *sorted(made.bad.items())]
            files.write_csv(made.bad_list, table)
    return made


def stale(path: pathlib.Path) -> list[pathlib.Path]:
    """Preparations beside one, of the same images before their sources changed."""
    current = _read(path)
    found = []
    for beside in sorted(path.parent.glob("records-*")):
        other = _read(beside)
        if beside == path or current is None:
            continue
        if other is None or (
            other["options"] == current["options"]
            and other["source"] != current["source"]
            # Of the version before, whose sources cannot be compared: left alone.
            and other.get("by") == current.get("by")
        ):
            found.append(beside)
    return found


def remove(paths: Iterable[pathlib.Path]) -> None:
    """Deletes preparations."""
    for path in paths:
        (path / MANIFEST).unlink(missing_ok=True)  # first: the rest is then half
        shutil.rmtree(path)


def forget(path: pathlib.Path) -> None:
    """Lets a damaged preparation be made anew, and those that it shares files with."""
    for linked in path.parent.parent.glob(f"*/{path.name}"):
        (linked / MANIFEST).unlink(missing_ok=True)


# --- what is there ---


def _contents(
    items: Sequence[Item], threads: int, max_bytes: int, track: Track
) -> dict[str, str]:
    """Id -> digest of the file that holds the item."""
    paths = list(dict.fromkeys(item.path for item in items))
    with track("fingerprints", len(paths)) as advance:
        found = content.digests(
            paths, threads=threads, max_bytes=max_bytes, advance=advance
        )
    by_path = dict(zip(paths, found, strict=True))
    return {item.id: by_path[item.path] for item in items}


def _made_earlier(
    items: Sequence[Item], folder: pathlib.Path, wanted: Wanted
) -> tuple[pathlib.Path, dict[str, Any]] | None:
    """What the version before prepared, which knew files by size and time of change.

    Not where some could not be read: they may be readable by now.
    """
    marks = []
    for item in items:
        try:
            status = item.path.stat()
        except OSError:
            return None
        state = [status.st_size, status.st_mtime_ns]
        marks.append([item.id, state, item.row, item.eyes])
    path = folder / f"records-{_hash([FORMAT, _hash(marks), *wanted])}"
    manifest = _read(path)
    return None if manifest is None or manifest["bad"] else (path, manifest)


def _take_over(path: pathlib.Path, say: Callable[[str], None]) -> dict[str, Any] | None:
    """The records of the same images below another root, linked to here."""
    for other in sorted(path.parent.parent.glob(f"*/{path.name}")):
        if other == path or _read(other) is None:
            continue
        part = path.parent / _part_name()
        try:
            # Links, so that each root's records can be removed without the other's.
            shutil.copytree(other, part, copy_function=_link)
            os.rename(part, path)
        except OSError:
            continue
        finally:
            shutil.rmtree(part, ignore_errors=True)
        if manifest := _read(path):
            say(f"the same images are prepared in {other}; nothing to do")
            return manifest
    return None


def _link(source: str, target: str) -> None:
    try:
        os.link(source, target)
    except OSError:  # a file system without links
        shutil.copy2(source, target)


def _part_name() -> str:
    return f"part-{platform.node()}-{os.getpid()}"


def _hash(value: Any) -> str:
    text = json.dumps(value).encode()
    return hashlib.blake2b(text, digest_size=8).hexdigest()


def _read(path: pathlib.Path) -> dict[str, Any] | None:
    """The manifest of a preparation that is whole, or None."""
    try:
        manifest = files.unsealed((path / MANIFEST).read_bytes())
        sizes = {name: (path / name).stat().st_size for name in manifest["files"]}
        is_whole = sizes == manifest["files"] and _FIELDS <= manifest.keys()
        for name, digest in manifest.get("checksums", {}).items():
            files.check_digest(path / name, digest, remedy="")
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return None
    # Images that could be read before and after, but not then, are tried again.
    return manifest if is_whole and not manifest.get("unread") else None


def _clean(
    folder: pathlib.Path, path: pathlib.Path, say: Callable[[str], None]
) -> None:
    """Removes what an interrupted or damaged preparation left. Needs the lock."""
    if path.exists():
        say(f"{path} is damaged, or not all images could be read; it is made again")
        remove([path])
    for part in folder.glob("part-*"):
        say("an earlier preparation was interrupted; starting anew")
        shutil.rmtree(part)


@contextlib.contextmanager
def _lock(folder: pathlib.Path, say: Callable[[str], None]) -> Iterator[bool]:
    """Lets one process prepare at a time; ends with the process that holds it.

    Gives False on file systems that have no locks.
    """
    with _writing(folder), open(folder / "lock", "w") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            say("another process is preparing these images; waiting for it")
            fcntl.flock(file, fcntl.LOCK_EX)
        except OSError:
            yield False
            return
        yield True


@contextlib.contextmanager
def _writing(folder: pathlib.Path) -> Iterator[None]:
    """Turns errors of writing into advice."""
    try:
        yield
    except (OSError, RuntimeError) as error:
        # ArrayRecord's are RuntimeErrors with the system's words in them.
        if isinstance(error, OSError) and error.errno is None:
            raise  # has been turned already
        full = os.strerror(errno.ENOSPC)
        if getattr(error, "errno", None) == errno.ENOSPC or full in str(error):
            raise OSError(
                f"the disk of {folder} is full, so the images could not be prepared; "
                "make room there, or give another folder as data.prepared. What was "
                "half written has been removed."
            ) from error
        raise OSError(
            f"{folder} cannot be written to ({error}); give a folder that can as "
            "data.prepared."
        ) from error


# --- making it ---


def _make(
    shards: Sequence[Sequence[Item]],
    path: pathlib.Path,
    store: Callable[[Item], Stored],
    about: dict[str, Any],
    notes: "Notes",
    threads: int,
    track: Track,
) -> dict[str, Any]:
    """Writes records and manifest, and gives them their name at the very end."""
    # Imported late: it takes a second, which drawn images need not wait for.
    from cloc_jax.data.prepared import tfds_builder

    folder, part = path.parent, path.parent / _part_name()
    total = sum(map(len, shards))
    try:
        with _writing(folder), track("preparing", total) as advance:
            with futures.ThreadPoolExecutor(threads) as pool:

                def examples(shard: Sequence[Item]) -> Iterator[tuple[int, dict]]:
                    for item, stored in _ahead(pool, store, shard, 2 * threads):
                        if notes.add(item, stored):
                            name = os.fsencode(item.id)  # may not be UTF-8
                            example = {"id": name, "image": stored.data}
                            yield len(notes.ids), example
                        advance()

                tfds_builder.write(
                    part,
                    [functools.partial(examples, shard) for shard in shards],
                )
            shutil.rmtree(part / "downloads", ignore_errors=True)  # TFDS's, empty
            if len(tfds_builder.read(part)) != len(notes.ids):
                raise RuntimeError("not all records were written")
            written = [file for file in part.rglob("*") if file.is_file()]
            manifest = about | {
                "ids": notes.ids,
                "bad": notes.bad,
                "unread": notes.unread,
                "facts": notes.facts(),
                "files": {
                    file.relative_to(part).as_posix(): file.stat().st_size
                    for file in written
                },
            }
            # Records have checksums of their own; the small files beside them have not.
            small = [f for f in written if f.stat().st_size < SMALL_BYTES]
            manifest["checksums"] = {
                f.relative_to(part).as_posix(): files.sha256(f) for f in small
            }
            files.write_sealed(part / MANIFEST, manifest)
            try:
                os.rename(part, path)
            except OSError:
                if _read(path) is None:  # not made by another process meanwhile
                    raise
        return manifest
    finally:
        shutil.rmtree(part, ignore_errors=True)


class Notes:
    """What is found out about the images while they are stored.

    `unreadable`: ids of files that could not be read before, which the preparation's
    key says. The others that cannot be read are in `unread`.
    """

    def __init__(self, unreadable: Collection[str] = ()) -> None:
        self.ids: list[str] = []
        self.bad: list[tuple[str, str]] = []
        self.unread: list[str] = []
        self._unreadable = unreadable
        self._sizes: collections.Counter[tuple[int, int]] = collections.Counter()
        self._grey = self._changed = 0

    def add(self, item: Item, stored: Stored) -> bool:
        """Whether the item is stored."""
        if stored.error:
            self.bad.append((item.id, stored.error))
            if stored.is_unread and item.id not in self._unreadable:
                self.unread.append(item.id)
            return False
        self.ids.append(item.id)
        self._sizes[stored.height, stored.width] += 1
        self._grey += stored.is_grey
        self._changed += stored.is_changed
        return True

    def facts(self) -> dict[str, Any]:
        heights, widths = zip(*self._sizes, strict=True) if self._sizes else ((), ())
        each = sorted(self._sizes.elements(), key=lambda size: size[0] * size[1])
        return {
            "images": len(self.ids),
            "grey": self._grey,
            "changed": self._changed,
            "sizes": len(self._sizes),
            "smallest": list(each[0]) if each else [],
            "median": list(each[len(each) // 2]) if each else [],
            "largest": list(each[-1]) if each else [],
            "least_height": min(heights, default=0),
            "least_width": min(widths, default=0),
        }


def _shards(items: Sequence[Item], wanted: Wanted) -> list[list[Item]]:
    """Items cut where a shard has its bytes, guessed from above."""
    height, width = wanted.crop or wanted.size
    most = 8 * height * width * wanted.channels  # 4 times the pixels, 2 bytes each
    if wanted.equalize and not wanted.crop:
        most = SHARD_BYTES  # images stay whole, whatever their size
    shards: list[list[Item]] = [[]]
    room = SHARD_BYTES
    for item in items:
        try:
            size = most if item.row else min(item.path.stat().st_size, most)
        except OSError:
            size = 0
        if shards[-1] and size > room:
            shards.append([])
            room = SHARD_BYTES
        shards[-1].append(item)
        room -= size
    return shards


def _ahead(
    pool: futures.Executor,
    function: Callable[[Item], Stored],
    items: Sequence[Item],
    window: int,
) -> Iterator[tuple[Item, Stored]]:
    """Each item with its result, in order; only so many are computed ahead."""
    waiting: collections.deque[tuple[Item, futures.Future]] = collections.deque()
    for item in items:
        waiting.append((item, pool.submit(function, item)))
        if len(waiting) >= window:
            first, future = waiting.popleft()
            yield first, future.result()
    for first, future in waiting:
        yield first, future.result()
