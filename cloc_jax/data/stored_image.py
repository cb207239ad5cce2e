"""What is stored of an image: its file's own bytes, unless it is far too large."""

import contextlib
import functools
import hashlib
import pathlib
import threading
from typing import NamedTuple

import cv2
import numpy as np

from cloc_jax.data import images
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.layouts.listing import Item
from cloc_jax.runtime import files

LARGE = 32_000_000  # pixels of an image that is decoded while no other such one is
_ONE_LARGE = threading.Lock()


class Stored(NamedTuple):
    """One image as it is stored, or why it is not."""

    data: bytes = b""
    height: int = 0
    width: int = 0
    is_grey: bool = False
    is_changed: bool = False
    digest: str = ""  # sha256 of its file, or of its pixels in a file of arrays
    error: str = ""
    is_unread: bool = False  # the error may be gone next time


def store(item: Item, *, wanted: NetworkInput) -> Stored:
    """An image as it is stored: the file's own bytes, unless it has to change."""
    try:
        if item.row:
            row = _row(item, wanted.max_bytes)
            data = _encode(row)
            digest = hashlib.sha256(str(row.shape).encode() + row.tobytes())
        else:
            data = images.read_bytes(item.path, max_bytes=wanted.max_bytes)
            digest = hashlib.sha256(data)
        head = images.header(data, name=item.id, max_pixels=wanted.max_pixels)
        is_large = head.height * head.width > LARGE
        with _ONE_LARGE if is_large else contextlib.nullcontext():
            stored = _changed(item, data, head, wanted)
        return stored._replace(digest=digest.hexdigest())
    except FileNotFoundError:
        return Stored(error="there is no such file")
    except MemoryError:
        return Stored(error="there is too little memory to decode it", is_unread=True)
    except ValueError as error:
        why = str(error).removeprefix(f"{item.id}: ").removeprefix(f"{item.path}: ")
        is_unread = isinstance(error, images.UnreadError)
        return Stored(error=why, is_unread=is_unread)
    except OSError as error:
        why = f"it cannot be read ({error.strerror or error})"
        return Stored(error=why, is_unread=True)


def _changed(
    item: Item, data: bytes, head: images.Header, wanted: NetworkInput
) -> Stored:
    image = images.decode(
        data,
        name=item.id,
        channels=wanted.channels,
        max_pixels=wanted.max_pixels,
    )
    whole = image if item.eyes is None else images.align_face(image, item.eyes)
    height, width, channels = whole.shape
    small = images.shrink(
        whole, size=wanted.size, crop=wanted.crop, equalize=wanted.equalize
    )
    is_grey = head.is_grey or (channels == 3 and bool((small == small[:, :, :1]).all()))
    if small is image:
        return Stored(data, height, width, is_grey, False)
    return Stored(_encode(small), height, width, is_grey, True)


def _row(item: Item, max_bytes: int) -> np.ndarray:
    """One image of a file of arrays, uint8 [height, width, 1 or 3]."""
    assert item.row is not None
    name, row = item.row
    image = _array(item.path, name, item.path.stat().st_mtime_ns, max_bytes)[row]
    image = image[:, :, None] if image.ndim == 2 else image
    images.check(image)
    return image


@functools.lru_cache(maxsize=1)
def _array(path: pathlib.Path, name: str, changed: int, max_bytes: int) -> np.ndarray:
    with files.open_regular(
        path, max_bytes=max_bytes, raise_limit=images.RAISE_LIMIT
    ) as file:
        files.check_unpacked_zip(file, path)
        with np.load(file, allow_pickle=False) as arrays:
            return arrays[name]


def _encode(image: np.ndarray) -> bytes:
    """PNG, which loses nothing."""
    is_ok, data = cv2.imencode(".png", image[:, :, ::-1])  # OpenCV's BGR
    if not is_ok:
        raise ValueError(f"an image of {image.shape} could not be stored as PNG.")
    return data.tobytes()
