"""Images prepared once: checked, shrunk where they are far too large, in ArrayRecord.

    <prepared>/<dataset>-<mark of root>/records-<mark of what is stored>/

The second mark is of what is stored of images, and of the name, size and times of
change of every file. So other files are another preparation, and a run that reads an
older one is not disturbed. Records are written into a folder that gets its name when
all is done: what has the name is whole. The manifest has the digests of all files.
"""

import collections
import contextlib
import functools
import hashlib
import json
import math
import os
import pathlib
import shutil
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import cv2
import filelock
import numpy as np

from cloc_jax.data import images
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts.listing import Item, count_of
from cloc_jax.data.source import Source
from cloc_jax.runtime import errors, files
from cloc_jax.runtime.console import console, track

FORMAT = 4  # changes when the same sources would be stored otherwise
MANIFEST = "prepared.json"
SPLIT = "items"  # the one split of TFDS, with every image once in the listing's order
SHARD_IMAGES = 4096


class Preparation(NamedTuple):
    """Prepared images."""

    path: pathlib.Path  # folder of the records
    contents: dict[str, str]  # id -> digest of its file, in the order of the records
    bad: dict[str, str]  # id -> why it could not be read
    facts: dict[str, Any]  # sizes and kinds of the images

    def identical(self) -> list[list[str]]:
        """Ids of images with the same content: groups of two or more, sorted."""
        groups: dict[str, list[str]] = collections.defaultdict(list)
        for id_, digest in self.contents.items():
            groups[digest].append(id_)
        return sorted(sorted(ids) for ids in groups.values() if len(ids) > 1)


class Stored(NamedTuple):
    """One image as it is stored, or why it is not."""

    data: bytes = b""
    size: tuple[int, int] = (0, 0)  # height and width before it was shrunk
    is_grey: bool = False
    digest: str = ""  # sha256 of its file, or of its pixels in a file of arrays
    error: str = ""
    state: list[int] | None = None  # of its file, when it had been read


def _say(text: str) -> None:
    console.print(f"  {text}", soft_wrap=True)


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
    wanted: NetworkInput,
    *,
    threads: int = 2,
) -> Preparation:
    """The prepared images of a listing, made now if they are not there.

    `folder` is as `home` names it, `wanted` what is read of an image later.
    """
    sources = [[item.id, _state(item.path), item.row] for item in items]
    text = json.dumps([FORMAT, wanted, sources]).encode()
    mark = hashlib.blake2b(text, digest_size=8).hexdigest()
    path = folder / f"records-{mark}"
    manifest = _read_manifest(path)
    if manifest is None:
        folder.mkdir(parents=True, exist_ok=True)
        with errors.naming(folder), filelock.FileLock(folder / "lock"):
            manifest = _read_manifest(path)  # another process may have made it
            if manifest is None:
                for left in (path, *folder.glob("part-*")):
                    if left.exists():
                        _say(f"{left} is damaged or not complete; it is made again")
                        shutil.rmtree(left)
                _say(f"preparing {count_of(items)} once, in {folder}")
                with track("preparing", len(items)) as advance:
                    manifest = _make(items, sources, path, wanted, threads, advance)
    return Preparation(path, manifest["contents"], manifest["bad"], manifest["facts"])


class Records(Source):
    """Source over some of the records of a preparation."""

    def __init__(
        self, preparation: Preparation, items: Sequence[Item], wanted: NetworkInput
    ):
        self.ids = [item.id for item in items]
        self.labels = np.array([item.label for item in items], np.int32)
        if not any(item.row for item in items):
            self.paths = [item.path for item in items]
        self.contents = [preparation.contents[id_] for id_ in self.ids]
        pairs = zip(self.ids, self.contents, strict=True)
        self.stamps = [f"{id_} {digest}" for id_, digest in pairs]
        self._folder = preparation.path
        place = {id_: number for number, id_ in enumerate(preparation.contents)}
        self._places = [place[id_] for id_ in self.ids]
        with self._noticing_damage("its records"):
            self._records = read_records(preparation.path)
        self._wanted = wanted

    def __getitem__(self, index: int) -> np.ndarray:
        """Pixels of one image, uint8 [height, width, channels], as stored."""
        with self._noticing_damage(f"the record of {self.ids[index]}"):
            data = self._records[self._places[index]]["image"]
        return self._wanted.decode(data, self.ids[index])

    @contextlib.contextmanager
    def _noticing_damage(self, what: str) -> Iterator[None]:
        """Damaged where records cannot be read; the next start makes all anew."""
        try:
            yield
        except Exception as error:  # whatever type the reader gives to what it finds
            (self._folder / MANIFEST).unlink(missing_ok=True)
            lines = str(error).strip().splitlines() or [type(error).__name__]
            raise files.Damaged(
                self._folder,
                f"{what} cannot be read ({lines[0][:200]})",
                "Start again: the images are then prepared anew.",
            ) from error


def read_records(folder: pathlib.Path) -> Sequence[dict[str, bytes]]:
    """Random access to what is stored; can be pickled and shared by threads."""
    import tensorflow_datasets as tfds  # late: drawn images need not wait for it

    stored = tfds.builder_from_directory(folder)
    if not stored.info.splits[SPLIT].num_examples:
        return []
    return stored.as_data_source(split=SPLIT)


# --- what is there ---


def _state(path: pathlib.Path) -> list[int] | None:
    """What changes with a file; the time of change of attributes cannot be set back."""
    try:
        status = path.stat()
    except OSError:
        return None
    return [status.st_size, status.st_mtime_ns, status.st_ctime_ns]


