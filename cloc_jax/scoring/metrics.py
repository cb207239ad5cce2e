"""Ordinal metrics over a whole split, of labels and of embeddings, on the host."""

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Float, Int
from numpy.typing import ArrayLike

# For each item, the probabilities of all ranks, and the index of a rank.
Probabilities = Float[np.ndarray, "item rank"]
Labels = Int[np.ndarray, "item"]

MOST = 2000  # images whose pairs are looked at
DIGITS = 6  # of a cosine; the rest is rounding, which would order equal embeddings


def boundary_names(ranks: Sequence[str]) -> list[str]:
    """Names of the boundaries between neighbouring ranks, low to high: `"0|1"`, …"""
    return [f"{low}|{high}" for low, high in zip(ranks, ranks[1:], strict=False)]


def named_values(values: Any, per: str, ranks: Sequence[str]) -> dict[str, float]:
    """A readout's values by the boundaries or ranks they belong to."""
    names = {"boundary": boundary_names(ranks), "rank": list(ranks)}[per]
    return dict(zip(names, map(float, np.asarray(values)), strict=True))


def ordinal_metrics(
    true: ArrayLike,
    predicted: ArrayLike,
    ranks: Sequence[str],
    probabilities: ArrayLike | None = None,
    values: ArrayLike | None = None,
) -> dict[str, Any]:
    """Scores of predicted ranks against true ones, as plain JSON-able values.

    A number that is not defined (the recall of a rank with no sample, QWK when only
    one rank occurs) is None, never NaN.

    Args:
      true: rank index of each sample, 0 .. len(ranks) - 1.
      predicted: predicted rank index of each sample.
      ranks: names of the ranks, in order.
      probabilities: [sample, rank]; each row sums to 1. Without it there is no `nll`
        and no `rps`.
      values: predicted ranks that need not be whole; `mae`, `macro_mae` and `max_mae`
        are then of them, not of `predicted`.

    Returns:
      `count`, `accuracy`, `mae` (of the rank index), `qwk` (quadratic weighted kappa),
      `one_off_accuracy` (at most one rank off), `macro_mae` and `max_mae` (mean and
      largest of the MAE of each rank present; AMAE and MMAE), `minimum_sensitivity`
      (least recall of the ranks present), `gmsec` (geometric mean of the recalls of the
      lowest and the highest rank), `nll` (mean of -log p(true rank); p is kept above
      1e-38, so it ends at 87.3), `rps` (ranked probability score: mean of the sum over
      boundaries h of (P(rank <= h) - [true <= h])^2), `recall`, `true_counts` and
      `predicted_counts` by rank,
      `confusion` (rows true, columns predicted) and `boundaries` by name
      (see `boundary_counts`), with `missed_count` and `false_alarm_count`.
    """
    # Signed, as differences of unsigned labels would wrap round.
    true, predicted = np.asarray(true, np.int64), np.asarray(predicted, np.int64)

    confusion = confusion_matrix(true, predicted, len(ranks))
    sizes = confusion.sum(axis=1)  # [rank], truly in it
    result: dict[str, Any] = {"count": len(true)}
    result |= {name: defined(value) for name, value in scores(confusion).items()}
    if values is not None:
        result |= _value_errors(true, np.asarray(values, np.float64), sizes)
    if probabilities is not None:
        sums = np.sum(probabilities, -1)
        if not np.allclose(sums, 1, atol=1e-2):
            raise ValueError(
                f"rows of probabilities sum to {sums.min():.4g} up to "
                f"{sums.max():.4g}, not to 1. Are they logits?"
            )
        of_true = np.arange(len(true)), true
        # Not sklearn's log_loss: it needs two ranks, and cuts float32 off at 1e-7.
        nll = -log_probabilities(probabilities)[of_true].mean()
        result["nll"] = float(nll) + 0.0  # -0.0 reads oddly in a report
        result["rps"] = float(rank_scores(probabilities)[of_true].mean())
    right, called = confusion.diagonal().tolist(), confusion.sum(axis=0).tolist()
    sizes_by_rank = dict(zip(ranks, sizes.tolist(), strict=True))
    rates = boundary_rates(confusion)
    return result | {
        "recall": {
            name: part / size if size else None
            for part, (name, size) in zip(right, sizes_by_rank.items(), strict=True)
        },
        "true_counts": sizes_by_rank,
        "predicted_counts": dict(zip(ranks, called, strict=True)),
        "confusion": confusion.tolist(),
        "boundaries": {
            name: {rate: defined(of[h]) for rate, of in rates.items()}
            | {
                "missed_count": int(confusion[h + 1, h]),
                "false_alarm_count": int(confusion[h, h + 1]),
            }
            for h, name in enumerate(boundary_names(ranks))
        },
    }


def confusion_matrix(
    true: np.ndarray, predicted: np.ndarray, num_ranks: int
) -> np.ndarray:
    """Counts [rank, rank], rows true, columns predicted."""
    cells = np.bincount(true * num_ranks + predicted, minlength=num_ranks**2)
    return cells.reshape(num_ranks, num_ranks)


