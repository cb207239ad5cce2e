"""Maps of the embeddings: UMAP and principal components, the splits side by side."""

import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import patheffects
from matplotlib.axes import Axes
from matplotlib.colors import ListedColormap
from matplotlib.figure import Figure

from cloc_jax.report.figures import style
from cloc_jax.scoring.metrics import unit_vectors

# Of a split. UMAP compares all pairs of fewer than 4,096 points; two splits are.
MAX_POINTS = 2000
MIN_UMAP_POINTS = 100  # of fewer it shows groups where there are none
MAX_NAME = 14  # letters of a rank that has room beside its centroid
PANEL = 3.9  # inches of a map's side, about

Embedded = tuple[np.ndarray, np.ndarray]  # [point, dim], and the label of each

_umap_lock = threading.Lock()


def embedding_figure(splits: Mapping[str, Embedded], ranks: Sequence[str]) -> Figure:
    """Embeddings in the plane, coloured by rank: UMAP (by cosine) above PCA.

    Both are made of all splits together, so that splits can be compared; each has a
    column of its own. The centroids of the ranks are joined in order. Of a split with
    more than MAX_POINTS points some are drawn, always the same ones. Fewer than
    MIN_UMAP_POINTS, and those on one line, have no UMAP.
    """
    chosen = {name: _sampled(len(labels)) for name, (_, labels) in splits.items()}
    vectors = np.concatenate(
        [np.asarray(splits[name][0], np.float32)[some] for name, some in chosen.items()]
    )  # [point, dim]
    if not np.all(np.isfinite(vectors)):
        raise ValueError("embeddings hold NaN or infinity; the run has diverged.")
    classes = np.concatenate([splits[name][1][some] for name, some in chosen.items()])
    column = np.repeat(np.arange(len(splits)), [len(some) for some in chosen.values()])

    components, share = _pca(vectors)
    maps = {f"PCA ({100 * share:.0f}% of the variance)": components}
    title = "Embeddings by UMAP and PCA"
    if len(components) < MIN_UMAP_POINTS:
        title = "Embeddings by PCA (too few for UMAP)"
    elif components.std(axis=0).min() < 1e-6:
        title = "Embeddings by PCA (too alike for UMAP)"  # it would divide by 0
    else:
        maps = {"UMAP": _umap(vectors, components)} | maps

    width = 4.1 * len(splits) + 1.2 + 0.085 * max(len(_short(rank)) for rank in ranks)
    figure = style.new_figure(width, 4.1 * len(maps) + 0.7)
    grid = figure.subplots(
        len(maps), len(splits), sharex="row", sharey="row", squeeze=False
    )
    colours = style.rank_colours(len(ranks))
    for row, (kind, points) in zip(grid, maps.items(), strict=True):
        row[0].set_ylabel(kind)
        for i, axes in enumerate(row):
            _draw(axes, points[column == i], classes[column == i], colours)
        for i, axes in enumerate(row):  # the columns now have their common limits
            _name_centroids(axes, points[column == i], classes[column == i], ranks)
    for axes, (name, some) in zip(grid[0], chosen.items(), strict=True):
        total = len(splits[name][1])
        of = f" of {total:,}" if total > len(some) else ""
        text = f"{name}: {len(some):,}{of} images"
        axes.set_title(text, fontsize=11, parse_math=False)
    bar = style.colour_bar(
        figure, grid, ListedColormap(colours), [_short(rank) for rank in ranks]
    )
    bar.set_label("rank")
    figure.suptitle(title, fontweight="bold")
    return figure


def _short(rank: str) -> str:
    return style.short(rank, 22)


def _sampled(count: int) -> np.ndarray:
    if count <= MAX_POINTS:
        return np.arange(count)
    return np.random.default_rng(0).choice(count, MAX_POINTS, replace=False)


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
    known = sys.modules.get("tensorflow")
    sys.modules["tensorflow"] = None  # type: ignore[assignment]  # cannot be imported
    try:
        import umap

        return umap
    finally:
        del sys.modules["tensorflow"]
        if known:
            sys.modules["tensorflow"] = known
