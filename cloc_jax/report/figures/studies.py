"""Studies of many runs: the control curve, margins over seeds, and their collapse.

What they are drawn from are the findings that `cloc_jax.paper` writes as JSON.
"""

import os
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes

from cloc_jax.report.figures import style

# --- the control curve ---

LEARNED, ENTROPY = "learned", "cross-entropy"
LINES = (
    ("crossing_rate", "all on the wrong side", style.INK, "o"),
    ("crossing_missed_rate", "missed, of those above", style.VERMILION, "v"),
    ("crossing_false_alarm_rate", "false alarms, of those below", style.BLUE, "^"),
)


def control(path: str | os.PathLike, study: Mapping[str, Any]) -> None:
    """Draws a row of four panels for each boundary of the study.

    Errors at the boundary against the margin; accuracy and MAE against the margin;
    missed against accuracy, for margins and for decision thresholds; how often each
    rank is predicted. Bars are 95% intervals over seeds and images drawn again.
    """
    boundaries: Sequence[str] = study["boundary"]
    figure = style.new_figure(11.5, 8.4 * len(boundaries))
    panels = figure.subplots(2 * len(boundaries), 2, squeeze=False)
    for i, boundary in enumerate(boundaries):
        (errors, price), (trade, counts) = panels[2 * i], panels[2 * i + 1]
        _draw_errors(errors, study, boundary)
        _draw_price(price, study)
        _draw_trade(trade, study, boundary)
        _draw_counts(counts, study)
    figure.suptitle(
        f"What the margin of {', '.join(boundaries)} does "
        f"({study['seeds']} seeds, {study['images']:,} test images)",
        fontweight="bold",
    )
    style.save(figure, path)


def _raised(study: Mapping[str, Any]) -> list[str]:
    return [name for name in study["settings"] if name not in (LEARNED, ENTROPY)]


def _means(study, names: Sequence[str], key: str) -> tuple[np.ndarray, np.ndarray]:
    """A score of settings, and how far the ends of its interval are: [end, setting]."""
    scores = [study["settings"][name]["scores"][key] for name in names]
    mean = np.array([s["mean"] for s in scores], float)
    ends = np.array([s["interval"] for s in scores], float)
    return mean, np.abs(ends - mean[:, None]).T


def _draw_line(axes: Axes, study, key: str, **look: Any) -> None:
    """A metric against the margin, and the learned runs' as a dotted line."""
    values = {float(name.split("=")[1]): name for name in _raised(study)}
    x = sorted(values)
    mean, bars = _means(study, [values[value] for value in x], key)
    axes.errorbar(x, mean, bars, capsize=3, linewidth=2, **look)
    (learned,), _ = _means(study, [LEARNED], key)
    axes.axhline(learned, color=look["color"], linestyle=":", linewidth=1.4)


def _draw_errors(axes: Axes, study, boundary: str) -> None:
    for rate, label, colour, marker in LINES:
        _draw_line(
            axes, study, f"{boundary} {rate}", label=label, color=colour, marker=marker
        )
    axes.set_ylabel("Share of images")
    _finish(axes, f"Errors at {boundary}  (dotted: learned margins)", "Margin set")


def _draw_price(axes: Axes, study) -> None:
    _draw_line(axes, study, "accuracy", label="accuracy", color=style.GREEN, marker="o")
    _draw_line(axes, study, "mae", label="MAE", color=style.PURPLE, marker="s")
    _finish(axes, "What it costs  (dotted: learned margins)", "Margin set")


def _draw_trade(axes: Axes, study, boundary: str) -> None:
    key = f"{boundary} crossing_missed_rate"
    for name, colour in ((LEARNED, style.BLUE), (ENTROPY, style.ORANGE)):
        curve = study["decision"][name][boundary]
        axes.plot(
            [row["accuracy"] for row in curve],
            [row["crossing_missed_rate"] for row in curve],
            color=colour,
            marker=".",
            label=f"thresholds of {name}",
        )
        axes.plot(
            *(_means(study, [name], k)[0] for k in ("accuracy", key)),
            color=colour,
            marker="D",
            markersize=8,
            linestyle="none",
            label=f"{name}, as it is",
        )
    raised = _raised(study)
    (x, wide), (y, high) = (_means(study, raised, k) for k in ("accuracy", key))
    look: dict[str, Any] = {"color": style.INK, "marker": "o", "linestyle": "none"}
    axes.errorbar(x, y, high, wide, capsize=2, **look)
    look = {"textcoords": "offset points", "fontsize": 9, "parse_math": False}
    for name, *point in zip(raised, x, y, strict=True):
        axes.annotate(name.removeprefix("margin="), tuple(point), (5, 5), **look)
    axes.set_ylabel(f"Missed, of those above {boundary}")
    _finish(axes, "Missed against accuracy  (black: margins set)", "Accuracy")


