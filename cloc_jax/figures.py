"""Pictures of a run: each function draws one and saves it as a PNG.

Every picture has a function that builds the Figure and one that saves it. Figures are
plain objects, never pyplot's global ones, so they can be drawn from any thread.
"""

import importlib
import os
import sys
import threading
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import matplotlib as mpl
import numpy as np
from matplotlib import patheffects, ticker
from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.colors import Colormap, ListedColormap, Normalize
from matplotlib.figure import Figure
from numpy.typing import ArrayLike
from sklearn import isotonic

from cloc_jax import metrics

DPI = 150
MAX_LABELS = 12  # more names than this on one side are thinned out
MAX_POINTS = 2000  # in an embedding
MIN_UMAP_POINTS = 15  # below it a neighbourhood is the whole set

INK = "#22303c"
FAINT = "#8a97a3"
# Okabe and Ito's colours, which colour-blind readers can tell apart.
BLUE, ORANGE, GREEN, VERMILION = "#0072b2", "#e69f00", "#009e73", "#d55e00"

_umap_lock = threading.Lock()


def confusion(
    path: str | os.PathLike,
    matrix: ArrayLike,
    ranks: Sequence[str],
    critical: Sequence[str] = (),
) -> None:
    """Saves the confusion matrix; see `confusion_figure`."""
    _save(confusion_figure(matrix, ranks, critical), path)


def confusion_figure(
    matrix: ArrayLike, ranks: Sequence[str], critical: Sequence[str] = ()
) -> Figure:
    """True ranks down, predicted across; colour is the share of the true rank.

    Cells hold the count and the percentage of their row while there is room.
    `critical` are boundary names, drawn as lines between their two ranks: below the
    corner lie the missed, right of it the false alarms.
    """
    matrix = np.asarray(matrix)
    if matrix.shape != (len(ranks), len(ranks)):
        raise ValueError(
            f"the confusion matrix has shape {matrix.shape}; {len(ranks)} ranks need "
            f"{(len(ranks), len(ranks))}."
        )
    names = metrics.boundary_names(ranks)
    for name in critical:
        if name not in names:
            raise ValueError(f"no boundary is called {name!r}; there are {names}.")

    count = len(ranks)
    side = float(np.clip(0.85 * count, 3.4, 7.5))  # inches
    labels = [_short(rank, 22) for rank in ranks]
    longest = 0.085 * max(map(len, labels))
    is_tilted = longest > 0.9 * side / min(count, MAX_LABELS)
    below = 0.75 * longest if is_tilted else 0.2
    figure, axes = _new_figure(
        side + longest + 1.7, side + below + 1.1 + 0.25 * bool(critical)
    )
    shares = matrix / np.maximum(matrix.sum(axis=1, keepdims=True), 1)
    image = axes.imshow(shares, cmap="Blues", vmin=0, vmax=1)
    ticks = _thinned(count, 20)
    axes.set_xticks(ticks, [labels[i] for i in ticks], parse_math=False)
    axes.set_yticks(ticks, [labels[i] for i in ticks], parse_math=False)
    if is_tilted:
        for label in axes.get_xticklabels():
            label.set(rotation=40, ha="right", rotation_mode="anchor")
    axes.tick_params(length=0)
    axes.set_xlabel("Predicted rank")
    axes.set_ylabel("True rank")
    for edge in np.arange(count - 1) + 0.5 if count <= 20 else ():
        axes.axhline(edge, color="white", linewidth=1)
        axes.axvline(edge, color="white", linewidth=1)
    for i in range(count) if count <= 20 else ():
        for j in range(count):
            if matrix[i, j]:
                text = f"{matrix[i, j]}"
                if count <= MAX_LABELS:
                    text += f"\n{_percent(shares[i, j])}"
                axes.text(
                    j,
                    i,
                    text,
                    ha="center",
                    va="center",
                    color="white" if shares[i, j] > 0.55 else INK,
                    fontsize=11 if count <= 8 else 8,
                    linespacing=1.25,
                )
    for name in critical:
        edge = names.index(name) + 0.5
        for line in (axes.axhline, axes.axvline):
            line(edge, color=VERMILION, linewidth=2.2)
    if critical:
        word = "boundary" if len(critical) == 1 else "boundaries"
        shown = ", ".join(_short_boundary(name, ranks) for name in critical[:3])
        more = f" and {len(critical) - 3} more" if len(critical) > 3 else ""
        axes.set_title(
            f"orange line: critical {word} {shown}{more}",
            fontsize=10,
            color=VERMILION,
            parse_math=False,
        )
    bar = figure.colorbar(image, ax=axes, shrink=0.75, aspect=24, pad=0.03)
    bar.set_label("share of the true rank")
    bar.ax.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    bar.outline.set_visible(False)
    axes.spines[:].set_visible(False)
    figure.suptitle("True rank against predicted rank", fontweight="bold")
    return figure


