"""The images nearest a boundary, on its right and on its wrong side."""

import os
from collections.abc import Mapping, Sequence
from typing import NamedTuple

import numpy as np
from matplotlib.figure import Figure
from PIL import Image

from cloc_jax.report.figures import style
from cloc_jax.report.figures.contact_sheet import Picture, Row, sheet_figure
from cloc_jax.scoring import metrics

PIXELS = 240  # of an image's longer side, enough for its place on the sheet
SIDES = {"right": style.BLUE, "wrong": style.VERMILION}


class Doubtful(NamedTuple):
    """An image near a boundary."""

    image: np.ndarray  # uint8 [height, width, 1 or 3]
    true: str
    predicted: str
    above: float  # probability of all ranks above the boundary


def nearest(
    path: str | os.PathLike,
    sides: Mapping[str, Sequence[Doubtful]],
    boundary: str,
    ranks: Sequence[str],
) -> None:
    """Saves the images nearest a boundary; see `nearest_figure`."""
    style.save(nearest_figure(sides, boundary, ranks), path)


def nearest_figure(
    sides: Mapping[str, Sequence[Doubtful]], boundary: str, ranks: Sequence[str]
) -> Figure:
    """The images in two rows, "right" and "wrong", as far as there are any."""
    if boundary not in metrics.boundary_names(ranks):
        raise ValueError(
            f"no boundary is called {boundary!r}; there are "
            f"{metrics.boundary_names(ranks)}."
        )
    shown = {side: found for side, found in sides.items() if found}
    every = [item.image for found in shown.values() for item in found]
    is_same = len({image.shape[:2] for image in every}) == 1
    rows = [
        Row(
            side,
            [
                Picture(
                    fitted(item.image, is_square=not is_same),
                    f"true {item.true}\ncalled {item.predicted}\n"
                    f"above: {100 * item.above:.0f}%",
                )
                for item in found
            ],
        )
        for side, found in shown.items()
    ]
    return sheet_figure(
        rows,
        list(SIDES),
        title=f"Images nearest {style.short_boundary(boundary, ranks)}",
        front_heading="side",
        colours=list(SIDES.values()),
    )


def fitted(image: np.ndarray, *, is_square: bool) -> np.ndarray:
    """The image, made as small as a sheet needs; with white edges if it is to be
    square. Grey keeps its one channel."""
    shrunk = Image.fromarray(image[..., 0] if image.shape[-1] == 1 else image)
    shrunk.thumbnail((PIXELS, PIXELS))
    pixels = np.asarray(shrunk)
    if is_square:
        room = [max(pixels.shape[:2]) - side for side in pixels.shape[:2]]
        edges = [(free // 2, free - free // 2) for free in room]
        edges += [(0, 0)] * (pixels.ndim - 2)
        pixels = np.pad(pixels, edges, constant_values=255)
    return pixels if pixels.ndim == 3 else pixels[..., None]
