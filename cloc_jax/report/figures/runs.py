"""Pictures of a run: its confusion, how alike its ranks are, and maps of embeddings."""

import sys
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import patheffects, ticker
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cloc_jax.report.figures import style
from cloc_jax.scoring import metrics
from cloc_jax.scoring.metrics import unit_vectors

MAX_WRITTEN = 20  # with more ranks, cells have no room for numbers
MIN_UMAP_POINTS = 100  # of fewer it shows groups where there are none

Embedded = tuple[np.ndarray, np.ndarray]  # [point, dim], and the label of each


# --- matrices, ranks down and across ---


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
    texts = {}
    for i, j in np.argwhere(numbers).tolist():
        percent = f"{100 * shares[i, j]:.1f}%" if shares[i, j] < 0.9995 else "100%"
        texts[i, j] = f"{numbers[i, j]}"
        if len(ranks) <= style.MAX_LABELS:
            texts[i, j] += f"\n{percent}"
    blues = mpl.colormaps["Blues"]
    figure, axes, bar = _matrix(shares, ranks, texts, blues, Normalize(0, 1))
    axes.set_xlabel("Predicted rank")
    axes.set_ylabel("True rank")
    for name in critical:
        edge = metrics.boundary_names(ranks).index(name) + 0.5
        for line in (axes.axhline, axes.axvline):
            line(edge, color=style.VERMILION, linewidth=2.2)
    if critical:
        text = f"orange lines: critical, {style.short(', '.join(critical), 40)}"
        options = {"fontsize": 10, "color": style.VERMILION, "parse_math": False}
        axes.set_title(text, **options)
    bar.set_label("share of the true rank")
    bar.ax.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    figure.suptitle("True rank against predicted rank", fontweight="bold")
    return figure


def similarity_figure(cosines: ArrayLike, ranks: Sequence[str]) -> Figure:
    """Mean cosine [rank, rank] as colours, with the numbers while there is room.

    NaN, a pair of ranks without images, is left grey.
    """
    cosines = np.asarray(cosines, np.float64)
    known = cosines[np.isfinite(cosines)]
    low, high = (known.min(), known.max()) if known.size else (0.0, 1.0)
    if high - low < 1e-3:  # all alike, where the colours would show rounding
        low, high = low - 0.05, high + 0.05
    texts = {
        (i, j): f"{cosines[i, j] + 0.0:.2f}".replace("-0.00", "0.00").replace("-", "−")
        for i, j in np.argwhere(np.isfinite(cosines)).tolist()
    }
    colours = mpl.colormaps["viridis"].with_extremes(bad="#e3e8ec")
    figure, axes, bar = _matrix(cosines, ranks, texts, colours, Normalize(low, high))
    axes.set_xlabel("Rank")
    axes.set_ylabel("Rank")
    bar.set_label("mean cosine")
    figure.suptitle("How alike the images of two ranks are", fontweight="bold")
    return figure


def _matrix(
    values: np.ndarray,
    ranks: Sequence[str],
    texts: Mapping[tuple[int, int], str],
    colours: Colormap,
    scale: Normalize,
):
    """Figure, axes and colour bar of a size that suits the ranks and their names."""
    count, names = len(ranks), [style.short(rank, 22) for rank in ranks]
    side = float(np.clip(0.85 * count, 3.4, 7.5))  # inches
    longest = 0.085 * max(map(len, names))
    is_tilted = longest > 0.9 * side / min(count, style.MAX_LABELS)
    below = 0.75 * longest if is_tilted else 0.2
    figure = style.new_figure(side + longest + 2.1, side + below + 1.3)
    axes = figure.subplots()
    image = axes.imshow(np.ma.masked_invalid(values), cmap=colours, norm=scale)
    ticks = style.thinned(count, MAX_WRITTEN)
    axes.set_xticks(ticks, [names[i] for i in ticks], parse_math=False)
    axes.set_yticks(ticks, [names[i] for i in ticks], parse_math=False)
    if is_tilted:
        for label in axes.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.spines[:].set_visible(False)
    if count <= MAX_WRITTEN:
        for edge in np.arange(count - 1) + 0.5:
            axes.axhline(edge, color="white", linewidth=1)
            axes.axvline(edge, color="white", linewidth=1)
        for (i, j), text in texts.items():
            red, green, blue, _ = image.to_rgba(values[i, j])
            is_dark = 0.3 * red + 0.59 * green + 0.11 * blue < 0.5
            colour = "white" if is_dark else style.INK
            size = 11 if count <= 8 else 9.5 if count <= 12 else 8
            cell = axes.text(j, i, text, color=colour, fontsize=size, linespacing=1.25)
            cell.set(ha="center", va="center")
    bar = figure.colorbar(image, ax=axes, shrink=0.75, aspect=24, pad=0.03)
    bar.outline.set_visible(False)
    return figure, axes, bar


