"""Benchmarks: how time and temporary memory grow with the batch."""

import itertools
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.lines import Line2D
from matplotlib.transforms import ScaledTranslation
from numpy.typing import ArrayLike

from cloc_jax.report.figures import style

Cell = dict[str, Any]  # one measurement, as a line of bench.jsonl has it
# All but the batch.
SETTINGS = ("algorithm", "dim", "dtype", "devices", "mesh", "ranks")
FITTED_SIZES = 3  # the last ones, where overheads no longer hide the growth
MAX_NAME = 28  # longer names leave no room for the panels
PANEL_WIDTH = 4.0  # inches

COLOURS = (
    style.BLUE,
    style.VERMILION,
    style.GREEN,
    style.ORANGE,
    style.PURPLE,
    style.SKY,
    style.INK,
)
MARKERS = ("o", "^", "s", "D", "v", "P")


def series(cells: Sequence[Cell]) -> dict[str, list[Cell]]:
    """Cells that differ in batch only, by increasing batch, under their common name.

    A name has the settings that vary among all cells ("sorted, 8 devices"), or the
    algorithm alone where none does. Series come in the order of their first cells.
    """
    varying = [key for key in SETTINGS if len({c.get(key) for c in cells}) > 1]
    found: dict[str, list[Cell]] = {}
    for cell in cells:
        words = [_setting(key, cell[key]) for key in varying if key in cell]
        found.setdefault(", ".join(words) or cell["algorithm"], []).append(cell)
    return {
        name: sorted(line, key=lambda cell: cell["batch"])
        for name, line in found.items()
    }


def exponent(sizes: ArrayLike, values: ArrayLike) -> float:
    """k of the power law value ~ size^k: the least squares slope of the logarithms."""
    sizes, values = np.asarray(sizes), np.asarray(values)
    if len(np.unique(sizes)) < 2 or min(sizes.min(), values.min()) <= 0:
        raise ValueError(
            f"no power law goes through the values {values.tolist()} at the sizes "
            f"{sizes.tolist()}; it takes two different sizes or more, all above 0."
        )
    x, y = np.log(sizes), np.log(values)
    x -= x.mean()
    return float(x @ y / (x @ x))


def growth(path: str | os.PathLike, cells: Sequence[Cell]) -> None:
    """Saves the growth of time and memory; see `growth_figure`."""
    style.save(growth_figure(cells), path)


def growth_figure(cells: Sequence[Cell]) -> Figure:
    """Time and temporary memory against batch size, one line per series.

    Bars are quartiles. Floors are grey and dashed. Beside a name stands the growth
    over the line's last three sizes, if it has as many. Cells without temporary
    memory, or with none at all, are left out of its panel. Names that are too many or
    too long for the lines' ends go to a legend.
    """
    if not cells:
        raise ValueError("there are no cells; the picture needs at least one.")
    lines = series(cells)
    longest = max(map(len, lines))
    is_named = len(lines) <= style.MAX_LABELS and longest <= MAX_NAME
    length = longest + len("  ~ B^2.1")
    beside = 0.085 * length + 0.2  # inches
    below = 0.0
    if not is_named:
        beside = max(0.07 * length + 0.8 - PANEL_WIDTH, 0.0)
        below = 0.2 * len(lines) + 0.3
    figure = style.new_figure(2 * (PANEL_WIDTH + beside + 0.8), 4.9 + below)
    figure.set_layout_engine("constrained", wspace=0.05)
    left, right = figure.subplots(1, 2)
    for axes, key, label in (
        (left, "milliseconds", "Time (ms)"),
        (right, "temporary_mib", "Temporary memory (MiB)"),
    ):
        drawn = _draw_lines(axes, lines, key)
        axes.set_ylabel(label)
        style.tidy(axes)
        _finish_batch_axis(axes, sorted({cell["batch"] for cell in cells}))
        if drawn:
            _name_lines(axes, drawn, is_named)
        else:
            axes.text(
                0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center"
            ).set_color(style.FAINT)
            axes.set_yticks([])
    figure.suptitle("Growth with the batch", fontweight="bold")
    note = "bars: quartiles   ~ B^k: growth over the last three batch sizes of a line"
    figure.supxlabel(note, fontsize=9, color=style.FAINT, parse_math=False)
    return figure