def _draw_counts(axes: Axes, study) -> None:
    names = list(study["settings"])
    ranks = study["ranks"]
    colours = style.rank_colours(len(names))
    width = 0.8 / len(names)
    for i, name in enumerate(names):
        axes.bar(
            np.arange(len(ranks)) + (i + 0.5) * width - 0.4,
            study["settings"][name]["predicted_counts"],
            width,
            color=colours[i],
            label=name,
        )
    for rank, count in enumerate(study["true_counts"]):
        axes.hlines(
            count,
            rank - 0.45,
            rank + 0.45,
            color=style.VERMILION,
            linewidth=2,
            label="" if rank else "truly of it",
        )
    shown = style.thinned(len(ranks), style.MAX_LABELS)
    axes.set_xticks(shown, [style.short(ranks[r], 10) for r in shown], parse_math=False)
    axes.set_ylabel("Test images")
    _finish(axes, "How often each rank is predicted", "Rank")


def _finish(axes: Axes, title: str, along: str) -> None:
    axes.set_title(title)
    axes.set_xlabel(along)
    axes.set_ylim(bottom=0)
    axes.legend(frameon=False, fontsize=9)
    style.tidy(axes)


# --- learned margins ---


def margin_study(path: str | os.PathLike, study: Mapping[str, Any]) -> None:
    """Draws margins along phase one: learned ones, equal starts, permuted labels.

    Bands are two standard deviations over runs.
    """

    def draw(axes: Axes, course: Mapping[str, Any], h: int, **look: Any) -> None:
        mean, std = (np.array(course[key])[:, h] for key in ("mean", "std"))
        epochs = np.arange(1, len(mean) + 1)
        axes.plot(epochs, mean, linewidth=2, **look)
        band = {"color": look["color"], "alpha": 0.16, "linewidth": 0}
        axes.fill_between(epochs, mean - 2 * std, mean + 2 * std, **band)

    counts = f"{study['seeds']} seeds, labels permuted {study['draws']} times"
    _draw_courses(path, study, draw, f"What the margins say, and chance ({counts})")


def collapse(path: str | os.PathLike, study: Mapping[str, Any]) -> None:
    """Draws margins against epochs, a line per seed."""

    def draw(axes: Axes, courses: Sequence[Any], h: int, **look: Any) -> None:
        for course in courses:
            values = np.array(course)[:, h]
            axes.plot(np.arange(1, len(values) + 1), values, linewidth=1.4, **look)
            look["label"] = None  # once for all seeds

    _draw_courses(path, study, draw, "Margins with and without the precautions")


def _draw_courses(
    path: str | os.PathLike,
    study: Mapping[str, Any],
    draw: Callable[..., None],
    title: str,
) -> None:
    """A panel per setting, a colour per boundary."""
    settings: Mapping[str, Any] = study["courses"]
    names: Sequence[str] = study["boundaries"]
    colours = style.rank_colours(len(names))
    figure = style.new_figure(max(3.1 * len(settings), 7.0), 3.9)
    panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for axes, (setting, course) in zip(panels, settings.items(), strict=True):
        for h, name in enumerate(names):
            draw(axes, course, h, color=colours[h], label=name)
        axes.set_title(setting, fontsize=10)
        axes.set_xlabel("Epoch of phase one")
        style.tidy(axes)
    panels[0].set_ylabel("Margin")
    panels[0].set_ylim(bottom=0)
    if len(names) <= style.MAX_LABELS:
        panels[-1].legend(frameon=False, fontsize=9, title="Boundary")
    figure.suptitle(title, fontweight="bold")
    style.save(figure, path)