def scores(confusions: np.ndarray) -> dict[str, Any]:
    """Scores of confusion matrices [..., rank, rank]; NaN where not defined."""
    counts = np.asarray(confusions, np.float64)
    ranks = np.arange(counts.shape[-1])
    distance = np.abs(ranks[:, None] - ranks)
    total = counts.sum((-2, -1))
    sizes, called = counts.sum(-1), counts.sum(-2)
    chance = sizes[..., :, None] * called[..., None, :]
    with np.errstate(divide="ignore", invalid="ignore"):
        observed = (counts * distance**2).sum((-2, -1)) / total
        expected = (chance * distance**2).sum((-2, -1)) / total**2
        by_rank = (counts * distance).sum(-1) / sizes
        recall = np.diagonal(counts, 0, -2, -1) / sizes
        is_absent = np.asarray(sizes == 0)
        return {
            "accuracy": np.trace(counts, axis1=-2, axis2=-1) / total,
            "mae": (counts * distance).sum((-2, -1)) / total,
            "qwk": 1 - observed / expected,
            "one_off_accuracy": (counts * (distance <= 1)).sum((-2, -1)) / total,
            "macro_mae": np.nansum(by_rank, -1) / (sizes > 0).sum(-1),
            "max_mae": np.where(is_absent, -np.inf, by_rank).max(-1),
            "minimum_sensitivity": np.where(is_absent, np.inf, recall).min(-1),
            "gmsec": np.sqrt(recall[..., 0] * recall[..., -1]),
        }


def boundary_rates(confusions: np.ndarray) -> dict[str, np.ndarray]:
    """Error rates at every boundary, [..., boundary], of confusion matrices
    [..., rank, rank]; NaN where no image could err."""
    counts = boundary_counts(np.asarray(confusions, np.float64))
    with np.errstate(divide="ignore", invalid="ignore"):
        return {name: errors / of for name, (errors, of) in counts.items()}


def boundary_counts(counts: np.ndarray) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """How many images err at each boundary and how many could, [..., boundary].

    `missed` is truly h + 1 but called h, `false_alarm` truly h but called h + 1.
    `error_rate` is both together over the true sizes of the two ranks, the
    definition behind Table 2 of the CLOC paper; it does not see a jump such as 1 to 4.
    The `crossing` rates do: they count every sample on the wrong side of the boundary.
    """
    sizes = counts.sum(-1)
    low, high = sizes[..., :-1], sizes[..., 1:]
    missed = np.diagonal(counts, -1, -2, -1)  # true h + 1, called h
    false_alarm = np.diagonal(counts, 1, -2, -1)
    below = sizes.cumsum(-1)[..., :-1]
    above = sizes.sum(-1, keepdims=True) - below
    called_below = counts.sum(-2).cumsum(-1)[..., :-1]
    # Below the boundary and called so.
    kept = np.diagonal(counts.cumsum(-2).cumsum(-1), 0, -2, -1)[..., :-1]
    crossing_missed, crossing_alarm = called_below - kept, below - kept
    return {
        "error_rate": (missed + false_alarm, low + high),
        "missed_rate": (missed, high),
        "false_alarm_rate": (false_alarm, low),
        "crossing_rate": (crossing_missed + crossing_alarm, below + above),
        "crossing_missed_rate": (crossing_missed, above),
        "crossing_false_alarm_rate": (crossing_alarm, below),
    }


def _value_errors(
    true: np.ndarray, values: np.ndarray, sizes: np.ndarray
) -> dict[str, float]:
    errors = np.abs(values - true)
    by_rank = np.bincount(true, errors, len(sizes))[sizes > 0] / sizes[sizes > 0]
    return {
        "mae": float(errors.mean()),
        "macro_mae": float(by_rank.mean()),
        "max_mae": float(by_rank.max()),
    }


def rank_scores(probabilities: ArrayLike) -> Float[np.ndarray, "sample rank"]:
    """The ranked probability score that each rank would have as the true one:
    sum over boundaries h of (P(rank <= h) - [rank <= h])^2.

    Least at the median, and never falls from one rank to the next further from it.
    """
    below = np.cumsum(np.asarray(probabilities, np.float64), axis=1)[:, :-1]
    least = (np.minimum(below, 1 - below) ** 2).sum(axis=1, keepdims=True)
    steps = 2 * below - 1  # from one rank to the next
    up = np.cumsum(np.maximum(steps, 0), axis=1)
    down = np.cumsum(np.maximum(-steps, 0)[:, ::-1], axis=1)[:, ::-1]
    return least + np.pad(up, ((0, 0), (1, 0))) + np.pad(down, ((0, 0), (0, 1)))


def log_probabilities(probabilities: ArrayLike) -> np.ndarray:
    """Logarithms in float64; a float32 softmax can end at 0, which counts as 1e-38."""
    least = np.finfo(np.float32).tiny
    return np.log(np.maximum(np.asarray(probabilities, np.float64), least))


def defined(value: Any) -> float | None:
    """A number as JSON has it: None for NaN and infinities."""
    return float(value) if math.isfinite(value) else None


# --- the order of the ranks in the embeddings, as cosine sees it ---


def order_score(
    embeddings: Float[np.ndarray, "image dim"],
    labels: Int[np.ndarray, " image"],
    ranks: Sequence[str],
) -> dict[str, Any]:
    """How well distance tells rank: 1 where further in rank is always further away.

    For each image the Spearman correlation, over all others, between how many ranks
    they are off and their cosine distance; then the mean. An image for which either is
    the same to all others is left out. Of more than MOST images a random sample is
    taken, always the same. Plain JSON; None where nothing is defined.
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