def margins(
    path: str | os.PathLike,
    history: Sequence[Mapping[str, Any]],
    ranks: Sequence[str],
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Saves the course of the margins; see `margins_figure`."""
    _save(margins_figure(history, ranks, kinds), path)


def margins_figure(
    history: Sequence[Mapping[str, Any]],
    ranks: Sequence[str],
    kinds: Mapping[str, str] | None = None,
) -> Figure:
    """Margins against epoch, one line a boundary, its name at the line's end.

    Fixed margins are dashed. Without `kinds` ("learned", "fixed" or "floored" by
    boundary) those count as fixed that never moved in the first stage. With too many
    boundaries to name, a colour bar stands in for the names.
    """
    names = metrics.boundary_names(ranks)
    epochs, changes = _epochs(history)
    rows = [row.get("margins") or {} for row in history]
    courses = {
        name: np.array([_number(row.get(name)) for row in rows])
        for name in names
        if any(name in row for row in rows)
    }
    if not courses:
        raise ValueError(
            f"no row of the history has a margin for any of {names}; methods without "
            "margins have no such picture."
        )
    if kinds is None:
        kinds = _kinds_from_history(history, courses)
    is_named = len(courses) <= MAX_LABELS
    figure, axes = _new_figure(9.2, 4.8)
    colours = _rank_colours(len(courses))
    for colour, (name, course) in zip(colours, courses.items(), strict=True):
        axes.plot(
            epochs,
            course,
            color=colour,
            linestyle="--" if kinds.get(name) == "fixed" else "-",
            linewidth=2.2 if is_named else 1.1,
            label=name,
            **_markers(epochs, 4.0 if is_named else 2.0),
        )
    values = np.concatenate(list(courses.values()))
    high = max(float(np.nanmax(values)), 1e-3)
    axes.set_ylim(min(0.0, float(np.nanmin(values))), 1.08 * high)
    axes.set_ylabel("Margin")
    _finish_epoch_axis(axes, epochs, changes)
    if is_named:
        _name_ends(axes, epochs, courses, colours, kinds, ranks)
    else:
        _boundary_bar(figure, axes, ListedColormap(colours), list(courses), ranks)
    figure.suptitle("Margin of each boundary", fontweight="bold")
    return figure


def curves(path: str | os.PathLike, history: Sequence[Mapping[str, Any]]) -> None:
    """Saves the course of training; see `curves_figure`."""
    _save(curves_figure(history), path)


def curves_figure(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss with its parts, and accuracy on clean training and validation data.

    The loss may be another one in another stage, so its lines break between stages.
    """
    if not history:
        raise ValueError("the history is empty; it needs a row for at least one epoch.")
    epochs, changes = _epochs(history)
    figure = Figure(figsize=(9.2, 6.4), layout="constrained")
    FigureCanvasAgg(figure)
    top, bottom = figure.subplots(2, 1, sharex=True)
    panels = {
        top: [
            ("train", "loss", "train loss", INK, "-"),
            ("train", "cross_entropy", "cross-entropy", BLUE, "--"),
            ("train", "mmnp", "multi-margin", VERMILION, ":"),
        ],
        bottom: [
            ("train_eval", "accuracy", "train, clean images", BLUE, "--"),
            ("val", "accuracy", "validation", VERMILION, "-"),
        ],
    }
    for axes, lines in panels.items():
        for split, key, label, colour, style in lines:
            values = np.array([_number((r.get(split) or {}).get(key)) for r in history])
            if np.all(np.isnan(values)):
                continue
            x, y = epochs, values
            if axes is top:
                gaps = [i for i in range(1, len(x)) if _is_change(history, i)]
                x = np.insert(x, gaps, np.nan)
                y = np.insert(y, gaps, np.nan)
            axes.plot(
                x,
                y,
                color=colour,
                linestyle=style,
                linewidth=2,
                label=label,
                **_markers(epochs, 3.5),
            )
        _tidy(axes)
        if axes.lines:
            # Beside the panel: inside it a legend covers some run's curve.
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        else:
            axes.text(
                0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center"
            ).set_color(FAINT)
    top.set_ylabel("Loss")
    bottom.set_ylabel("Accuracy")
    bottom.yaxis.set_major_formatter(ticker.PercentFormatter(1, decimals=0))
    _finish_epoch_axis(top, epochs, changes)
    _finish_epoch_axis(bottom, epochs, changes, is_named=False)
    top.set_xlabel("")
    figure.suptitle("Course of training", fontweight="bold")
    return figure


def embedding(
    path: str | os.PathLike,
    embeddings: ArrayLike,
    labels: ArrayLike,
    ranks: Sequence[str],
    split_names: Sequence[str] | None = None,
) -> None:
    """Saves a map of the embeddings; see `embedding_figure`."""
    _save(embedding_figure(embeddings, labels, ranks, split_names), path)


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

    figure, axes = _new_figure(8.4, 6.4)
    colours = _rank_colours(len(ranks))
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
            axes.scatter([], [], color=FAINT, marker=marker, label=str(group))
    if splits is not None:
        axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(0, -0.01), ncols=4)
    _join_centroids(axes, points, labels, ranks, colours)
    axes.set_xticks([])
    axes.set_yticks([])
    axes.margins(0.08)
    axes.spines[:].set_color("#d5dce2")
    bar = _colour_bar(figure, axes, colour_map, [_short(rank, 22) for rank in ranks])
    bar.set_label("rank")
    of = f" of {total:,}" if total > len(points) else ""
    figure.suptitle(f"{kind} of {len(points):,}{of} embeddings", fontweight="bold")
    return figure


