"""A contact sheet: small pictures in rows, with what they are."""

import textwrap
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from matplotlib.figure import Figure

from cloc_jax.report.figures import style

SIDE = 1.25  # inches of a square picture; others have the same area
GAP = 0.06
CAPTION = 0.22  # below each picture, of one line
LINE = 0.155  # for each further one
CHARACTER = 0.074  # inches of a letter, at the captions' size
POINTS = 9


class Picture(NamedTuple):
    """One picture of a sheet."""

    image: np.ndarray  # uint8 [height, width, 1 or 3]
    caption: str = ""  # may have several lines


class Row(NamedTuple):
    """Pictures side by side, of one rank."""

    rank: str
    pictures: Sequence[Picture]


def sheet(
    rows: Sequence[Row],
    colours: Mapping[str, Any],
    *,
    title: str,
    note: str = "",
    headings: tuple[str, str] = ("", ""),
    front_heading: str = "rank",
) -> Figure:
    """Rows of pictures of the same shape, each with its rank in front, in its colour.

    The headings are above the first picture of the rows and above the others; those are
    set apart where there is a second one.
    """
    tall, wide = rows[0].pictures[0].image.shape[:2]
    stretch = float(np.clip(np.sqrt(wide / tall), 0.5, 2.0))
    width, height = SIDE * stretch, SIDE / stretch
    cell = max(width, 1.1) + GAP  # narrow ones still have room for a caption
    names = [style.short(row.rank, 18) for row in rows]
    front = 0.32 + max(0.105 * max(map(len, names)), 0.2)
    apart = 3 * GAP if headings[1] else 0.0
    most = max(len(row.pictures) for row in rows)
    across = max(front + most * cell + apart, 0.13 * len(title))
    lines = textwrap.wrap(note, int(across / CHARACTER))
    top = 0.42 + 0.175 * len(lines) + 0.3
    captions = [picture.caption for row in rows for picture in row.pictures]
    below = CAPTION + LINE * max(caption.count("\n") for caption in captions)
    step = height + below + GAP
    down = top + len(rows) * step

    figure = style.new_figure(across, down)
    # One set of axes in inches: a sheet has too many pictures for axes of their own.
    figure.set_layout_engine("none")
    axes = figure.add_axes((0, 0, 1, 1))
    axes.axis("off")

    def write(x, y, text, **options):
        options = {"color": style.INK, "va": "center", "fontsize": POINTS} | options
        axes.text(x, y, text, parse_math=False, **options)

    def left(column):
        return front + column * cell + (apart if column else 0.0)

    write(0, 0.14, title, fontweight="bold", fontsize=12)
    for i, line in enumerate(lines):
        write(0, 0.4 + 0.175 * i, line, color=style.FAINT)
    write(0.17, top - 0.13, front_heading, color=style.FAINT)
    for column, heading in enumerate(headings):
        write(left(column), top - 0.13, heading, fontsize=POINTS)
    y = top
    for row, name in zip(rows, names, strict=True):
        bar = {"color": colours[row.rank], "linewidth": 0}
        axes.fill_between([0, 0.07], y, y + height + below, **bar)
        write(0.17, y + height / 2, name, fontweight="bold", fontsize=11)
        for column, picture in enumerate(row.pictures):
            x = left(column)
            image = np.broadcast_to(picture.image, (*picture.image.shape[:2], 3))
            axes.imshow(image, extent=(x, x + width, y + height, y), aspect="auto")
            # A caption may lie below the pictures that follow without one.
            after = row.pictures[column + 1 :]
            free = next((n for n, p in enumerate(after) if p.caption), len(after))
            longest = int((1 + free) * cell / CHARACTER)
            for i, line in enumerate(picture.caption.splitlines()):
                write(x, y + height + 0.1 + LINE * i, style.short(line, longest))
        y += step
    axes.set_xlim(0, across)
    axes.set_ylim(down, 0)
    return figure
