"""The model card of an exported run: what it is, its scores, its limits."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from cloc_jax.runtime import files
from cloc_jax.scoring import intervals, metrics
from cloc_jax.scoring.results import SplitScores

NAMES = {
    "accuracy": "accuracy",
    "mae": "mean absolute error, in grades",
    "qwk": "quadratic weighted kappa",
    "one_off_accuracy": "at most one grade off",
}
FEW = 30  # test images of a grade, below which the card warns


def render(*, tables: Mapping[str, SplitScores], **more: Any) -> str:
    """The card as Markdown.

    Args:
      tables: scores of the test images with intervals, by how grades were chosen.
      more: what else the template names.
    """
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
    )
    environment.filters["shown"] = _shown
    scores = next(iter(tables.values()), None)
    counts = scores.true_counts if scores else {}
    page = environment.get_template("model_card.md.jinja").render(
        names=NAMES,
        tables=tables,
        count=scores.count if scores else 0,
        counts=counts,
        small={rank: n for rank, n in counts.items() if n < FEW},
        **more,
    )
    return page.rstrip() + "\n"


def scores_of_labels(
    true: np.ndarray, labels: np.ndarray, ranks: Sequence[str]
) -> SplitScores:
    """Scores and intervals of images that are given these grades."""
    scores = metrics.ordinal_metrics(true, labels, ranks)
    ends = intervals.of_scores(scores["confusion"], list(scores["boundaries"]))
    return files.from_plain(SplitScores, scores | {"intervals": ends})


def _shown(value: float | None, ends: Sequence[float] | None) -> str:
    if value is None:
        return "not defined"
    return f"{value:.3f}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")
