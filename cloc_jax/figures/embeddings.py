"""Maps of the embeddings: UMAP, or principal components of few or collapsed ones."""

import os
import threading
from collections.abc import Sequence
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure
from numpy.typing import ArrayLike

from cloc_jax import light_imports
from cloc_jax.figures import style

MAX_POINTS = 2000
MIN_UMAP_POINTS = 15  # below it a neighbourhood is the whole set

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
    """Embeddings in the plane (UMAP by cosine), coloured by rank.

    The centroids of the ranks on the map are joined in order. More than MAX_POINTS
    points are sampled, always the same ones; fewer than MIN_UMAP_POINTS, and those on
    one line, are shown by their principal components. Splits, one name a point, get a
    marker each.
    """
    embeddings = np.asarray(embeddings, np.float32)  # [point, dim]
    labels = np.asarray(labels)  # [point]
    splits = None if split_names is None else np.asarray(split_names)
    _check_embeddings(embeddings, labels, ranks, splits)
    total = len(embeddings)
    if total > MAX_POINTS:
        chosen = np.random.default_rng(0).choice(total, MAX_POINTS, replace=False)
        embeddings, labels = embeddings[chosen], labels[chosen]
        splits = None if splits is None else splits[chosen]
    kind, points = "UMAP", _pca(embeddings)
    if len(points) < MIN_UMAP_POINTS:
        kind = "PCA (too few points for UMAP)"
    elif points.std(axis=0).min() < 1e-6:
        kind = "PCA (too alike for UMAP)"  # collapsed: its scaling would divide by 0
    else:
        points = _umap(embeddings, points)

    figure = style.new_figure(8.4, 6.4)
    axes = figure.subplots()
    colours = style.rank_colours(len(ranks))
    colour_map = ListedColormap(colours)
    groups = [None] if splits is None else list(dict.fromkeys(splits.tolist()))
    for group, marker in zip(groups, _marker_names(len(groups)), strict=True):
        own = slice(None) if group is None else splits == group
        axes.scatter(
            points[own, 0],
            points[own, 1],
            c=colours[labels[own]],
            s=22 if len(points) <= 500 else 12,
            marker=marker,
            alpha=0.65,
            linewidths=0,
        )
        if group is not None:
            axes.scatter([], [], color=style.FAINT, marker=marker, label=str(group))
    if splits is not None:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.01), ncols=4)
    _join_centroids(axes, points, labels, ranks, colours)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.08)
    axes.spines[:].set_color("#d5dce2")
    bar = style.colour_bar(
        figure, axes, colour_map, [style.short(rank, 22) for rank in ranks]
    )
    bar.set_label("rank")
    of = f" of {total:,}" if total > len(points) else ""
    figure.suptitle(f"{kind} of {len(points):,}{of} embeddings", fontweight="bold")
    return figure


def _marker_names(count: int) -> list[str]:
    return [("o", "^", "s", "D", "v", "P")[i % 6] for i in range(count)]


def _join_centroids(
    axes: Axes,
    points: np.ndarray,
    labels: np.ndarray,
    ranks: Sequence[str],
    colours: np.ndarray,
) -> None:
    present = [i for i in range(len(ranks)) if np.any(labels == i)]
    centres = np.array([points[labels == i].mean(axis=0) for i in present])
    halo = [patheffects.withStroke(linewidth=3, foreground="white")]
    axes.plot(*centres.T, color=style.INK, linewidth=1.4, path_effects=halo)
    axes.scatter(
        centres[:, 0],
        centres[:, 1],
        c=colours[present],
        s=70 if len(present) <= style.MAX_LABELS else 22,
        edgecolors=style.INK,
        linewidths=1.4 if len(present) <= style.MAX_LABELS else 0.8,
        zorder=3,
    )
    for n, i in enumerate(style.thinned(len(present), style.MAX_LABELS)):
        is_above = n % 2 == 0  # taking turns keeps neighbours' names apart
        axes.annotate(
            style.short(ranks[present[i]], 22),
            centres[i],
            (0, 9 if is_above else -9),
            textcoords="offset points",
            ha="center",
            va="bottom" if is_above else "top",
            fontsize=10,
            fontweight="bold",
            color=style.INK,
            path_effects=halo,
            zorder=4,
            parse_math=False,
        )


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


def _pca(embeddings: np.ndarray) -> np.ndarray:
    """[point, 2]: the two leading principal components of the directions."""
    norms = np.linalg.norm(embeddings, axis=1, keepdims=True)
    unit = embeddings / np.maximum(norms, 1e-12)  # as cosine sees them
    centred = unit - unit.mean(axis=0)
    left, scale, _ = np.linalg.svd(centred, full_matrices=False)
    points = (left * scale)[:, :2]
    return np.pad(points, ((0, 0), (0, 2 - points.shape[1])))


def _umap(embeddings: np.ndarray, start: np.ndarray) -> np.ndarray:
    """[point, 2]: UMAP by cosine from `start`, the same for the same embeddings."""
    # One at a time: numba's workqueue threads abort the process when entered twice.
    with _umap_lock:
        model = _import_umap().UMAP(
            n_components=2,
            n_neighbors=min(15, len(embeddings) - 1),
            metric="cosine",
            init=start,
            random_state=0,
            n_jobs=1,  # a fixed random_state needs one thread; UMAP warns otherwise
        )
        return np.asarray(model.fit_transform(embeddings))


def _import_umap() -> Any:
    """The umap module, imported only when needed (it takes seconds)."""
    # umap imports TensorFlow where it is installed, for a variant not used here;
    # that costs seconds and may take the GPU's memory from JAX.
    return light_imports.import_without("umap", "tensorflow")
