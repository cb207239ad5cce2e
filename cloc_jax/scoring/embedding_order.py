"""What the embeddings say of the order of the ranks, as cosine sees them."""

from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int

MOST = 2000  # images whose pairs are looked at
DIGITS = 6  # of a cosine; the rest is rounding, which would order equal embeddings


def order_score(
    embeddings: Float[np.ndarray, "image dim"],
    labels: Int[np.ndarray, " image"],
    ranks: Sequence[str],
) -> dict[str, Any]:
    """How well distance tells rank: 1 where further in rank is always further away.

    For each image the Spearman correlation, over all others, between how many ranks
    they are off and their cosine distance; then the mean. An image for which either is
    the same to all others is left out. Of more than MOST images a random sample is
    taken, always the same.

    Returns:
      Plain JSON: "overall", "by_rank" (of the images of a rank) and "images", how many
      were looked at. None where nothing is defined.
    """
    some = np.random.default_rng(0).permutation(len(labels))[:MOST]
    labels, unit = labels[some], unit_vectors(embeddings[some])
    distances = 1 - np.round(unit @ unit.T, DIGITS)
    correlations = _correlations(
        _average_places(np.abs(labels[:, None] - labels)), _average_places(distances)
    )
    return {
        "overall": _mean(correlations),
        "by_rank": {
            name: _mean(correlations[labels == rank]) for rank, name in enumerate(ranks)
        },
        "images": len(some),
    }


def similarity(
    embeddings: Float[np.ndarray, "image dim"],
    labels: Int[np.ndarray, " image"],
    num_ranks: int,
) -> Float[np.ndarray, "rank rank"]:
    """Mean cosine between the images of two ranks, an image and itself left out.

    NaN where there is no pair.
    """
    unit = unit_vectors(embeddings)
    sums = np.zeros((num_ranks, unit.shape[1]))
    np.add.at(sums, labels, unit)
    sizes = np.bincount(labels, minlength=num_ranks).astype(np.float64)
    with_self = np.bincount(labels, (unit**2).sum(1), minlength=num_ranks)
    totals = sums @ sums.T - np.diag(with_self)
    pairs = np.outer(sizes, sizes) - np.diag(sizes)
    with np.errstate(divide="ignore", invalid="ignore"):
        return totals / pairs


def unit_vectors(embeddings: np.ndarray) -> np.ndarray:
    """Embeddings over their lengths, in float64 on the host."""
    vectors = embeddings.astype(np.float64)
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)


def _average_places(pairs: np.ndarray) -> np.ndarray:
    """[image, others]: the place of each value in its row, itself left out.

    Equal ones share the mean of theirs.
    """
    from scipy import stats  # late: it takes a second

    count = len(pairs)
    rows = pairs[~np.eye(count, dtype=bool)].reshape(count, max(count - 1, 0))
    return stats.rankdata(rows, axis=1) if rows.size else rows


def _correlations(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Pearson's correlation of each row of a with that of b; NaN where one is flat."""
    if not a.size:
        return np.full(len(a), np.nan)
    a, b = (x - x.mean(1, keepdims=True) for x in (a, b))
    scale = np.sqrt((a**2).sum(1) * (b**2).sum(1))
    with np.errstate(divide="ignore", invalid="ignore"):
        return (a * b).sum(1) / scale


def _mean(values: np.ndarray) -> float | None:
    known = values[np.isfinite(values)]
    return float(known.mean()) if known.size else None
