"""How alike the images of two ranks are."""

import os
from collections.abc import Sequence

import matplotlib as mpl
import numpy as np
from matplotlib.colors import Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cloc_jax.report.figures import matrix, style


def similarity(
    path: str | os.PathLike, cosines: ArrayLike, ranks: Sequence[str]
) -> None:
    """Saves the similarity by rank; see `similarity_figure`."""
    style.save(similarity_figure(cosines, ranks), path)


def similarity_figure(cosines: ArrayLike, ranks: Sequence[str]) -> Figure:
    """Mean cosine [rank, rank] as colours, with the numbers while there is room.

    NaN, a pair of ranks without images, is left grey.
    """
    cosines = matrix.checked(cosines, ranks, "similarity matrix").astype(np.float64)
    count = len(ranks)
    known = cosines[np.isfinite(cosines)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if high - low < 1e-3:  # all alike, where the colours would show rounding
        low, high = low - 0.05, high + 0.05
    colour_map = mpl.colormaps["viridis"].with_extremes(bad="#e3e8ec")
    scale = Normalize(low, high)
    figure, axes = matrix.matrix_axes(ranks)
    image = axes.imshow(np.ma.masked_invalid(cosines), cmap=colour_map, norm=scale)
    axes.set_xlabel("Rank")
    axes.set_ylabel("Rank")
    matrix.finish(axes, ranks)
    for i, j in (
        np.argwhere(np.isfinite(cosines)) if count <= matrix.MAX_WRITTEN else ()
    ):
        axes.text(
            j,
            i,
            _written(cosines[i, j]),
            ha="center",
            va="center",
            # The upper half of the colours is pale.
            color=style.INK if scale(cosines[i, j]) > 0.55 else "white",
            fontsize=11 if count <= 8 else 9.5 if count <= 12 else 8,
        )
    bar = figure.colorbar(image, ax=axes, shrink=0.75, aspect=24, pad=0.03)
    bar.set_label("mean cosine")
    bar.outline.set_visible(False)
    figure.suptitle("How alike the images of two ranks are", fontweight="bold")
    return figure


def _written(cosine: float) -> str:
    return f"{cosine + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")
