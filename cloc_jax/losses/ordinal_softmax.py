"""Losses of a softmax over the ranks, which see how far a rank is from the true one.

All take logits [batch, rank], the true ranks, and optionally a weight per sample: they
are then weighted means. Below, p is the softmax, y the true rank and K how many ranks
there are. Values are finite wherever the logits are: logarithms of sums of
probabilities are taken from the logits.
"""

import math
from collections.abc import Callable
from typing import Any, Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from . import masks
from .multi_margin import AnyArray, Labels, check_known, widened

KappaPenalty = Literal["quadratic", "linear"]
KAPPA_PENALTIES = get_args(KappaPenalty)

# Parameters of the beta distributions of the lower half of the ranks, by how many ranks
# there are; those of the upper half are mirrored.
BETA_PARAMETERS = {
    3: ((1, 4), (4, 4)),
    4: ((1, 6), (6, 10)),
    5: ((1, 8), (6, 14), (12, 12)),
    6: ((1, 10), (7, 20), (15, 20)),
    7: ((1, 12), (7, 26), (16, 28), (24, 24)),
    8: ((1, 14), (7, 31), (17, 37), (27, 35)),
}


def cdw_ce(
    logits: Float[AnyArray, "batch ranks"],
    labels: Labels,
    *,
    alpha: float,
    margin: float = 0.0,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Class-distance-weighted cross-entropy, in at least float32 (CDW-CE).

        mean_i -sum_k |k - y_i|^alpha log(min(1 - p_ik + margin, 1))

    (Polat et al., "Class Distance Weighted Cross-Entropy Loss for Ulcerative Colitis
    Severity Estimation", MIUA 2022.) Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    logs = jax.nn.log_softmax(logits)
    # log(1 - p), by what keeps its digits: for a p near 1, the sum of the others.
    is_other = ~jnp.eye(logits.shape[1], dtype=bool)[None]
    of_others = jax.nn.logsumexp(logs[:, None], axis=2, where=is_other)
    p = jnp.exp(logs)
    rest = jnp.where(p < 0.5, jnp.log1p(-jnp.minimum(p, 0.5)), of_others)
    if margin:
        rest = jnp.minimum(jnp.logaddexp(rest, math.log(margin)), 0)
    costs = _distances(logits, labels) ** alpha
    return -masks.mean(jnp.sum(costs * rest, axis=1), where, weights)


def squared_emd(
    logits: Float[AnyArray, "batch ranks"],
    labels: Labels,
    *,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Squared earth mover's distance, in at least float32.

    mean_i sum_k (F_ik - [y_i <= k])^2 with F the running sum of p: the ranked
    probability score (Hou et al., "Squared Earth Mover's Distance-based Loss for
    Training Deep Neural Networks", 2016). Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    reached = labels[:, None] <= jnp.arange(logits.shape[1], dtype=labels.dtype)[None]
    gaps = jnp.cumsum(jax.nn.softmax(logits), axis=1) - reached
    return masks.mean(jnp.sum(gaps**2, axis=1), where, weights)


def slace(
    logits: Float[AnyArray, "batch ranks"],
    labels: Labels,
    *,
    alpha: float,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Soft labels against accumulated probabilities, in at least float32 (SLACE).

        mean_i -sum_k s_ik log A_ik,    s_i = softmax over k of -alpha |k - y_i|

    with A_ik the sum of p_ij over all j at most as far from y_i as k (Nachmani et al.,
    "SLACE: A Monotone and Balance-Sensitive Loss Function for Ordinal Regression",
    AAAI 2025). Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    distances = _distances(logits, labels)
    is_within = distances[:, None] <= distances[:, :, None]  # [batch, rank, other]
    logs = jax.nn.log_softmax(logits)[:, None]
    accumulated = jax.nn.logsumexp(logs, axis=2, where=is_within)
    soft = jax.nn.softmax(-alpha * distances)
    return -masks.mean(jnp.sum(soft * accumulated, axis=1), where, weights)


def weighted_kappa(
    logits: Float[AnyArray, "batch ranks"],
    labels: Labels,
    *,
    penalty: KappaPenalty = "quadratic",
    log: bool = False,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """1 minus the weighted kappa of a batch, or its logarithm, in at least float32.

        sum_ij w_ij O_ij / sum_ij w_ij E_ij

    with O the confusion matrix of predicted probabilities and true ranks, E what its
    margins give by chance, and w the squared or absolute distance of ranks (de la Torre
    et al., "Weighted Kappa Loss Function for Multi-class Classification of Ordinal Data
    in Deep Learning", Pattern Recognition Letters 2018). It is a ratio of sums over the
    whole batch, on all devices, and not a mean over samples. A batch of one rank gives
    1 with gradient 0, one without samples 0. Padding (where False) takes no part.
    """
    check_known("penalty", penalty, KAPPA_PENALTIES)
    where, logits, labels = masks.mask_rows(where, logits, labels)
    rank = jnp.arange(logits.shape[1], dtype=logits.dtype)
    costs = jnp.abs(rank[:, None] - rank[None]) ** (2 if penalty == "quadratic" else 1)
    share = masks.shares(where, weights).astype(logits.dtype)
    sizes = share @ jax.nn.one_hot(labels, len(rank), dtype=logits.dtype)
    logs, total = jax.nn.log_softmax(logits), jnp.sum(share)
    # Neither sum is 0 where there is a sample, so that the logarithms stay finite.
    is_empty = total == 0
    found = jnp.where(is_empty, 1, share[:, None] * costs[labels])
    by_chance = share[:, None] * (costs @ sizes)[None] / jnp.where(is_empty, 1, total)
    by_chance = jnp.where(is_empty, 1, by_chance)
    ratio = jax.nn.logsumexp(logs, b=found) - jax.nn.logsumexp(logs, b=by_chance)
    return jnp.where(is_empty, 0, ratio if log else jnp.exp(ratio))


def orcu(
    logits: Float[AnyArray, "batch ranks"],
    labels: Labels,
    *,
    strength: float,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Soft labels and a barrier that keeps logits unimodal, in at least float32 (ORCU).

    The cross-entropy with soft labels, softmax over k of -(k - y_i)^2, plus a barrier
    B(r) for each boundary, r the step from the logit nearer to y_i to the next one
    further away, which should be negative. With t the strength,

        B(r) = -log(-r) / t                        where r <= -1 / t^2
        B(r) = t r + (1 + 2 log t) / t             elsewhere

    (Kim et al., "Calibration of Ordinal Regression Networks", 2024.) The second is the
    tangent that goes on from the first. Padding (where False) takes no part.
    """
    soft = soft_labels(logits.shape[1], "exponential", power=2.0)
    entropy = soft_cross_entropy(logits, labels, soft, weights=weights, where=where)
    where, logits, labels = masks.mask_rows(where, logits, labels)
    boundary = jnp.arange(logits.shape[1] - 1, dtype=labels.dtype)[None]
    steps = jnp.diff(logits, axis=1)
    outward = jnp.where(labels[:, None] > boundary, -steps, steps)
    edge = -1 / strength**2
    barrier = -jnp.log(-jnp.minimum(outward, edge)) / strength
    tangent = strength * (jnp.maximum(outward, edge) - edge)
    return entropy + masks.mean(jnp.sum(barrier + tangent, axis=1), where, weights)


def soft_cross_entropy(
    logits: Float[AnyArray, "batch ranks"],
    labels: Labels,
    soft: Float[AnyArray, "ranks ranks"],
    *,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy with soft labels, in at least float32.

    mean_i -sum_k t_ik log p_ik, with t_i the row of `soft` of the true rank, such as
    `soft_labels` makes them. Padding (where False) takes no part.
    """
    where, logits, labels = masks.mask_rows(where, logits, labels)
    targets = widened(soft).astype(logits.dtype)[labels]
    return masks.mean(optax.softmax_cross_entropy(logits, targets), where, weights)


# --- soft labels ---


def soft_labels(
    num_ranks: int, kind: str, **options: float
) -> Float[Array, "ranks ranks"]:
    """Labels that are spread over the ranks, one row per true rank y.

    - exponential (SORD: Diaz and Marathe, CVPR 2019): softmax over k of
      -alpha |k - y|^power; options power and alpha, both 1.
    - binomial: the distribution of K - 1 draws, each a success with a probability that
      goes from 0.1 to 0.9 with y.
    - poisson: softmax over k of the probability of k at the rate y + 1.
    - triangular: 1 - 2 alpha at y and alpha, 0.05, at each neighbour; at the ends, what
      the triangle of Vargas et al. ("Generalised Triangular Distributions for Ordinal
      Deep Learning", Information Sciences 2023) leaves.
    - beta: the mass of a beta distribution in K equal intervals of [0, 1] (Vargas et
      al., "Unimodal Regularisation Based on Beta Distribution for Deep Ordinal
      Regression", Pattern Recognition 2022). For 3 to 8 ranks its parameters are the
      authors'; for others its mean is the middle of interval y and its deviation half
      an interval, which theirs are near to.
    - geometric: 1 - alpha at y, and alpha, 0.1, shared in proportion to alpha^|k - y|
      (Haas and Hüllermeier, 2023).

    A constant for whatever is compiled.
    """
    check_known("kind", kind, tuple(SOFT_LABELS))
    with jax.ensure_compile_time_eval():
        return SOFT_LABELS[kind](jnp.arange(num_ranks, dtype=float), **options)


def _exponential(rank, *, alpha=1.0, power=1.0):
    return jax.nn.softmax(-alpha * jnp.abs(rank[None] - rank[:, None]) ** power)


def _binomial(rank):
    chance = jnp.linspace(0.1, 0.9, len(rank), dtype=rank.dtype)
    return jax.scipy.stats.binom.pmf(rank[None], len(rank) - 1, chance[:, None])


def _poisson(rank):
    return jax.nn.softmax(jax.scipy.stats.poisson.pmf(rank[None], rank[:, None] + 1))


def _triangular(rank, *, alpha=0.05):
    count, root = len(rank), math.sqrt(2 * alpha)

    def at_end(shrunk):
        inner = (1 - 2 * alpha) * (2 * alpha - root) * shrunk**2
        return ((1 - math.sqrt(1 - 4 * inner)) / 2) ** 2

    left = jnp.full(count, alpha, rank.dtype).at[-1].set(at_end(1 - 1 / count))
    right = jnp.full(count, alpha, rank.dtype).at[0].set(at_end(1))
    left, right = left.at[0].set(0), right.at[-1].set(0)
    return jnp.diag(1 - left - right) + jnp.diag(left[1:], -1) + jnp.diag(right[:-1], 1)


def _beta(rank):
    count = len(rank)
    mean = (2 * rank + 1) / (2 * count)
    size = 4 * count**2 * mean * (1 - mean) - 1
    a, b = (mean * size).at[0].set(1), ((1 - mean) * size).at[0].set(2 * count - 2)
    a, b = a.at[-1].set(b[0]), b.at[-1].set(a[0])
    for y, (first, second) in enumerate(BETA_PARAMETERS.get(count, ())):
        a, b = a.at[y].set(first), b.at[y].set(second)
        a, b = a.at[count - 1 - y].set(second), b.at[count - 1 - y].set(first)
    edges = jnp.linspace(0, 1, count + 1, dtype=rank.dtype)
    below = jax.scipy.special.betainc(a[:, None], b[:, None], edges[None])
    return jnp.diff(below, axis=1)


def _geometric(rank, *, alpha=0.1):
    is_true = jnp.eye(len(rank), dtype=bool)
    tails = jnp.where(is_true, 0, alpha ** jnp.abs(rank[None] - rank[:, None]))
    tails = tails / jnp.sum(tails, axis=1, keepdims=True)
    return jnp.where(is_true, 1 - alpha, alpha * tails)


SOFT_LABELS: dict[str, Callable[..., Any]] = {
    "exponential": _exponential,
    "binomial": _binomial,
    "poisson": _poisson,
    "triangular": _triangular,
    "beta": _beta,
    "geometric": _geometric,
}


def _distances(logits, labels):
    """|k - y| for each rank k, [batch, rank]."""
    rank = jnp.arange(logits.shape[1], dtype=labels.dtype)[None]
    return jnp.abs(labels[:, None] - rank).astype(logits.dtype)
