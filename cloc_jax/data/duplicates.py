"""Images that a dataset holds more than once: identical ones, and those that look so.

Identical images have the same bytes. Near-identical ones have nearly the same
perceptual hash (imagehash's `phash`), which survives another size, another file format
and other brightness or contrast, and not another photograph of the same thing.
"""

import collections
import contextlib
import hashlib
import pathlib
from collections.abc import Callable, Sequence
from concurrent import futures
from typing import NamedTuple

import numpy as np

from cloc_jax.data import content
from cloc_jax.data.layouts.listing import Item
from cloc_jax.data.prepared import stored_image
from cloc_jax.data.source import Source
from cloc_jax.runtime import files

KEPT = "identical.json"  # beside prepared images
HASH_SIDE = 16  # 256 bits
# Bits that may differ, chosen on these three sets: up to 18, RetinaMNIST has 21 pairs
# that look like one eye; its first pair that does not is at 20, IDRiD's at 26, KOA's
# (by patient) at 34. It misses some: IDRiD 013 and 397 look like one eye, at 28. 64
# bits would be too few: KOA has 199 pairs that differ in 4 or less.
NEAR_BITS = 18
MOST_PAIRS = 10_000  # that are listed
FLAT = 2.0  # standard deviation of grey levels below which an image shows nothing
_BLOCK = 256  # images compared with all others at a time


class Pair(NamedTuple):
    """Two near-identical images, by their index."""

    first: int
    second: int
    bits: int  # of the hash that differ


def identical(
    items: Sequence[Item], *, kept: pathlib.Path | None = None, threads: int = 2
) -> list[list[str]]:
    """Ids of images with the same content: groups of two or more, sorted.

    Args:
        items: Images that can be read.
        kept: Folder of what was prepared from just these images, which keeps the
            answer; it is there as long as they stay the same.
        threads: That read files.
    """
    file = kept / KEPT if kept else None
    if file and file.is_file():
        with contextlib.suppress(ValueError, OSError, KeyError):
            # Only as it was written: another answer would be another split.
            return files.unsealed(file.read_bytes())["identical"]
    groups: dict[str, list[str]] = collections.defaultdict(list)
    for item, digest in zip(items, _digests(items, threads), strict=True):
        if not digest.startswith(content.UNREADABLE):
            groups[digest].append(item.id)
    found = sorted(sorted(ids) for ids in groups.values() if len(ids) > 1)
    if file:
        with contextlib.suppress(OSError):  # a folder that others share
            files.write_sealed(file, {"identical": found})
    return found


def grouped(items: Sequence[Item], copies: Sequence[Sequence[str]]) -> list[Item]:
    """Items of which identical ones are of one group, so that carving keeps them whole.

    Patients or subjects that share an image become one group. Copies in two splits as
    shipped are left as they are: nothing is carved between those.
    """
    split_of = {item.id: item.split for item in items}
    group_of = {item.id: item.group or f"/{item.id}" for item in items}
    is_changed = False
    for ids in copies:
        for split in {split_of[i] for i in ids}:
            merged = {group_of[i] for i in ids if split_of[i] == split}
            if len(merged) > 1:
                first, is_changed = min(merged), True
                group_of = {i: first if g in merged else g for i, g in group_of.items()}
    if not is_changed:
        return list(items)
    return [item._replace(group=group_of[item.id]) for item in items]


def _digests(items: Sequence[Item], threads: int) -> list[str]:
    paths = [item.path for item in items if not item.row]
    of_files = iter(content.digests(paths, threads=threads))
    return [_row_digest(item) if item.row else next(of_files) for item in items]


def _row_digest(item: Item) -> str:
    image = stored_image.row_of(item)
    mark = hashlib.sha256(str(image.shape).encode())
    mark.update(np.ascontiguousarray(image).tobytes())
    return mark.hexdigest()


def perceptual_hashes(
    source: Source, *, threads: int = 2, advance: Callable[[], None] = lambda: None
) -> tuple[np.ndarray, np.ndarray]:
    """Hashes of a source's images, uint64 [image, word], and which images are flat.

    A flat image has next to one grey level, so that its hash is chance.
    """
    import imagehash  # late: it takes SciPy along
    from PIL import Image

    def one(index: int) -> tuple[np.ndarray, bool]:
        pixels = source[index]
        grey = Image.fromarray(pixels.squeeze(-1) if pixels.shape[2] == 1 else pixels)
        bits = imagehash.phash(grey, hash_size=HASH_SIDE).hash
        return np.packbits(bits).view(np.uint64), bool(pixels.std() < FLAT)

    hashes = np.zeros((len(source), HASH_SIDE**2 // 64), np.uint64)
    flat = np.zeros(len(source), bool)
    with futures.ThreadPoolExecutor(threads) as pool:
        for index, found in enumerate(pool.map(one, range(len(source)))):
            hashes[index], flat[index] = found
            advance()
    return hashes, flat


def near_pairs(
    hashes: np.ndarray, *, bits: int = NEAR_BITS, most: int = MOST_PAIRS
) -> list[Pair]:
    """Pairs of images whose hashes differ in at most so many bits, nearest first.

    All pairs are compared, in blocks. Ends early at `most` pairs, since a set of
    which all images are alike would have millions.
    """
    found: list[Pair] = []
    for start in range(0, len(hashes), _BLOCK):
        block, rest = hashes[start : start + _BLOCK], hashes[start:]
        apart = np.zeros((len(block), len(rest)), np.uint16)
        for word in range(hashes.shape[1]):
            apart += np.bitwise_count(block[:, word, None] ^ rest[None, :, word])
        close = np.argwhere(np.triu(apart <= bits, k=1))[: most - len(found)]
        for first, second in close.tolist():
            distance = int(apart[first, second])
            found.append(Pair(start + first, start + second, distance))
        if len(found) >= most:
            break
    return sorted(found, key=lambda pair: (pair.bits, pair.first, pair.second))
