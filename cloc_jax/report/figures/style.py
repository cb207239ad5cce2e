"""What the pictures share: colours, figures, names that fit."""

import io
import os
import pathlib
from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import ListedColormap, Normalize
from matplotlib.figure import Figure

from cloc_jax.runtime import files

DPI = 150
MAX_LABELS = 12  # more names than this on one side are thinned out

INK = "#22303c"
FAINT = "#8a97a3"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"
SKY, PURPLE = "#56b4e9", "#cc79a7"


def new_figure(width: float, height: float) -> Figure:
    """An empty figure of that many inches."""
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure


def save(figure: Figure, path: str | os.PathLike) -> None:
    """Writes the figure as a PNG with a narrow white edge."""
    data = io.BytesIO()
    figure.savefig(data, dpi=DPI, format="png", bbox_inches="tight", pad_inches=0.12)
    files.write_bytes(pathlib.Path(path), data.getvalue())


def short(name: str, length: int) -> str:
    """The name, its middle cut out where it is longer than `length`."""
    name = str(name)
    if len(name) <= length:
        return name
    head = (length - 1) // 2
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"


def thinned(count: int, most: int) -> list[int]:
    """At most `most` evenly spaced positions of 0 .. count - 1, from the first on."""
    return list(range(0, count, -(-count // most)))


def rank_colours(count: int) -> np.ndarray:
    """[count, 4]: an ordered, perceptually even scale without its palest end."""
    return mpl.colormaps["viridis"](np.linspace(0, 0.9, count))


def tidy(axes: Axes) -> None:
    """Leaves of the frame the left and lower side, and faint lines behind the data."""
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e8ec", linewidth=0.8)
    axes.set_axisbelow(True)


def rank_bar(figure: Figure, axes: Any, names: Sequence[str]) -> None:
    """A bar beside axes, a block of each rank's colour, names thinned out if many."""
    colours = ListedColormap(rank_colours(len(names)))
    mappable = mpl.cm.ScalarMappable(Normalize(-0.5, len(names) - 0.5), colours)
    ticks = thinned(len(names), MAX_LABELS)
    bar = figure.colorbar(mappable, ax=axes, aspect=28, pad=0.02, label="rank")
    bar.set_ticks(ticks)
    bar.ax.set_yticklabels([names[i] for i in ticks], parse_math=False)
    bar.ax.tick_params(length=0)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
