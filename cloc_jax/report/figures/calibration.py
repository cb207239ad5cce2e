"""Whether probabilities are what they say: how often it is so, against how sure."""

import os
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cloc_jax.report.figures import style


class Bins(NamedTuple):
    """Images of about the same probability put together, one entry a bin."""

    confidence: np.ndarray  # the mean probability
    accuracy: np.ndarray  # how often it was so
    low: np.ndarray  # an interval of that
    high: np.ndarray
    images: np.ndarray  # how many there are


class Panel(NamedTuple):
    """One diagram: what has the probability, and how often it happened."""

    title: str
    x_label: str
    y_label: str
    bins: Bins


def calibration(path: str | os.PathLike, panels: Sequence[Panel]) -> None:
    """Saves reliability diagrams; see `calibration_figure`."""
    style.save(calibration_figure(panels), path)


def calibration_figure(panels: Sequence[Panel]) -> Figure:
    """Reliability diagrams side by side, two in a row.

    On the diagonal a probability is what it says; bars are the bins' intervals.
    """
    if not panels:
        raise ValueError("there is no panel; the picture needs at least one.")
    columns = min(len(panels), 2)
    rows = -(-len(panels) // columns)
    figure = style.new_figure(4.4 * columns + 0.2, 4.25 * rows + 0.3)
    grid = figure.subplots(rows, columns, squeeze=False).ravel()
    for axes, panel in zip(grid, panels, strict=False):
        _draw(axes, panel)
    for axes in grid[len(panels) :]:
        axes.remove()
    figure.suptitle("Probability against what happened", fontweight="bold")
    return figure


def _draw(axes: Axes, panel: Panel) -> None:
    bins = panel.bins
    axes.plot([0, 1], [0, 1], color=style.FAINT, linewidth=1.2, linestyle="--")
    axes.errorbar(
        bins.confidence,
        bins.accuracy,
        yerr=[bins.accuracy - bins.low, bins.high - bins.accuracy],
        color=style.BLUE,
        marker="o",
        markersize=5,
        linewidth=1.6,
        elinewidth=1.2,
    )
    axes.set_xlim(-0.03, 1.03)  # whole points at both ends
    axes.set_ylim(-0.03, 1.03)
    axes.set_aspect("equal")
    for axis in (axes.xaxis, axes.yaxis):
        axis.set_major_formatter(ticker.PercentFormatter(1))
        axis.set_major_locator(ticker.MultipleLocator(0.2))
    axes.set_title(panel.title, fontsize=11, parse_math=False)
    axes.set_xlabel(panel.x_label, parse_math=False)
    axes.set_ylabel(panel.y_label, parse_math=False)
    axes.text(
        0.97,
        0.04,
        _counts(bins.images),
        transform=axes.transAxes,
        ha="right",
        fontsize=9,
        color=style.FAINT,
    )
    style.tidy(axes)


def _counts(counts: np.ndarray) -> str:
    least, most = int(counts.min()), int(counts.max())
    number = f"{most:,}" if least == most else f"{least:,} to {most:,}"
    return f"{number} images per point"
