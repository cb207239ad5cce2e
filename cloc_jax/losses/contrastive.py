"""Contrastive losses on the unit sphere, with labels (SupCon) and without (NT-Xent)."""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int

from . import masks, multi_margin


def supcon(
    features: Float[Array, "batch views dim"],
    labels: Int[Array, "batch"],
    *,
    temperature: float,
    base_temperature: float,
    where: Bool[Array, "batch"] | None = None,
) -> Float[Array, ""]:
    """Supervised contrastive loss of a batch, a scalar in at least float32.

    With n = batch * views features z, each over its length, s_ia = z_i . z_a /
    temperature, and the positives P(i) of anchor i: all others of its rank,

        temperature / base_temperature * mean_i L_i,
        L_i = log(sum_{a != i} exp(s_ia)) - mean_{p in P(i)} s_ip

    (Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020, Eq. 2; the factor
    in front is the released code's.)

    An anchor without positives has L_i = 0, and counts in the mean as in the released
    code. Padding (where False) takes no part. A zero feature has similarity 0 with
    everything and gradient 0.
    """
    batch, views, dim = features.shape
    size = batch * views
    where, features, labels = masks.mask_rows(where, features, labels)
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
    features: Float[Array, "batch views dim"],
    *,
    temperature: float,
    where: Bool[Array, "batch"] | None = None,
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
        jnp.arange(features.shape[0], dtype=jnp.int32),
        temperature=temperature,
        base_temperature=temperature,
        where=where,
    )
