"""What methods predict: probabilities of ranks, scores, and predictions.csv."""

import pathlib
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from cloc_jax.runtime import files
from cloc_jax.scoring import intervals, metrics
from cloc_jax.scoring.metrics import Probabilities
from cloc_jax.scoring.results import RunResults, SplitScores

NAME = "predictions.csv"


# --- what a method returns: a `methods.Prediction`, or whatever has its fields ---


def check_finite(
    arrays: Iterable[np.ndarray], names: Sequence[str], model: Any, remedy: str
) -> None:
    """ValueError where what a model gives for an item is no number: no class is."""
    for array in arrays:
        is_finite = np.isfinite(array).reshape(len(array), -1).all(1)
        if not is_finite.all():
            raise ValueError(
                f"{model} gives numbers that are not finite, such as for "
                f"{names[int(is_finite.argmin())]}, so there is no result. {remedy}"
            )


def rank_probabilities(output: Any) -> Probabilities | None:
    """Probabilities [item, rank]; None where a method gives labels only."""
    if output.probabilities is not None:
        return np.asarray(output.probabilities)
    if output.above is not None:
        return from_above(np.asarray(output.above))
    return None


def from_above(above: Float[np.ndarray, "item boundary"]) -> Probabilities:
    """Probabilities of ranks from P(rank > h), which heads may give out of order.

    P(rank > h) is made to fall along the order by its running minimum, so that no
    rank's probability is negative.
    """
    falling = np.minimum.accumulate(np.clip(above.astype(np.float64), 0, 1), axis=1)
    bounded = np.pad(falling, ((0, 0), (1, 1)), constant_values=((0, 0), (1, 0)))
    return bounded[:, :-1] - bounded[:, 1:]


def expected_rank(
    output: Any, probabilities: Probabilities | None
) -> Float[np.ndarray, " item"]:
    """The rank that a method expects: its own value, else the mean of the ranks."""
    if output.value is not None:
        return np.asarray(output.value, np.float64)
    if probabilities is None:
        return np.asarray(output.label, np.float64)
    return probabilities @ np.arange(probabilities.shape[1])


def score(output: Any, labels: np.ndarray, ranks: Sequence[str]) -> dict[str, Any]:
    """Metrics of a method's output; see `metrics.ordinal_metrics`."""
    return metrics.ordinal_metrics(
        labels, output.label, ranks, rank_probabilities(output), output.value
    )


def scores_of_labels(
    true: np.ndarray, labels: np.ndarray, ranks: Sequence[str]
) -> SplitScores:
    """Scores and intervals of images that are given these grades."""
    scores = metrics.ordinal_metrics(true, labels, ranks)
    ends = intervals.of_scores(scores["confusion"], list(scores["boundaries"]))
    return files.from_plain(SplitScores, scores | {"intervals": ends})


# --- predictions.csv ---


class Predictions(NamedTuple):
    """Predictions for the images of one split."""

    items: list[str]
    true: np.ndarray  # [item], index of the rank
    predicted: np.ndarray  # [item], index of the rank
    probabilities: np.ndarray | None  # [item, rank], where the method has them
    values: np.ndarray | None = None  # [item], where the method predicts one


def write(
    path: pathlib.Path, splits: Mapping[str, Predictions], ranks: Sequence[str]
) -> None:
    """Writes the predictions of all splits, one row per image."""
    columns = [f"p_{rank}" for rank in ranks]
    has_values = any(one.values is not None for one in splits.values())
    value = ["value"] if has_values else []
    rows = [["item", "split", "true", "predicted", *columns, *value]]
    for split, one in splits.items():
        for i, item in enumerate(one.items):
            chances = [""] * len(ranks)
            if one.probabilities is not None:
                # Nine digits give back the same float32.
                chances = [f"{p:.9g}" for p in one.probabilities[i]]
            names = ranks[one.true[i]], ranks[one.predicted[i]]
            value = [] if one.values is None else [f"{one.values[i]:.9g}"]
            rows.append([item, split, *names, *chances, *value])
    files.write_csv(path, rows)


def read(run: pathlib.Path, results: RunResults) -> dict[str, Predictions]:
    """The predictions in the folder of a run with these results, by split.

    Damaged where the file is missing or not the one that evaluation wrote.
    """
    path = run / NAME
    remedy = f"`launch.py evaluate --run={run}` makes it again."
    files.check_digest(path, results.files.get(NAME, ""), remedy=remedy)
    place = {rank: i for i, rank in enumerate(results.ranks)}
    rows: dict[str, list[dict[str, str]]] = {}
    try:
        for row in files.read_csv(path):
            rows.setdefault(row["split"], []).append(row)
        return {split: _read_split(own, place) for split, own in rows.items()}
    except (KeyError, ValueError):
        raise files.Damaged(path, "it has other ranks or columns", remedy) from None


def _read_split(
    rows: Sequence[Mapping[str, str]], place: Mapping[str, int]
) -> Predictions:
    chances = [[row[f"p_{rank}"] for rank in place] for row in rows]
    has_chances = all(all(row) for row in chances)
    return Predictions(
        [row["item"] for row in rows],
        np.array([place[row["true"]] for row in rows], np.int64),
        np.array([place[row["predicted"]] for row in rows], np.int64),
        np.array(chances, np.float64) if has_chances else None,
        np.array([row["value"] for row in rows], np.float64)
        if rows and rows[0].get("value")
        else None,
    )
