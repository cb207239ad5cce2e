"""Contrastive losses: on the unit sphere, with labels (SupCon) and without (NT-Xent),
and by the order of distances (Rank-N-Contrast)."""

import functools

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import geometry, masks, multi_margin
from .multi_margin import AnyArray, Labels

# Along the rows. Unlike jax.lax.cumlogsumexp and cummax, which took 9 and 3 times as
# long for rows of 512 on a CPU.
_scan = functools.partial(jax.lax.associative_scan, axis=1)


def supcon(
    features: Float[AnyArray, "batch views dim"],
    labels: Labels,
    *,
    temperature: float,
    base_temperature: float,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Supervised contrastive loss of a batch, a scalar in at least float32.

    With n = batch * views features z, each over its length, s_ia = z_i . z_a /
    temperature, and the positives P(i) of anchor i: all others of its rank,

        temperature / base_temperature * mean_i L_i,
        L_i = log(sum_{a != i} exp(s_ia)) - mean_{p in P(i)} s_ip

    (Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2; the factor
    in front is the released code's.)

    An anchor without positives has L_i = 0, and counts in the mean as in the released
    code. Padding (where False) takes no part; zero features have cosine and gradient 0.
    """
    where, features, labels = masks.mask_rows(where, features, labels)
    batch, views, dim = features.shape
    size = batch * views
    where, labels = jnp.repeat(where, views), jnp.repeat(labels, views)
    unit = multi_margin.unit_vectors(features.reshape(size, dim))
    logits = jnp.matmul(unit, unit.T, precision="highest") / temperature
    others = where[None, :] & ~jnp.eye(size, dtype=bool)
    positives = others & (labels[:, None] == labels[None, :])
    count = jnp.sum(positives, axis=1)
    # Without others any columns will do: there are no positives either.
    columns = others | ~jnp.any(others, axis=1, keepdims=True)
    totals = jax.nn.logsumexp(logits, axis=1, where=columns)
    similarity = jnp.sum(logits, axis=1, where=positives) / jnp.maximum(count, 1)
    losses = jnp.where(count > 0, totals - similarity, 0)
    return temperature / base_temperature * masks.mean(losses, where)


def nt_xent(
    features: Float[AnyArray, "batch views dim"],
    *,
    temperature: float,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """NT-Xent loss of a batch, the mean over all its batch * views anchors.

    That is `supcon` with every sample a rank of its own, so that an anchor's positives
    are the other views of its sample, and without the factor in front (Chen et al., "A
    Simple Framework for Contrastive Learning of Visual Representations", ICML 2020,
    Eq. 1). The released SimCLR code adds up the means over two views: twice this.

    One view gives 0. Padding and zero features are as in `supcon`.
    """
    return supcon(
        features,
        jnp.arange(len(features), dtype=jnp.int32),
        temperature=temperature,
        base_temperature=temperature,
        where=where,
    )


def rnc(
    features: Float[AnyArray, "batch views dim"],
    labels: Labels | Float[AnyArray, "batch"],
    *,
    temperature: float,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Rank-N-Contrast loss of a batch, a scalar in at least float32 (RnC).

    Nearer labels, nearer features (Zha et al., "Rank-N-Contrast: Learning Continuous
    Representations for Regression", NeurIPS 2023). With n = batch * views features v,
    each with the label y of its sample, and s_ij = -|v_i - v_j| / temperature,

        1 / (n (n - 1)) sum_i sum_{j != i} log(sum_{k in S_ij} exp(s_ik)) - s_ij,

        S_ij = {k != i: |y_i - y_k| >= |y_i - y_j|}                   (paper, Eq. 1, 2)

    so that j and its ties belong to S_ij. The features are not normalised.

    Args:
      labels: whole numbers or floats, in any range.
      where: False for padding, which takes no part as i, j or k.

    Sorted by |y_i - y_k|, the sets S_ij of an anchor i are the ends of one row: the
    loss takes O(n^2 log n) time and O(n^2) memory, the released code O(n^3). All sums
    of exponentials are stable at any distance. Equal features have distance 0 and
    gradient 0; fewer than two features give 0.
    """
    where, features, labels = masks.mask_rows(where, features, labels)
    batch, views, dim = features.shape
    size = batch * views
    features = features.reshape(size, dim)
    where, labels = jnp.repeat(where, views), jnp.repeat(labels, views)
    logits = -geometry.euclidean(features, features) / temperature
    valid = where[:, None] & where[None, :] & ~jnp.eye(size, dtype=bool)
    gaps = jnp.where(valid, jnp.abs(labels[:, None] - labels[None, :]), -1)
    # Pairs that do not count have gap -1 and come first: they are in no end of a row.
    gaps, logits = jax.lax.sort((gaps, logits), dimension=1, num_keys=1)
    return _sum_of_terms(logits, gaps) / jnp.maximum(jnp.sum(valid), 1)


@jax.custom_jvp
def _sum_of_terms(logits, gaps):
    """Sum over i and j of the loss, from rows in the order of their gaps."""
    return jnp.sum(_totals(logits, gaps) - logits, where=gaps >= 0)


@_sum_of_terms.defjvp
def _sum_of_terms_jvp(primals, tangents):
    """The derivative in closed form: that of the scan compiles for seconds.

    k is in S_ij for all j with a gap up to its own, so that the derivative with respect
    to s_ik is the sum of exp(s_ik - total_ij) over those j, minus 1 from j = k.
    """
    logits, gaps = primals
    valid = gaps >= 0
    totals = _totals(logits, gaps)
    lowest = jnp.finfo(logits.dtype).min / 2
    starts = _scan(jnp.logaddexp, jnp.where(valid, -totals, lowest))
    shares = jnp.exp(logits + jnp.take_along_axis(starts, _last(gaps), axis=1))
    slopes = jnp.where(valid, shares - 1, 0)
    value = jnp.sum(totals - logits, where=valid)
    return value, jnp.sum(slopes * tangents[0])


def _totals(logits, gaps):
    """log(sum_{k in S_ij} exp(s_ik)), ties included."""
    ends = _scan(jnp.logaddexp, logits, reverse=True)
    return jnp.take_along_axis(ends, _first(gaps), axis=1)


def _first(gaps):
    """The first column with the same gap."""
    changes = jnp.pad(gaps[:, 1:] != gaps[:, :-1], ((0, 0), (1, 0)))
    column = jnp.arange(gaps.shape[1], dtype=jnp.int32)[None, :]
    return _scan(jnp.maximum, jnp.where(changes, column, 0))


def _last(gaps):
    """The last column with the same gap."""
    return gaps.shape[1] - 1 - _first(gaps[:, ::-1])[:, ::-1]
