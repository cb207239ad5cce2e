"""What pictures of square matrices share: ranks down and across."""

from collections.abc import Sequence

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cloc_jax.report.figures import style

MAX_WRITTEN = 20  # with more ranks, cells have no room for numbers


def checked(values: ArrayLike, ranks: Sequence[str], name: str) -> np.ndarray:
    """The matrix as an array, ValueError unless it has a row and column a rank."""
    values = np.asarray(values)
    if values.shape != (len(ranks), len(ranks)):
        raise ValueError(
            f"the {name} has shape {values.shape}; {len(ranks)} ranks need "
            f"{(len(ranks), len(ranks))}."
        )
    return values


def matrix_axes(
    ranks: Sequence[str], *, extra_height: float = 0.0
) -> tuple[Figure, Axes]:
    """Axes of a size that suits the number and the names of the ranks."""
    side = _side(len(ranks))
    longest = _longest(ranks)
    below = 0.75 * longest if _is_tilted(ranks) else 0.2
    figure = style.new_figure(side + longest + 1.9, side + below + 1.1 + extra_height)
    return figure, figure.subplots()


def finish(axes: Axes, ranks: Sequence[str]) -> None:
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


def _names(ranks: Sequence[str]) -> list[str]:
    return [style.short(rank, 22) for rank in ranks]


def _side(count: int) -> float:
    return float(np.clip(0.85 * count, 3.4, 7.5))  # inches


def _longest(ranks: Sequence[str]) -> float:
    return 0.085 * max(map(len, _names(ranks)))  # inches


def _is_tilted(ranks: Sequence[str]) -> bool:
    count = len(ranks)
    return _longest(ranks) > 0.9 * _side(count) / min(count, style.MAX_LABELS)
