"""Maps of the embeddings: UMAP and principal components, the splits side by side."""

import os
import threading
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cloc_jax.report.figures import style
from cloc_jax.runtime import environment
from cloc_jax.scoring.embedding_order import unit_vectors

# Of a split. UMAP compares all pairs of fewer than 4,096 points; two splits are.
MAX_POINTS = 2000
MIN_UMAP_POINTS = 100  # of fewer it shows groups where there are none
MAX_NAME = 14  # letters of a rank that has room beside its centroid
PANEL = 3.9  # inches of a map's side, about

_umap_lock = threading.Lock()


def embedding(
    path: str | os.PathLike,
    embeddings: ArrayLike,
    labels: ArrayLike,
    ranks: Sequence[str],
    split_names: Sequence[str] | None = None,
) -> None:
    """Saves a map of the embeddings; see `embedding_figure`."""
    style.save(embedding_figure(embeddings, labels, ranks, split_names), path)


def embedding_figure(
    embeddings: ArrayLike,
    labels: ArrayLike,
    ranks: Sequence[str],
    split_names: Sequence[str] | None = None,
) -> Figure:
    """Embeddings in the plane, coloured by rank: UMAP (by cosine) above PCA.

    Both are made of all embeddings together, so that splits, one name a point, can be
    compared; each has a column of its own. The centroids of the ranks are joined in
    order. Of a split with more than MAX_POINTS points some are drawn, always the same
    ones. Fewer than MIN_UMAP_POINTS, and those on one line, have no UMAP.
    """
    vectors = np.asarray(embeddings, np.float32)  # [point, dim]
    classes = np.asarray(labels)  # [point]
    splits = None if split_names is None else np.asarray(split_names)
    _check_embeddings(vectors, classes, ranks, splits)
    splits = np.full(len(classes), "") if splits is None else splits
    names = list(dict.fromkeys(splits.tolist()))
    totals = {name: int(np.sum(splits == name)) for name in names}
    chosen = np.concatenate([_sampled(np.flatnonzero(splits == n)) for n in names])
    vectors, classes, splits = vectors[chosen], classes[chosen], splits[chosen]

    components, share = _pca(vectors)
    maps = {f"PCA ({100 * share:.0f}% of the variance)": components}
    title = "Embeddings by UMAP and PCA"
    if len(components) < MIN_UMAP_POINTS:
        title = "Embeddings by PCA (too few for UMAP)"
    elif components.std(axis=0).min() < 1e-6:
        title = "Embeddings by PCA (too alike for UMAP)"  # it would divide by 0
    else:
        maps = {"UMAP": _umap(vectors, components)} | maps

    width = 4.1 * len(names) + 1.2 + 0.085 * max(len(_short(rank)) for rank in ranks)
    figure = style.new_figure(width, 4.1 * len(maps) + 0.7)
    grid = figure.subplots(
        len(maps), len(names), sharex="row", sharey="row", squeeze=False
    )
    colours = style.rank_colours(len(ranks))
    for row, (kind, points) in zip(grid, maps.items(), strict=True):
        row[0].set_ylabel(kind)
        for axes, name in zip(row, names, strict=True):
            own = splits == name
            _draw(axes, points[own], classes[own], colours)
        for axes, name in zip(row, names, strict=True):
            own = splits == name  # the columns now have their common limits
            _name_centroids(axes, points[own], classes[own], ranks)
    for axes, name in zip(grid[0], names, strict=True):
        drawn = int(np.sum(splits == name))
        of = f" of {totals[name]:,}" if totals[name] > drawn else ""
        text = f"{name}: {drawn:,}{of} images".removeprefix(": ")
        axes.set_title(text, fontsize=11, parse_math=False)
    bar = style.colour_bar(
        figure, grid, ListedColormap(colours), [_short(rank) for rank in ranks]
    )
    bar.set_label("rank")
    figure.suptitle(title, fontweight="bold")
    return figure


def _short(rank: str) -> str:
    return style.short(rank, 22)


def _sampled(items: np.ndarray) -> np.ndarray:
    if len(items) <= MAX_POINTS:
        return items
    return np.random.default_rng(0).choice(items, MAX_POINTS, replace=False)


def _draw(
    axes: Axes,
    points: np.ndarray,
    labels: np.ndarray,
    colours: np.ndarray,
) -> None:
    axes.scatter(
        points[:, 0],
        points[:, 1],
        c=colours[labels],
        s=16 if len(points) <= 500 else 8,
        alpha=0.65,
        linewidths=0,
    )
    _join_centroids(axes, points, labels, colours)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.08)
    axes.spines[:].set_color("#d5dce2")


