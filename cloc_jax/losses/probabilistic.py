"""The three terms of probabilistic ordinal embeddings (POE).

Li et al., "Learning Probabilistic Ordinal Embeddings for Uncertainty-Aware Regression",
CVPR 2021. An image's embedding is a Gaussian with a diagonal covariance.
"""

from typing import Literal, NamedTuple, get_args

import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float

from . import geometry, masks
from .multi_margin import AnyArray, Labels, check_known, widened

GaussianDistance = Literal["j", "wasserstein", "bhattacharyya", "hellinger"]
GAUSSIAN_DISTANCES = get_args(GaussianDistance)


class PoeTerms(NamedTuple):
    """Unweighted terms of the loss."""

    cross_entropy: Float[Array, ""]
    kl: Float[Array, ""]
    ordinal: Float[Array, ""]


def poe_terms(
    logits: Float[AnyArray, "samples batch ranks"],
    mean: Float[AnyArray, "batch dim"],
    log_variance: Float[AnyArray, "batch dim"],
    labels: Labels,
    *,
    margin: float,
    distance: GaussianDistance,
    weights: Float[AnyArray, "batch"] | None = None,
    where: Bool[AnyArray, "batch"] | None = None,
) -> PoeTerms:
    """Cross-entropy, KL and ordinal term of a batch, scalars in at least float32.

    - cross_entropy: the mean over samples and batch, so of each sample drawn from an
      embedding on its own, not of their mean logits.
    - kl: mean_i KL(N(mean_i, variance_i) || N(0, 1)), summed over dimensions.
    - ordinal: for anchor i, second j (the next of the batch, the first after the
      last) and third k (of those with |y_i - y_k| != |y_i - y_j|, the one whose
      |y_i - y_k| is nearest to |y_i - y_j|, the first of several), with d the distance
      of Gaussians,

          max(0, sign(|y_i - y_j| - |y_i - y_k|) (d_ik - d_ij) + margin),

      the mean over the anchors where that is above 0; 0 where there are none.

    The second is a random other sample only if the batch is in random order: permute
    it first if neighbours are related.

    Args:
      distance: "j", the symmetrised Kullback-Leibler divergence KL(i, j) + KL(j, i);
        "wasserstein", of order 2; "bhattacharyya"; or "hellinger".
      weights: of images in the cross-entropy, a weighted mean then.
      where: False for padding, which takes no part and is skipped as the next.

    Anchors without a third do not count. Equal Gaussians have distance and gradient 0.
    """
    check_known("distance", distance, GAUSSIAN_DISTANCES)
    logits = jnp.swapaxes(widened(logits), 0, 1)  # [batch, samples, ranks]
    where, logits, mean, log_variance, labels = masks.mask_rows(
        where, logits, mean, log_variance, labels
    )
    repeated = jnp.broadcast_to(labels[:, None], logits.shape[:2])
    entropies = optax.softmax_cross_entropy_with_integer_labels(logits, repeated)
    divergences = mean**2 + jnp.expm1(log_variance) - log_variance
    return PoeTerms(
        cross_entropy=masks.mean(jnp.mean(entropies, axis=1), where, weights),
        kl=masks.mean(jnp.sum(divergences, axis=1) / 2, where),
        ordinal=_ordinal(mean, log_variance, labels, margin, distance, where),
    )


def _ordinal(mean, log_variance, labels, margin, distance, where):
    size = labels.shape[0]
    if not size:
        return jnp.zeros((), mean.dtype)
    gaps = jnp.abs(labels[:, None] - labels[None, :])
    second = _next(where)
    wanted = jnp.take_along_axis(gaps, second[:, None], axis=1)
    misses = jnp.abs(gaps - wanted)
    candidates = where[:, None] & where[None, :] & ~jnp.eye(size, dtype=bool)
    candidates &= misses > 0
    none = jnp.iinfo(misses.dtype).max
    third = jnp.argmin(jnp.where(candidates, misses, none), axis=1)
    sign = jnp.sign(wanted - jnp.take_along_axis(gaps, third[:, None], axis=1))[:, 0]

    def to(other):
        return _DISTANCES[distance](
            mean - mean[other], log_variance, log_variance[other]
        )

    hinges = sign * (to(third) - to(second)) + margin
    return masks.mean(hinges, jnp.any(candidates, axis=1) & (hinges > 0))


def _next(where):
    """Index of the next row that is no padding, the first after the last."""
    rows = jnp.argsort(~where, stable=True)  # padding comes last
    place = jnp.cumsum(where)
    return rows[jnp.where(place < place[-1], place, 0)]


def _j(difference, log_a, log_b):
    ratios = jnp.sinh((log_a - log_b) / 2) ** 2  # (a/b + b/a - 2) / 4
    scaled = difference**2 * (jnp.exp(-log_a) + jnp.exp(-log_b))
    return jnp.sum(2 * ratios + scaled / 2, axis=1)


def _wasserstein(difference, log_a, log_b):
    deviations = jnp.exp(log_a / 2) - jnp.exp(log_b / 2)
    return geometry.sqrt(jnp.sum(difference**2 + deviations**2, axis=1))


def _bhattacharyya(difference, log_a, log_b):
    scaled = difference**2 / (jnp.exp(log_a) + jnp.exp(log_b))
    # log cosh of half the difference, which is log((a + b) / 2 / sqrt(a b)).
    spreads = jnp.log1p(2 * jnp.sinh((log_a - log_b) / 4) ** 2)
    return jnp.sum(scaled / 4 + spreads / 2, axis=1)


def _hellinger(difference, log_a, log_b):
    return geometry.sqrt(-jnp.expm1(-_bhattacharyya(difference, log_a, log_b)))


_DISTANCES = {
    "j": _j,
    "wasserstein": _wasserstein,
    "bhattacharyya": _bhattacharyya,
    "hellinger": _hellinger,
}
