"""Margins of many runs: with bands over seeds, against a null, and as they collapse."""

import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from matplotlib.axes import Axes
from matplotlib.figure import Figure

from cloc_jax.report.figures import style


def margin_study(path: str | os.PathLike, study: Mapping[str, Any]) -> None:
    """Saves the study of margins; see `margin_study_figure`."""
    style.save(margin_study_figure(study), path)


def margin_study_figure(study: Mapping[str, Any]) -> Figure:
    """Learned margins along phase one, the same on permuted labels, and all ends.

    Bands and bars are two standard deviations over runs.
    """
    names = study["boundaries"]
    colours = style.rank_colours(len(names))
    figure = style.new_figure(12.5, 4.6)
    learned, null, ends = figure.subplots(1, 3, width_ratios=(1, 1, 1.15))
    for axes, key, title in (
        (learned, "learned", f"Learned, {study['seeds']} seeds"),
        (null, "permuted", f"Null: labels permuted, {study['draws']} times"),
    ):
        course = study["courses"][key]
        mean, std = np.array(course["mean"]), np.array(course["std"])
        epochs = np.arange(1, len(mean) + 1)
        for h, name in enumerate(names):
            axes.plot(epochs, mean[:, h], color=colours[h], linewidth=2, label=name)
            axes.fill_between(
                epochs,
                mean[:, h] - 2 * std[:, h],
                mean[:, h] + 2 * std[:, h],
                color=colours[h],
                alpha=0.16,
                linewidth=0,
            )
        axes.set_title(title)
        _finish(axes)
    learned.set_ylabel("Margin")
    top = max(axes.get_ylim()[1] for axes in (learned, null))
    for axes in (learned, null):
        axes.set_ylim(0, top)
    _draw_ends(ends, study, colours)
    figure.suptitle("What the margins say, and what chance says", fontweight="bold")
    return figure


def _draw_ends(axes: Axes, study: Mapping[str, Any], colours: np.ndarray) -> None:
    settings, names = list(study["courses"]), study["boundaries"]
    for h, name in enumerate(names):
        shift = 0.6 * (h + 0.5) / len(names) - 0.3
        axes.errorbar(
            np.arange(len(settings)) + shift,
            [study["courses"][s]["end"][h] for s in settings],
            [2 * study["courses"][s]["end_std"][h] for s in settings],
            color=colours[h],
            marker="o",
            linestyle="none",
            capsize=3,
            label=name,
        )
    axes.set_xticks(range(len(settings)), settings, rotation=20, ha="right")
    axes.set_ylim(bottom=0)
    axes.set_title("At the end, by setting")
    if len(names) <= style.MAX_LABELS:
        axes.legend(frameon=False, fontsize=9, title="Boundary")
    style.tidy(axes)


def collapse(path: str | os.PathLike, study: Mapping[str, Any]) -> None:
    """Saves the study of collapse; see `collapse_figure`."""
    style.save(collapse_figure(study), path)


def collapse_figure(study: Mapping[str, Any]) -> Figure:
    """Margins against epochs, one panel per setting, one line per boundary and seed."""
    settings: Mapping[str, Any] = study["settings"]
    names: Sequence[str] = study["boundaries"]
    colours = style.rank_colours(len(names))
    figure = style.new_figure(3.1 * len(settings), 3.9)
    panels = figure.subplots(1, len(settings), sharey=True, squeeze=False)[0]
    for axes, (title, found) in zip(panels, settings.items(), strict=True):
        for seed, course in enumerate(found["courses"]):
            values = np.array(course)
            for h, name in enumerate(names):
                axes.plot(
                    np.arange(1, len(values) + 1),
                    values[:, h],
                    color=colours[h],
                    linewidth=1.4,
                    label=name if not seed else None,
                )
        axes.set_title(title, fontsize=10)
        _finish(axes)
    panels[0].set_ylabel("Margin")
    panels[0].set_ylim(bottom=0)
    if len(names) <= style.MAX_LABELS:
        panels[-1].legend(frameon=False, fontsize=9, title="Boundary")
    figure.suptitle("Margins with and without the precautions", fontweight="bold")
    return figure


def _finish(axes: Axes) -> None:
    axes.set_xlabel("Epoch of phase one")
    style.tidy(axes)