# --- maps of the embeddings ---


def embedding_figure(splits: Mapping[str, Embedded], ranks: Sequence[str]) -> Figure:
    """Embeddings in the plane, coloured by rank: UMAP (by cosine) above PCA.

    Both are made of all splits together, so that splits can be compared; each has a
    column of its own. The centroids of the ranks are joined in order. Fewer points than
    MIN_UMAP_POINTS, and those on one line, have no UMAP; without umap-learn none have.
    """
    vectors = np.concatenate([points for points, _ in splits.values()])
    classes = np.concatenate([labels for _, labels in splits.values()])
    counts = [len(labels) for _, labels in splits.values()]
    column = np.repeat(np.arange(len(splits)), counts)

    components, share = _pca(vectors)
    maps = {f"PCA ({100 * share:.0f}% of the variance)": components}
    obstacle = "too few or too alike for UMAP"
    # Of points on one line, UMAP would divide by 0.
    if len(components) >= MIN_UMAP_POINTS and components.std(axis=0).min() > 1e-6:
        try:
            maps = {"UMAP": _umap(vectors, components)} | maps
        except ImportError:
            obstacle = "for UMAP, install umap-learn"

    names = [style.short(rank, 22) for rank in ranks]
    width = 4.1 * len(splits) + 1.2 + 0.085 * max(map(len, names))
    figure = style.new_figure(width, 4.1 * len(maps) + 0.7)
    grid = figure.subplots(
        len(maps), len(splits), sharex="row", sharey="row", squeeze=False
    )
    for row, (kind, points) in zip(grid, maps.items(), strict=True):
        row[0].set_ylabel(kind)
        for i, axes in enumerate(row):
            _draw(axes, points[column == i], classes[column == i], len(ranks))
    for axes, name, count in zip(grid[0], splits, counts, strict=True):
        axes.set_title(f"{name}: {count:,} images", fontsize=11, parse_math=False)
    style.rank_bar(figure, grid, names)
    kinds = "UMAP and PCA" if "UMAP" in maps else f"PCA ({obstacle})"
    figure.suptitle(f"Embeddings by {kinds}", fontweight="bold")
    return figure


def _draw(axes: Axes, points: np.ndarray, labels: np.ndarray, count: int) -> None:
    """Points, and the centroids of the ranks, of which there are so many."""
    colours = style.rank_colours(count)
    size = 16 if len(points) <= 500 else 8
    x, y = points.T
    axes.scatter(x, y, size, colours[labels], alpha=0.65, linewidths=0)
    present = np.unique(labels)
    centres = np.array([points[labels == i].mean(axis=0) for i in present])
    halo = [patheffects.withStroke(linewidth=3, foreground="white")]
    x, y = centres.T
    axes.plot(x, y, color=style.INK, linewidth=1.4, path_effects=halo)
    size = 50 if len(present) <= style.MAX_LABELS else 18
    axes.scatter(x, y, size, colours[present], edgecolors=style.INK, zorder=3)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.08)
    axes.spines[:].set_color("#d5dce2")


def _pca(embeddings: np.ndarray) -> tuple[np.ndarray, float]:
    """[point, 2]: the two leading principal components of the directions, and which
    share of the variance they have."""
    unit = unit_vectors(embeddings).astype(np.float32)
    centred = unit - unit.mean(axis=0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * scale)[:, :2]
    share = np.sum(scale[:2] ** 2) / max(np.sum(scale**2), 1e-12)
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1]))), float(share)


def _umap(embeddings: np.ndarray, start: np.ndarray) -> np.ndarray:
    """[point, 2]: UMAP by cosine from `start`, the same for the same embeddings."""
    umap = _import_umap()
    unit = unit_vectors(embeddings).astype(np.float32)
    # Computed here, since UMAP would call a function for each pair.
    distances = np.maximum(1 - unit @ unit.T, 0)
    np.fill_diagonal(distances, 0)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "using precomputed metric")
        model = umap.UMAP(
            n_components=2,
            n_neighbors=min(15, len(embeddings) - 1),
            metric="precomputed",
            init=start,
            random_state=0,
            n_jobs=1,  # a fixed random_state needs one thread; UMAP warns otherwise
        )
        return np.asarray(model.fit_transform(distances))


def _import_umap() -> Any:
    """The umap module, imported only when needed (it takes seconds)."""
    # umap imports TensorFlow where it is installed, for a variant not used here; that
    # costs seconds and may take the GPU's memory from JAX.
    known = sys.modules.get("tensorflow")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]  # cannot be imported
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # that it is not installed
            import umap
        return umap
    finally:
        del sys.modules["tensorflow"]
        if known:
            sys.modules["tensorflow"] = known
