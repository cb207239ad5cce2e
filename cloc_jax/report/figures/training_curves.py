"""Training curves: losses, accuracies and readouts against epochs."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib import ticker
from matplotlib.axes import Axes
from matplotlib.colors import Colormap, ListedColormap
from matplotlib.figure import Figure

from cloc_jax.report.figures import style
from cloc_jax.scoring import metrics

LABELS = {"cross_entropy": "cross-entropy", "mmnp": "multi-margin"}


def readout(
    path: str | os.PathLike,
    history: Sequence[Mapping[str, Any]],
    name: str,
    ranks: Sequence[str],
    *,
    per: str = "boundary",
    kinds: Mapping[str, str] | None = None,
) -> None:
    """Saves a method's readout along training; see `readout_figure`."""
    style.save(readout_figure(history, name, ranks, per=per, kinds=kinds), path)


def readout_figure(
    history: Sequence[Mapping[str, Any]],
    name: str,
    ranks: Sequence[str],
    *,
    per: str = "boundary",
    kinds: Mapping[str, str] | None = None,
) -> Figure:
    """A readout against epoch, one line per boundary or rank, named at its end.

    Fixed values are dashed. Without `kinds` ("learned", "fixed" or "floored" by
    boundary) those count as fixed that never moved in the first stage. With too many
    values to name, a colour bar stands in for the names.
    """
    names = metrics.boundary_names(ranks) if per == "boundary" else list(ranks)
    what = name.replace("_", " ").removesuffix("s").capitalize()
    epochs, changes = _epochs(history)
    rows = [(row.get("readouts") or {}).get(name) or {} for row in history]
    courses = {
        label: np.array([_number(row.get(label)) for row in rows])
        for label in names
        if any(label in row for row in rows)
    }
    if not courses:
        raise ValueError(
            f"no row of the history has {name} for any of {names}; other methods have "
            "no such picture."
        )
    if kinds is None:
        kinds = _kinds_from_history(history, courses)
    is_named = len(courses) <= style.MAX_LABELS
    figure = style.new_figure(9.2, 4.8)
    axes = figure.subplots()
    colours = style.rank_colours(len(courses))
    for colour, (label, course) in zip(colours, courses.items(), strict=True):
        axes.plot(
            epochs,
            course,
            color=colour,
            linestyle="--" if kinds.get(label) == "fixed" else "-",
            linewidth=2.2 if is_named else 1.1,
            label=label,
            **_markers(epochs, 4.0 if is_named else 2.0),
        )
    values = np.concatenate(list(courses.values()))
    high = max(float(np.nanmax(values)), 1e-3)
    axes.set_ylim(min(0.0, float(np.nanmin(values))), 1.08 * high)
    axes.set_ylabel(what)
    _finish_epoch_axis(axes, epochs, changes)
    if is_named:
        _name_ends(axes, epochs, courses, colours, kinds, ranks)
    else:
        _boundary_bar(figure, axes, ListedColormap(colours), list(courses), ranks)
    figure.suptitle(f"{what} of each {per}", fontweight="bold")
    return figure


def curves(path: str | os.PathLike, history: Sequence[Mapping[str, Any]]) -> None:
    """Saves the course of training; see `curves_figure`."""
    style.save(curves_figure(history), path)


