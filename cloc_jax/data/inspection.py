"""What a look at all images of a dataset finds, as plain data.

Near-identical images have nearly the same perceptual hash (imagehash's `phash`), which
survives another size, format, brightness or contrast, but not another photograph.
"""

import collections
import itertools
from collections.abc import Callable, Mapping, Sequence
from concurrent import futures
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.data.layouts.listing import Item
from cloc_jax.data.source import Source

HASH_SIDE = 16  # 256 bits
# Bits that may differ, chosen on these three sets: up to 18, RetinaMNIST has 21 pairs
# that look like one eye; its first pair that does not is at 20, IDRiD's at 26, KOA's
# (by patient) at 34. It misses some: IDRiD 013 and 397 look like one eye, at 28. 64
# bits would be too few: KOA has 199 pairs that differ in 4 or less.
NEAR_BITS = 18
MOST_PAIRS = 10_000  # that are listed
FLAT = 2.0  # standard deviation of grey levels below which an image shows nothing
_BLOCK = 256  # images compared with all others at a time


class Graded(NamedTuple):
    """One image as a person knows it."""

    id: str
    split: str
    rank: str
    patient: str | None = None


class Alike(NamedTuple):
    """Images that are the same, or nearly."""

    images: tuple[Graded, ...]
    bits: int = 0  # of the perceptual hash that differ; 0 for the same file too

    @property
    def is_shared(self) -> bool:
        """Whether they are in more than one split."""
        return len({image.split for image in self.images}) > 1

    @property
    def is_contradictory(self) -> bool:
        """Whether they have more than one rank."""
        return len({image.rank for image in self.images}) > 1

    def as_json(self) -> dict[str, Any]:
        return {
            "images": [image._asdict() for image in self.images],
            "bits": self.bits,
            "in_several_splits": self.is_shared,
            "of_several_ranks": self.is_contradictory,
        }


class Inspection(NamedTuple):
    """What was found."""

    counts: dict[str, dict[str, int]]  # split -> rank -> images
    identical: list[Alike]
    near: list[Alike]  # pairs, nearest first
    flat: list[Graded]  # images that show nothing
    patients: int  # that are known
    shared_patients: dict[str, list[str]]  # patient -> splits, if more than one


def inspect(
    items: Sequence[Item],
    ranks: Sequence[str],
    splits: Mapping[str, Source],
    copies: Sequence[Sequence[str]],
    *,
    threads: int,
    advance: Callable[[], None] = lambda: None,
) -> Inspection:
    """Looks at every image of the splits.

    The labels of `items` count, not those of the splits, which may be changed on
    purpose. `copies` are groups of identical images, by id.
    """
    known = {item.id: item for item in items}
    graded = [
        Graded(id_, split, ranks[known[id_].label], known[id_].group)
        for split, source in splits.items()
        for id_ in source.ids
    ]
    looks = [
        perceptual_hashes(source, threads=threads, advance=advance)
        for source in splits.values()
    ]
    hashes, flat = map(np.concatenate, zip(*looks, strict=True))
    seen = np.flatnonzero(~flat)
    pairs = near_pairs(hashes[seen])
    near = [
        Alike((graded[seen[first]], graded[seen[second]]), bits)
        for first, second, bits in pairs
    ]
    order = {image.id: number for number, image in enumerate(graded)}
    same = {frozenset(two) for ids in copies for two in itertools.combinations(ids, 2)}
    splits_of: dict[str, set[str]] = collections.defaultdict(set)  # of each patient
    for image in graded:
        if image.patient:
            splits_of[image.patient].add(image.split)
    counts = collections.Counter((image.split, image.rank) for image in graded)
    return Inspection(
        {split: {rank: counts[split, rank] for rank in ranks} for split in splits},
        [
            Alike(tuple(graded[n] for n in sorted(order[id_] for id_ in ids)))
            for ids in copies
        ],
        [pair for pair in near if {image.id for image in pair.images} not in same],
        [graded[place] for place in np.flatnonzero(flat)],
        len(splits_of),
        {p: sorted(some) for p, some in sorted(splits_of.items()) if len(some) > 1},
    )


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
        for index, measured in enumerate(pool.map(one, range(len(source)))):
            hashes[index], flat[index] = measured
            advance()
    return hashes, flat


def near_pairs(
    hashes: np.ndarray, *, bits: int = NEAR_BITS, most: int = MOST_PAIRS
) -> list[tuple[int, int, int]]:
    """Indices and differing bits of pairs with at most `bits`, nearest first.

    All pairs are compared, in blocks. Ends early at `most` pairs, since a set of
    which all images are alike would have millions.
    """
    pairs: list[tuple[int, int, int]] = []
    for start in range(0, len(hashes), _BLOCK):
        block, rest = hashes[start : start + _BLOCK], hashes[start:]
        apart = np.zeros((len(block), len(rest)), np.uint16)
        for word in range(hashes.shape[1]):
            apart += np.bitwise_count(block[:, word, None] ^ rest[None, :, word])
        close = np.argwhere(np.triu(apart <= bits, k=1))[: most - len(pairs)]
        for first, second in close.tolist():
            distance = int(apart[first, second])
            pairs.append((start + first, start + second, distance))
        if len(pairs) >= most:
            break
    return sorted(pairs, key=lambda pair: (pair[2], *pair))