def _setting(key: str, value: Any) -> str:
    if key in ("devices", "ranks"):
        return f"{value} {key if value != 1 else key[:-1]}"
    return f"{key} {value}" if key in ("dim", "mesh") else str(value)


def _draw_lines(axes: Axes, lines: Mapping[str, list[Cell]], key: str) -> list[Line2D]:
    """Draws each series that has values above 0 and fits the vertical axis to them."""
    drawn, heights = [], []
    numbers = {True: itertools.count(), False: itertools.count()}
    for name, line in lines.items():
        is_floor = line[0]["algorithm"] == "floor"
        i = next(numbers[is_floor])
        colour = style.FAINT if is_floor else COLOURS[i % len(COLOURS)]
        line = [cell for cell in line if cell.get(key, 0) > 0]
        if not line:
            continue
        batches = np.array([cell["batch"] for cell in line])
        values = np.array([cell[key] for cell in line])
        drawn += axes.plot(
            batches,
            values,
            color=colour,
            linestyle="--" if is_floor else "-",
            linewidth=2,
            marker=MARKERS[i % len(MARKERS)],
            markersize=5,
            label=name,
        )
        heights += [values.min(), values.max()]
        if key == "milliseconds":
            low, high = np.array([cell["quartiles"] for cell in line]).T
            axes.vlines(batches, low, high, color=colour, linewidth=1.2)
            heights += [low.min(), high.max()]
    if drawn:
        _finish_value_axis(axes, min(heights), max(heights))
    return drawn


def _name_lines(axes: Axes, lines: Sequence[Line2D], is_at_ends: bool) -> None:
    """Writes names and exponents at the lines' ends, or in a legend below the axes."""
    names, ends = [], []
    for line in lines:
        points = np.asarray(line.get_xydata())  # [point, 2]
        sizes, values = points[-FITTED_SIZES:].T
        name = str(line.get_label())
        if len(np.unique(sizes)) == FITTED_SIZES:
            name += f"  ~ B^{exponent(sizes, values):.1f}"
        names.append(name)
        ends.append((sizes[-1], values[-1]))
    if is_at_ends:
        style.name_ends(axes, ends, names, [line.get_color() for line in lines])
        return
    to_inches = axes.figure.dpi_scale_trans
    axes.legend(
        lines,
        names,
        frameon=False,
        fontsize=9,
        loc="upper left",
        bbox_to_anchor=(0.0, 0.0),
        bbox_transform=axes.transAxes + ScaledTranslation(0, -0.55, to_inches),
        handlelength=3.5,  # shows a floor's dashes
    )


def _limits(low: float | int, high: float | int) -> tuple[float, float]:
    """Room around low .. high on a logarithmic axis, a factor of 4 at least."""
    half = max(2.0, 1.3 * np.sqrt(high / low))
    centre = np.sqrt(low * high)
    return centre / half, centre * half


def _finish_value_axis(axes: Axes, low: float, high: float) -> None:
    axes.set_yscale("log")
    axes.set_ylim(_limits(low, high))
    decades = np.log10(high / low)
    steps = (1.0, 2.0, 5.0) if decades < 2 else (1.0,)
    axes.yaxis.set_major_locator(ticker.LogLocator(subs=steps, numticks=12))
    axes.yaxis.set_major_formatter(ticker.FuncFormatter(lambda value, _: f"{value:g}"))
    axes.yaxis.set_minor_formatter(ticker.NullFormatter())


def _finish_batch_axis(axes: Axes, sizes: Sequence[int]) -> None:
    """Ticks at the measured sizes; of close ones only some have their number."""
    axes.set_xscale("log")
    axes.set_xlim(_limits(sizes[0], sizes[-1]))
    left, right = np.log(axes.get_xlim())
    inches = PANEL_WIDTH / (right - left)  # for each factor of e
    shown = [sizes[-1]]
    for size in reversed(sizes):
        room = inches * np.log(shown[-1] / size)
        if room > 0.09 * len(str(shown[-1])) + 0.08:
            shown.append(size)
    axes.set_xticks(shown, [str(size) for size in shown])
    axes.xaxis.set_minor_locator(ticker.FixedLocator(sizes))
    axes.xaxis.set_minor_formatter(ticker.NullFormatter())
    axes.set_xlabel("Batch size")
