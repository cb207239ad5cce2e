"""Square matrices, ranks down and across: confusion, and similarity of embeddings."""

from collections.abc import Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cloc_jax.report.figures import style
from cloc_jax.scoring import metrics

MAX_WRITTEN = 20  # with more ranks, cells have no room for numbers


def confusion_figure(
    counts: ArrayLike, ranks: Sequence[str], critical: Sequence[str] = ()
) -> Figure:
    """True ranks down, predicted across; colour is the share of the true rank.

    Cells hold the count and the percentage of their row while there is room.
    `critical` are boundary names, drawn as lines between their two ranks: below the
    corner lie the missed, right of it the false alarms.
    """
    numbers = np.asarray(counts)
    shares = numbers / np.maximum(numbers.sum(axis=1, keepdims=True), 1)
    figure, axes = _matrix_axes(ranks, extra_height=0.25 * bool(critical))
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("Predicted rank")
    axes.set_ylabel("True rank")
    _name_ranks(axes, ranks)
    has_percents = len(ranks) <= style.MAX_LABELS
    for i, j in np.argwhere(numbers).tolist() if len(ranks) <= MAX_WRITTEN else ():
        percent = f"{100 * shares[i, j]:.1f}%" if shares[i, j] < 0.9995 else "100%"
        text = f"{numbers[i, j]}\n{percent}" if has_percents else f"{numbers[i, j]}"
        _write_cell(
            axes, i, j, text, is_dark=bool(shares[i, j] > 0.55), count=len(ranks)
        )
    _mark_critical(axes, ranks, critical)
    bar = _colour_bar(figure, image, axes, "share of the true rank")
    bar.ax.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    figure.suptitle("True rank against predicted rank", fontweight="bold")
    return figure


def _mark_critical(axes: Axes, ranks: Sequence[str], critical: Sequence[str]) -> None:
    """Lines between the two ranks of each critical boundary, named in the title."""
    for name in critical:
        edge = metrics.boundary_names(ranks).index(name) + 0.5
        for line in (axes.axhline, axes.axvline):
            line(edge, color=style.VERMILION, linewidth=2.2)
    if critical:
        word = "boundary" if len(critical) == 1 else "boundaries"
        shown = ", ".join(style.short_boundary(name, ranks) for name in critical[:3])
        more = f" and {len(critical) - 3} more" if len(critical) > 3 else ""
        axes.set_title(
            f"orange line: critical {word} {shown}{more}",
            fontsize=10,
            color=style.VERMILION,
            parse_math=False,
        )


def similarity_figure(cosines: ArrayLike, ranks: Sequence[str]) -> Figure:
    """Mean cosine [rank, rank] as colours, with the numbers while there is room.

    NaN, a pair of ranks without images, is left grey.
    """
    cosines = np.asarray(cosines, np.float64)
    known = cosines[np.isfinite(cosines)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if high - low < 1e-3:  # all alike, where the colours would show rounding
        low, high = low - 0.05, high + 0.05
    colour_map = mpl.colormaps["viridis"].with_extremes(bad="#e3e8ec")
    scale = Normalize(low, high)
    figure, axes = _matrix_axes(ranks)
    image = axes.imshow(np.ma.masked_invalid(cosines), cmap=colour_map, norm=scale)
    axes.set_xlabel("Rank")
    axes.set_ylabel("Rank")
    _name_ranks(axes, ranks)
    has_room = len(ranks) <= MAX_WRITTEN
    for i, j in np.argwhere(np.isfinite(cosines)).tolist() if has_room else ():
        text = f"{cosines[i, j] + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")
        # The upper half of the colours is pale.
        is_dark = bool(scale(cosines[i, j]) <= 0.55)
        _write_cell(axes, i, j, text, is_dark=is_dark, count=len(ranks))
    _colour_bar(figure, image, axes, "mean cosine")
    figure.suptitle("How alike the images of two ranks are", fontweight="bold")
    return figure


# --- what both share ---


def _matrix_axes(
    ranks: Sequence[str], *, extra_height: float = 0.0
) -> tuple[Figure, Axes]:
    """Axes of a size that suits the number and the names of the ranks."""
    side, longest = _side(len(ranks)), _longest(ranks)
    below = 0.75 * longest if _is_tilted(ranks) else 0.2
    figure = style.new_figure(side + longest + 1.9, side + below + 1.1 + extra_height)
    return figure, figure.subplots()


def _name_ranks(axes: Axes, ranks: Sequence[str]) -> None:
    """Names the ranks, of many only some, and sets the cells apart by white lines."""
    count = len(ranks)
    ticks = style.thinned(count, MAX_WRITTEN)
    names = _names(ranks)
    axes.set_xticks(ticks, [names[i] for i in ticks], parse_math=False)
    axes.set_yticks(ticks, [names[i] for i in ticks], parse_math=False)
    if _is_tilted(ranks):
        for label in axes.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    for edge in np.arange(count - 1) + 0.5 if count <= MAX_WRITTEN else ():
        axes.axhline(edge, color="white", linewidth=1)
        axes.axvline(edge, color="white", linewidth=1)


def _write_cell(
    axes: Axes, row: int, column: int, text: str, *, is_dark: bool, count: int
) -> None:
    axes.text(
        column,
        row,
        text,
        ha="center",
        va="center",
        color="white" if is_dark else style.INK,
        fontsize=11 if count <= 8 else 9.5 if count <= 12 else 8,
        linespacing=1.25,
    )


def _colour_bar(figure: Figure, image: Any, axes: Axes, label: str) -> Any:
    bar = figure.colorbar(image, ax=axes, shrink=0.75, aspect=24, pad=0.03)
    bar.set_label(label)
    bar.outline.set_visible(False)
    return bar


def _names(ranks: Sequence[str]) -> list[str]:
    return [style.short(rank, 22) for rank in ranks]


def _side(count: int) -> float:
    return float(np.clip(0.85 * count, 3.4, 7.5))  # inches


def _longest(ranks: Sequence[str]) -> float:
    return 0.085 * max(map(len, _names(ranks)))  # inches


def _is_tilted(ranks: Sequence[str]) -> bool:
    count = len(ranks)
    return _longest(ranks) > 0.9 * _side(count) / min(count, style.MAX_LABELS)
