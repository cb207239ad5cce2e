"""From what a method says of images to their grades, as `predict` shows them."""

from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cloc_jax.scoring import rank_probabilities
from cloc_jax.scoring.decisions import Decision


class Grades(NamedTuple):
    """Grades of some images, in their order."""

    predicted: list[str]  # names of the ranks
    labels: np.ndarray  # [item], their indices
    expected: np.ndarray  # [item], a rank that need not be whole
    # [item, rank], where the method has them; calibrated where a decision chose.
    probabilities: np.ndarray | None
    most_likely: list[str] | None  # beside what a decision chose
    sets: list[tuple[str, str]] | None  # lowest and highest rank, where asked for


def grade(
    prediction: rank_probabilities.Said,
    ranks: Sequence[str],
    decision: Decision | None,
) -> Grades:
    """The grades of a prediction; the decision, if there is one, chooses them."""
    probabilities = rank_probabilities.of_prediction(prediction)
    labels = np.asarray(prediction.label)
    expected = rank_probabilities.expected_rank(prediction, probabilities)
    most_likely = sets = None
    if decision:
        if probabilities is None:
            raise ValueError(
                "the run has a saved decision, but its method gives no probabilities; "
                "take it away with `launch.py decide --run=DIR --remove`."
            )
        if decision.chooses_labels:
            most_likely = [ranks[i] for i in probabilities.argmax(1)]
            labels = decision.apply(probabilities)
        if decision.sets:
            ends = zip(*decision.apply_sets(probabilities), strict=True)
            sets = [(ranks[low], ranks[high]) for low, high in ends]
        probabilities = decision.calibrated(probabilities)
        expected = probabilities @ np.arange(len(ranks))
    predicted = [ranks[i] for i in labels]
    return Grades(predicted, labels, expected, probabilities, most_likely, sets)