def _read_manifest(path: pathlib.Path) -> dict[str, Any] | None:
    """The manifest of a preparation that is whole, or None."""
    try:
        manifest = files.unsealed((path / MANIFEST).read_bytes())
        is_whole = manifest["files"] == _files(path)
    except (OSError, ValueError, KeyError):
        return None
    return manifest if is_whole else None


def _files(folder: pathlib.Path) -> dict[str, int | str]:
    """What tells that the files of a preparation are whole.

    The size of records, which have checksums of their own, and a digest of the others.
    """
    return {
        file.name: file.stat().st_size
        if "array_record" in file.name
        else files.sha256(file)
        for file in sorted(folder.iterdir())
        if file.name != MANIFEST
    }


# --- making it ---


def _make(
    items: Sequence[Item],
    sources: Sequence[Sequence[Any]],
    path: pathlib.Path,
    wanted: NetworkInput,
    threads: int,
    advance: Callable[[], None],
) -> dict[str, Any]:
    """Writes records and manifest, and gives them their name at the very end."""
    part = path.parent / f"part-{os.getpid()}"
    contents: dict[str, str] = {}
    bad: dict[str, str] = {}
    stored_ones: list[Stored] = []

    def examples() -> Iterator[dict[str, bytes]]:
        found = _stored(items, wanted, threads)
        for item, (_, state, _), stored in zip(items, sources, found, strict=True):
            # Else its pixels would be stored under the mark of other ones.
            if stored.state != state:
                raise ValueError(
                    f"{item.path} has changed while images were prepared; start again "
                    "when nothing writes to them."
                )
            if stored.error:
                bad[item.id] = stored.error
            else:
                contents[item.id] = stored.digest
                stored_ones.append(stored._replace(data=b""))
                name = os.fsencode(item.id)  # may not be UTF-8
                yield {"id": name, "image": stored.data}
            advance()

    try:
        part.mkdir()
        _write_records(part, examples())
        if len(read_records(part)) != len(contents):
            raise RuntimeError("not all records were written")
        manifest = {
            "contents": contents,
            "bad": bad,
            "facts": _facts(stored_ones),
            "files": _files(part),
        }
        files.write_sealed(part / MANIFEST, manifest)
        os.rename(part, path)
    finally:
        shutil.rmtree(part, ignore_errors=True)
    return manifest


def _stored(
    items: Sequence[Item], wanted: NetworkInput, threads: int
) -> Iterator[Stored]:
    """Each item as it is stored, in order; only a few are computed ahead."""
    import grain

    store = functools.partial(store_image, wanted=wanted)
    options = grain.ReadOptions(num_threads=threads, prefetch_buffer_size=2 * threads)
    return iter(grain.MapDataset.source(items).map(store).to_iter_dataset(options))


def _write_records(folder: pathlib.Path, examples: Iterator[dict[str, bytes]]) -> None:
    """Writes ArrayRecord as TFDS lays it out, without TensorFlow."""
    import tensorflow_datasets as tfds

    # Records keep the bytes of image files; labels stay with the listing.
    features = tfds.features.FeaturesDict(
        {
            "id": tfds.features.Text(),
            "image": tfds.features.Tensor(shape=(), dtype=np.object_),
        }
    )
    identity = tfds.core.DatasetIdentity(
        name="images", version="1.0.0", data_dir=str(folder), module_name=__name__
    )
    writer = tfds.core.SequentialWriter(
        tfds.core.DatasetInfo(
            builder=identity, features=features, disable_shuffling=True
        ),
        max_examples_per_shard=SHARD_IMAGES,
        file_format="array_record",
    )
    writer.initialize_splits([SPLIT])
    writer.add_examples({SPLIT: examples})
    writer.close_all()


def _facts(stored: Sequence[Stored]) -> dict[str, Any]:
    """Sizes and kinds of images, as plain data."""
    sizes = sorted({one.size for one in stored}, key=math.prod) or [(0, 0)]
    return {
        "images": len(stored),
        "grey": sum(one.is_grey for one in stored),
        "smallest": list(sizes[0]),
        "largest": list(sizes[-1]),
        "least_height": min(height for height, _ in sizes),
        "least_width": min(width for _, width in sizes),
    }


def store_image(item: Item, *, wanted: NetworkInput) -> Stored:
    """An image as it is stored: the file's own bytes, unless it is far too large."""
    try:
        if item.row:
            name, place = item.row
            row = _array(item.path, name, item.path.stat().st_mtime_ns)[place]
            row = row[:, :, None] if row.ndim == 2 else row
            images.check(row)
            data = _encode(row)
            digest = hashlib.sha256(str(row.shape).encode() + row.tobytes())
        else:
            data = images.read_bytes(item.path)
            digest = hashlib.sha256(data)
        image = wanted.decode(data, item.id)
    except images.ImageError as error:
        why = str(error).removeprefix(f"{item.id}: ").removeprefix(f"{item.path}: ")
        return Stored(error=why, state=_state(item.path))
    small = wanted.shrink(image)
    return Stored(
        data if small is image else _encode(small),
        image.shape[:2],
        bool((small == small[:, :, :1]).all()),
        digest.hexdigest(),
        state=_state(item.path),
    )


@functools.lru_cache(maxsize=1)
def _array(path: pathlib.Path, name: str, changed: int) -> np.ndarray:
    """One array of a file of arrays, uint8 [image, height, width, …]."""
    return files.read_arrays(path, remedy="Get it again.")[name]


def _encode(image: np.ndarray) -> bytes:
    """PNG, which loses nothing."""
    _, data = cv2.imencode(".png", image[:, :, ::-1])  # OpenCV's BGR
    return data.tobytes()