# --- parts ---------------------------------------------------------------------------


def _new_figure(width: float, height: float) -> tuple[Figure, Axes]:
    figure = Figure(figsize=(width, height), layout="constrained")
    FigureCanvasAgg(figure)
    return figure, figure.subplots()


def _save(figure: Figure, path: str | os.PathLike) -> None:
    figure.savefig(path, dpi=DPI, format="png", bbox_inches="tight", pad_inches=0.12)


def _number(value: float | int | None) -> float:
    return np.nan if value is None else float(value)


def _percent(share: float) -> str:
    return f"{100 * share:.1f}%" if share < 0.9995 else "100%"


def _short(name: str, length: int) -> str:
    """The name, its middle cut out where it is longer than `length`."""
    name = str(name)
    if len(name) <= length:
        return name
    head = (length - 1) // 2
    return f"{name[:head]}…{name[len(name) - (length - 1 - head) :]}"


def _short_boundary(name: str, ranks: Sequence[str]) -> str:
    h = metrics.boundary_names(ranks).index(name)
    return f"{_short(ranks[h], 16)}|{_short(ranks[h + 1], 16)}"


def _thinned(count: int, most: int) -> list[int]:
    """At most `most` evenly spaced positions of 0 .. count - 1, from the first on."""
    return list(range(0, count, -(-count // most)))


def _rank_colours(count: int) -> np.ndarray:
    """[count, 4]: an ordered, perceptually even scale without its palest end."""
    return mpl.colormaps["viridis"](np.linspace(0, 0.9, count))


def _marker_names(count: int) -> list[str]:
    return [("o", "^", "s", "D", "v", "P")[i % 6] for i in range(count)]


def _markers(epochs: np.ndarray, size: float) -> dict[str, Any]:
    """Dots on the line while they are few: a stage of one epoch has no line."""
    return {"marker": "o", "markersize": size} if len(epochs) <= 40 else {}


def _is_change(history: Sequence[Mapping[str, Any]], i: int) -> bool:
    return history[i]["stage"] != history[i - 1]["stage"]


def _epochs(
    history: Sequence[Mapping[str, Any]],
) -> tuple[np.ndarray, list[tuple[float, float, str]]]:
    """Epochs counted through all stages, and each stage's (first, last, name)."""
    epochs: list[float] = []
    stages: list[tuple[float, float, str]] = []
    done = 0.0
    for i, row in enumerate(history):
        if i == 0 or _is_change(history, i):
            done = epochs[-1] if epochs else 0.0
            stages.append((done + row["epoch"], 0.0, str(row["stage"])))
        epochs.append(done + float(row["epoch"]))
        stages[-1] = (stages[-1][0], epochs[-1], stages[-1][2])
    return np.array(epochs), stages


def _kinds_from_history(
    history: Sequence[Mapping[str, Any]], courses: Mapping[str, np.ndarray]
) -> dict[str, str]:
    first = [i for i, row in enumerate(history) if row["stage"] == history[0]["stage"]]
    still = {name: len(set(course[first].tolist())) for name, course in courses.items()}
    return {
        name: "fixed" if len(first) > 1 and still[name] == 1 else "learned"
        for name in courses
    }


def _tidy(axes: Axes) -> None:
    axes.spines[["top", "right"]].set_visible(False)
    axes.grid(axis="y", color="#e3e8ec", linewidth=0.8)
    axes.set_axisbelow(True)


def _finish_epoch_axis(
    axes: Axes,
    epochs: np.ndarray,
    stages: Sequence[tuple[float, float, str]],
    is_named: bool = True,
) -> None:
    """Epoch ticks, a line at every change of stage and the stages' names on top."""
    _tidy(axes)
    low, high = epochs[0] - 0.5, epochs[-1] + 0.5
    axes.set_xlim(low, high)
    axes.set_xlabel("Epoch")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))
    for (_, last, _), (first, _, _) in zip(stages, stages[1:], strict=False):
        line = axes.axvline((last + first) / 2, color=FAINT, linewidth=1.2)
        line.set(linestyle=(0, (2, 2)), gid="stage change")
    if not is_named or len(stages) < 2:
        return
    # Names lean on the line between them, which holds however short a stage is.
    for i, (_, _, name) in enumerate(stages):
        edge = (stages[max(i, 1) - 1][1] + stages[max(i, 1)][0]) / 2
        axes.annotate(
            _short(name, 16),
            (edge, 1.0),
            (6 if i else -6, 5),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="left" if i else "right",
            color=FAINT,
            fontsize=10,
            annotation_clip=False,
            parse_math=False,
        )


def _name_ends(
    axes: Axes,
    epochs: np.ndarray,
    courses: Mapping[str, np.ndarray],
    colours: np.ndarray,
    kinds: Mapping[str, str],
    ranks: Sequence[str],
) -> None:
    """Writes boundary, value and kind right of each line, pushed apart."""
    low, high = axes.get_ylim()
    ends = []
    for course in courses.values():
        last = np.flatnonzero(np.isfinite(course))[-1]
        ends.append((epochs[last], course[last]))
    heights = _spread([value for _, value in ends], 0.065 * (high - low), low, high)
    for name, (epoch, value), height, colour in zip(
        courses, ends, heights, colours, strict=True
    ):
        kind = kinds.get(name, "learned")
        note = f" {kind}" if kind in ("fixed", "floored") else ""
        axes.annotate(
            f"{_short_boundary(name, ranks)}  {value:.3f}{note}",
            (epoch, value),
            (1.05, height),
            textcoords=axes.get_yaxis_transform(),
            arrowprops={
                "arrowstyle": "-",
                "color": colour,
                "linewidth": 0.8,
                "relpos": (0, 0.5),
                "shrinkA": 2,
            },
            annotation_clip=False,
            color=INK,
            fontsize=10,
            va="center",
            parse_math=False,
        )


def _spread(
    values: Sequence[float], gap: float, low: float, high: float
) -> list[float]:
    """The values, moved as little as is needed to lie at least `gap` apart.

    They stay between `low` and `high` when there is room for all.
    """
    order = np.argsort(values, kind="stable")
    steps = gap * np.arange(len(order))
    # Least squares under y[i + 1] >= y[i] + gap is isotonic once the steps are off.
    placed = steps + isotonic.isotonic_regression(
        np.array(values, np.float64)[order] - steps,
        y_min=low,
        y_max=max(low, high - steps[-1]),
    )
    result = np.empty_like(placed)
    result[order] = placed
    return result.tolist()


def _boundary_bar(
    figure: Figure,
    axes: Axes,
    colour_map: Colormap,
    names: Sequence[str],
    ranks: Sequence[str],
) -> None:
    labels = [_short_boundary(name, ranks) for name in names]
    _colour_bar(figure, axes, colour_map, labels).set_label("boundary")


def _colour_bar(
    figure: Figure, axes: Axes, colour_map: Colormap, labels: Sequence[str]
) -> Any:
    """A bar with one block a label, low at the bottom; names thinned out if many."""
    mappable = mpl.cm.ScalarMappable(Normalize(-0.5, len(labels) - 0.5), colour_map)
    ticks = _thinned(len(labels), MAX_LABELS)
    bar = figure.colorbar(mappable, ax=axes, aspect=28, pad=0.02)
    bar.set_ticks(ticks)
    bar.ax.set_yticklabels([labels[i] for i in ticks], parse_math=False)
    bar.ax.tick_params(length=0)
    bar.ax.minorticks_off()
    bar.outline.set_visible(False)
    return bar


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
    axes.plot(*centres.T, color=INK, linewidth=1.4, path_effects=halo)
    axes.scatter(
        centres[:, 0],
        centres[:, 1],
        c=colours[present],
        s=70 if len(present) <= MAX_LABELS else 22,
        edgecolors=INK,
        linewidths=1.4 if len(present) <= MAX_LABELS else 0.8,
        zorder=3,
    )
    for n, i in enumerate(_thinned(len(present), MAX_LABELS)):
        is_above = n % 2 == 0  # taking turns keeps neighbours' names apart
        axes.annotate(
            _short(ranks[present[i]], 22),
            centres[i],
            (0, 9 if is_above else -9),
            textcoords="offset points",
            ha="center",
            va="bottom" if is_above else "top",
            fontsize=10,
            fontweight="bold",
            color=INK,
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
    if "umap" in sys.modules:
        return sys.modules["umap"]
    # umap imports TensorFlow where it is installed, for a variant not used here;
    # that costs seconds and may take the GPU's memory from JAX. None makes
    # `import tensorflow` fail for the moment.
    before = {k: v for k, v in sys.modules.items() if k == "tensorflow"}
    sys.modules["tensorflow"] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # "Tensorflow not installed"
            return importlib.import_module("umap")
    finally:
        del sys.modules["tensorflow"]
        sys.modules.update(before)