def curves_figure(history: Sequence[Mapping[str, Any]]) -> Figure:
    """Loss with its parts, and accuracy on training and validation data.

    Clean training images are looked at only where a stage's end depends on them.

    The loss may be another one in another stage, so its lines break between stages.
    """
    if not history:
        raise ValueError("the history is empty; it needs a row for at least one epoch.")
    epochs, changes = _epochs(history)
    figure = style.new_figure(9.2, 6.4)
    top, bottom = figure.subplots(2, 1, sharex=True)
    panels = {
        top: [
            ("train", "loss", "train loss", style.INK, "-"),
            *(("train", *look) for look in _loss_parts(history)),
        ],
        bottom: [
            ("train", "accuracy", "train, batches", style.FAINT, ":"),
            ("train_eval", "accuracy", "train, clean images", style.BLUE, "--"),
            ("val", "accuracy", "validation", style.VERMILION, "-"),
        ],
    }
    for axes, lines in panels.items():
        for split, key, label, colour, dashes in lines:
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
                linestyle=dashes,
                linewidth=2,
                label=label,
                **_markers(epochs, 3.5),
            )
        style.tidy(axes)
        if axes.lines:
            # Beside the panel: inside it a legend covers some run's curve.
            axes.legend(frameon=False, loc="upper left", bbox_to_anchor=(1.0, 1.0))
        else:
            axes.text(
                0.5, 0.5, "not recorded", transform=axes.transAxes, ha="center"
            ).set_color(style.FAINT)
    top.set_ylabel("Loss")
    bottom.set_ylabel("Accuracy")
    bottom.yaxis.set_major_formatter(ticker.PercentFormatter(1))
    _finish_epoch_axis(top, epochs, changes)
    _finish_epoch_axis(bottom, epochs, changes, is_named=False)
    top.set_xlabel("")
    figure.suptitle("Course of training", fontweight="bold")
    return figure


def _loss_parts(
    history: Sequence[Mapping[str, Any]],
) -> list[tuple[str, str, str, str]]:
    """Key, label, colour and dashes of the scalars that a loss is made of."""
    keys = dict.fromkeys(key for row in history for key in row.get("train") or ())
    parts = [key for key in keys if key not in ("loss", "accuracy")]
    looks = ((style.BLUE, "--"), (style.VERMILION, ":"), (style.GREEN, "-."))
    return [
        (key, LABELS.get(key, key.replace("_", " ")), *looks[n % len(looks)])
        for n, key in enumerate(parts)
    ]


def _number(value: float | int | None) -> float:
    return np.nan if value is None else float(value)


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


def _finish_epoch_axis(
    axes: Axes,
    epochs: np.ndarray,
    stages: Sequence[tuple[float, float, str]],
    is_named: bool = True,
) -> None:
    """Epoch ticks, a line at every change of stage and the stages' names on top."""
    style.tidy(axes)
    low, high = epochs[0] - 0.5, epochs[-1] + 0.5
    axes.set_xlim(low, high)
    axes.set_xlabel("Epoch")
    axes.xaxis.set_major_locator(ticker.MaxNLocator(integer=True, min_n_ticks=1))
    for (_, last, _), (first, _, _) in zip(stages, stages[1:], strict=False):
        line = axes.axvline((last + first) / 2, color=style.FAINT, linewidth=1.2)
        line.set(linestyle=(0, (2, 2)), gid="stage change")
    if not is_named or len(stages) < 2:
        return
    # Names lean on the line between them, which holds however short a stage is.
    for i, (_, _, name) in enumerate(stages):
        edge = (stages[max(i, 1) - 1][1] + stages[max(i, 1)][0]) / 2
        axes.annotate(
            style.short(name, 16),
            (edge, 1.0),
            (6 if i else -6, 5),
            xycoords=axes.get_xaxis_transform(),
            textcoords="offset points",
            ha="left" if i else "right",
            color=style.FAINT,
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
    """Writes boundary, value and kind at the end of each line."""
    ends, labels = [], []
    for name, course in courses.items():
        last = np.flatnonzero(np.isfinite(course))[-1]
        ends.append((epochs[last], course[last]))
        kind = kinds.get(name, "learned")
        note = f" {kind}" if kind in ("fixed", "floored") else ""
        labels.append(f"{_short(name, ranks)}  {course[last]:.3f}{note}")
    style.name_ends(axes, ends, labels, colours)


def _boundary_bar(
    figure: Figure,
    axes: Axes,
    colour_map: Colormap,
    names: Sequence[str],
    ranks: Sequence[str],
) -> None:
    labels = [_short(name, ranks) for name in names]
    word = "rank" if names[0] in ranks else "boundary"
    style.colour_bar(figure, axes, colour_map, labels).set_label(word)


def _short(name: str, ranks: Sequence[str]) -> str:
    return style.short(name, 16) if name in ranks else style.short_boundary(name, ranks)
