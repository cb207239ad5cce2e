"""Small pictures of the test images that a reader of the report will ask for.

They are kept in the run's folder, so that the page can be drawn again without the data,
and in order of interest, so that a page with little room takes the first ones.
"""

import io
import itertools
import pathlib
from collections.abc import Callable, Mapping, Sequence

import numpy as np
from jaxtyping import Float, Int

from cloc_jax.runtime import files

NAME = "thumbnails.npz"
SIDE = 224  # pixels of the longer side, at most
QUALITY = 80  # of the JPEGs
MOST_BYTES = 4_000_000  # of all pictures of a run
MOST = 1500  # pictures, as each has to be read and decoded


def by_interest(
    true: Int[np.ndarray, "image"],
    predicted: Int[np.ndarray, "image"],
    probabilities: Float[np.ndarray, "image rank"] | None,
    boundaries: Sequence[int],
) -> list[int]:
    """All images, those first that a reader will want to look at.

    In turn: an image on the wrong side of a boundary, the surest first; one near a
    boundary; any other mistake, the furthest first. Then all that are right, the least
    sure first.
    """
    count = len(true)
    sure = np.ones(count)
    near = np.full(count, np.inf)
    if probabilities is not None:
        sure = probabilities[np.arange(count), predicted]
        for h in boundaries:
            above = probabilities[:, h + 1 :].sum(1)
            near = np.minimum(near, np.abs(above - 0.5))
    crossed = np.zeros(count, bool)
    for h in boundaries:
        crossed |= (true > h) != (predicted > h)
    off = np.abs(true - predicted)
    wrong = [int(i) for i in np.argsort(-sure, kind="stable") if crossed[i]]
    close = [int(i) for i in np.argsort(near, kind="stable") if np.isfinite(near[i])]
    far = [int(i) for i in np.lexsort((-sure, -off)) if off[i]]
    rest = np.argsort(sure, kind="stable").tolist()
    in_turn = itertools.chain(*itertools.zip_longest(wrong, close, far), rest)
    return list(dict.fromkeys(i for i in in_turn if i is not None))


def write(
    path: pathlib.Path,
    image: Callable[[int], np.ndarray],
    names: Sequence[str],
    order: Sequence[int],
) -> int:
    """Keeps small JPEGs of images, in that order as far as they fit.

    Returns how many there are.

    Args:
      path: of the file.
      image: the pixels of an image by its index.
      names: of all images.
      order: of their indices.
    """
    kept: dict[str, bytes] = {}
    room = MOST_BYTES
    for item in order[:MOST]:
        data = _jpeg(np.asarray(image(item)))
        room -= len(data)
        if room < 0:
            break
        kept[names[item]] = data
    file = io.BytesIO()
    np.savez(
        file,
        names=np.array(list(kept), np.str_),
        sizes=np.array([len(data) for data in kept.values()], np.int64),
        bytes=np.frombuffer(b"".join(kept.values()), np.uint8),
    )
    files.write_bytes(path, file.getvalue())
    return len(kept)


def read(path: pathlib.Path) -> Mapping[str, bytes] | None:
    """JPEGs by the name of their image, the most interesting first; None without."""
    if not path.is_file():
        return None
    remedy = "`launch.py evaluate` makes it again."
    file = files.read_arrays(path, remedy=remedy)
    names, sizes, data = file["names"], file["sizes"], file["bytes"].tobytes()
    ends = np.cumsum(sizes)
    return {
        str(name): data[end - size : end]
        for name, size, end in zip(names, sizes, ends, strict=True)
    }


def _jpeg(pixels: np.ndarray) -> bytes:
    from PIL import Image  # late: the report needs only the bytes

    if pixels.ndim == 3 and pixels.shape[2] == 1:
        pixels = pixels[..., 0]
    image = Image.fromarray(pixels)
    image.thumbnail((SIDE, SIDE))
    file = io.BytesIO()
    image.save(file, "JPEG", quality=QUALITY)
    return file.getvalue()