def _join_centroids(
    axes: Axes,
    points: np.ndarray,
    labels: np.ndarray,
    colours: np.ndarray,
) -> None:
    present, centres = _centroids(points, labels, len(colours))
    halo = [patheffects.withStroke(linewidth=3, foreground="white")]
    axes.plot(*centres.T, color=style.INK, linewidth=1.4, path_effects=halo)
    axes.scatter(
        centres[:, 0],
        centres[:, 1],
        c=colours[present],
        s=50 if len(present) <= style.MAX_LABELS else 18,
        edgecolors=style.INK,
        linewidths=1.2 if len(present) <= style.MAX_LABELS else 0.8,
        zorder=3,
    )


def _name_centroids(
    axes: Axes, points: np.ndarray, labels: np.ndarray, ranks: Sequence[str]
) -> None:
    """Writes names beside centroids where they lie over no other; needs the limits."""
    present, centres = _centroids(points, labels, len(ranks))
    # The bar beside has all names; there is no room here for long ones.
    if max(len(ranks[i]) for i in present) > MAX_NAME:
        return
    limits = np.array([axes.get_xlim(), axes.get_ylim()])
    inches = PANEL * (centres - limits[:, 0]) / (limits[:, 1] - limits[:, 0])
    named = style.thinned(len(present), style.MAX_LABELS)
    named.sort(key=lambda n: n not in (0, len(present) - 1))  # the ends first
    placed: list[np.ndarray] = []  # [low or high, 2] of each name, in inches
    for n in named:
        name = ranks[present[n]]
        half = np.array([0.055 * len(name), 0.1])
        for side in (1, -1) if n % 2 == 0 else (-1, 1):
            centre = inches[n] + (0, 0.22 * side)
            box = np.array([centre - half, centre + half])
            if not any(_overlap(box, other) for other in placed):
                placed.append(box)
                _write_beside(axes, name, centres[n], side)
                break


def _overlap(a: np.ndarray, b: np.ndarray) -> bool:
    return bool(np.all(a[0] < b[1]) and np.all(b[0] < a[1]))


def _write_beside(axes: Axes, name: str, point: np.ndarray, side: int) -> None:
    axes.annotate(
        name,
        (point[0], point[1]),
        (0, 9 * side),
        textcoords="offset points",
        ha="center",
        va="bottom" if side > 0 else "top",
        fontsize=10,
        fontweight="bold",
        color=style.INK,
        path_effects=[patheffects.withStroke(linewidth=3, foreground="white")],
        zorder=4,
        parse_math=False,
    )


def _centroids(
    points: np.ndarray, labels: np.ndarray, num_ranks: int
) -> tuple[list[int], np.ndarray]:
    """The ranks that are present, and the mean [rank, 2] of each."""
    present = [i for i in range(num_ranks) if np.any(labels == i)]
    return present, np.array([points[labels == i].mean(axis=0) for i in present])


def _check_embeddings(
    embeddings: np.ndarray,
    labels: np.ndarray,
    ranks: Sequence[str],
    splits: np.ndarray | None,
) -> None:
    if embeddings.ndim != 2 or embeddings.size == 0:
        raise ValueError(f"embeddings have shape {embeddings.shape}; wanted [N, D].")
    for name, values in (("labels", labels), ("split_names", splits)):
        if values is not None and values.shape != embeddings.shape[:1]:
            raise ValueError(
                f"{name} has shape {values.shape}; wanted one for each of the "
                f"{len(embeddings)} embeddings."
            )
    if labels.min() < 0 or labels.max() >= len(ranks):
        raise ValueError(
            f"labels go from {labels.min()} to {labels.max()}; with {len(ranks)} ranks "
            f"they must lie in 0 .. {len(ranks) - 1}."
        )
    if not np.all(np.isfinite(embeddings)):
        raise ValueError("embeddings hold NaN or infinity; the run has diverged.")


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
    unit = unit_vectors(embeddings).astype(np.float32)
    # Computed here, since UMAP would call a function for each pair.
    distances = np.maximum(1 - unit @ unit.T, 0)
    np.fill_diagonal(distances, 0)
    # One at a time: numba's workqueue threads abort the process when entered twice.
    with _umap_lock, warnings.catch_warnings():
        warnings.filterwarnings("ignore", "using precomputed metric")
        model = _import_umap().UMAP(
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
    # umap imports TensorFlow where it is installed, for a variant not used here;
    # that costs seconds and may take the GPU's memory from JAX.
    return environment.import_without("umap", "tensorflow")
