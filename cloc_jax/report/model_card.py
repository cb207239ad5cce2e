"""The model card of an exported run: what it is, its scores, its limits."""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import jinja2
import numpy as np

from cloc_jax.scoring import intervals, metrics
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions

NAMES = {
    "accuracy": "accuracy",
    "mae": "mean absolute error, in grades",
    "qwk": "quadratic weighted kappa",
    "one_off_accuracy": "at most one grade off",
}
RATES = ("crossing_rate", "crossing_missed_rate", "crossing_false_alarm_rate")
FEW = 30  # test images of a grade, below which the card warns
Scores = Mapping[str, Any]  # of one way to choose grades


def render(
    *,
    title: str,
    ranks: Sequence[str],
    critical: Sequence[str],
    images: Mapping[str, int],
    tables: Mapping[str, Scores],
    **more: Any,
) -> str:
    """The card as Markdown.

    Args:
      title: the headline.
      ranks: their names, lowest first.
      critical: boundaries that matter most.
      images: how many each split has.
      tables: scores of the test images with intervals, by how grades were chosen.
      more: what else the template names.
    """
    found = next(iter(tables.values()), None)
    counts = found["true_counts"] if found else {}
    page = _template().render(
        title=title,
        ranks=ranks,
        critical=critical,
        images=images,
        names=NAMES,
        tables=[_table(name, table) for name, table in tables.items()],
        count=found["count"] if found else 0,
        counts=counts,
        small={rank: n for rank, n in counts.items() if n < FEW},
        **more,
    )
    return page.rstrip() + "\n"


def decided_scores(
    decision: Decision, test: Predictions, ranks: Sequence[str]
) -> dict[str, Any]:
    """Scores and intervals of test images whose grades a decision chooses."""
    if test.probabilities is None:
        raise ValueError("the run has a saved decision, but no probabilities.")
    labels = decision.apply(test.probabilities)
    found = metrics.ordinal_metrics(np.asarray(test.true), labels, ranks)
    ends = intervals.of_scores(found["confusion"], list(found["boundaries"]))
    return found | {"intervals": ends}


def _table(title: str, scores: Scores) -> dict[str, Any]:
    ends = scores.get("intervals") or {}
    of_boundaries = ends.get("boundaries") or {}
    return {
        "title": title,
        "scores": {name: _shown(scores.get(name), ends.get(name)) for name in NAMES},
        "boundaries": {
            boundary: {
                rate: _shown(rates[rate], of_boundaries.get(boundary, {}).get(rate))
                for rate in RATES
            }
            for boundary, rates in scores["boundaries"].items()
        },
    }


def _shown(value: float | None, ends: Sequence[float] | None) -> str:
    if value is None:
        return "not defined"
    return f"{value:.3f}" + (f" ({ends[0]:.3f} to {ends[1]:.3f})" if ends else "")


def _template() -> jinja2.Template:
    here = pathlib.Path(__file__).parent
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(here), undefined=jinja2.StrictUndefined
    )
    return environment.get_template("model_card.md.jinja")
