"""The confusion matrix."""

import os
from collections.abc import Sequence

import numpy as np
from matplotlib import ticker
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cloc_jax.report.figures import matrix, style
from cloc_jax.scoring import metrics


def confusion(
    path: str | os.PathLike,
    counts: ArrayLike,
    ranks: Sequence[str],
    critical: Sequence[str] = (),
) -> None:
    """Saves the confusion matrix; see `confusion_figure`."""
    style.save(confusion_figure(counts, ranks, critical), path)


def confusion_figure(
    counts: ArrayLike, ranks: Sequence[str], critical: Sequence[str] = ()
) -> Figure:
    """True ranks down, predicted across; colour is the share of the true rank.

    Cells hold the count and the percentage of their row while there is room.
    `critical` are boundary names, drawn as lines between their two ranks: below the
    corner lie the missed, right of it the false alarms.
    """
    counts = matrix.checked(counts, ranks, "confusion matrix")
    names = metrics.boundary_names(ranks)
    for name in critical:
        if name not in names:
            raise ValueError(f"no boundary is called {name!r}; there are {names}.")

    count = len(ranks)
    figure, axes = matrix.matrix_axes(ranks, extra_height=0.25 * bool(critical))
    shares = counts / np.maximum(counts.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    axes.set_xlabel("Predicted rank")
    axes.set_ylabel("True rank")
    matrix.finish(axes, ranks)
    for i in range(count) if count <= matrix.MAX_WRITTEN else ():
        for j in range(count):
            if counts[i, j]:
                text = f"{counts[i, j]}"
                if count <= style.MAX_LABELS:
                    text += f"\n{_percent(shares[i, j])}"
                axes.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    color="white" if shares[i, j] > 0.55 else style.INK,
                    fontsize=11 if count <= 8 else 9.5 if count <= 12 else 8,
                    linespacing=1.25,
                )
    for name in critical:
        edge = names.index(name) + 0.5
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
    bar = figure.colorbar(image, ax=axes, shrink=0.75, aspect=24, pad=0.03)
    bar.set_label("share of the true rank")
    bar.ax.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    bar.outline.set_visible(False)
    figure.suptitle("True rank against predicted rank", fontweight="bold")
    return figure


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%" if share < 0.9995 else "100%"
