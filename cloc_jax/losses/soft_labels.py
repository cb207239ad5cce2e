"""Classification with labels that are spread over the neighbouring ranks."""

from typing import Literal, get_args

import jax
import jax.numpy as jnp
import optax
from jaxtyping import Array, Bool, Float, Int

from . import masks

RankDistance = Literal["absolute", "squared"]
RANK_DISTANCES = get_args(RankDistance)


def sord(
    logits: Float[Array, "batch ranks"],
    labels: Int[Array, "batch"],
    *,
    alpha: float,
    distance: RankDistance,
    where: Bool[Array, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy with soft ordinal labels, in at least float32 (SORD).

    mean_i -sum_k t_ik log softmax(logits_i)_k, with t_i the softmax over k of -alpha
    |y_i - k| ("absolute") or -alpha (y_i - k)^2 ("squared"): Diaz and Marathe, "Soft
    Labels for Ordinal Regression", CVPR 2019. A large alpha gives plain labels, 0 the
    same for all ranks. Padding (where False) takes no part.
    """
    if distance not in RANK_DISTANCES:
        raise ValueError(
            f"distance {distance!r} is unknown; use one of {RANK_DISTANCES}."
        )
    where, logits, labels = masks.mask_rows(where, logits, labels)
    rank = jnp.arange(logits.shape[1], dtype=labels.dtype)[None, :]
    gaps = jnp.abs(labels[:, None] - rank).astype(logits.dtype)
    targets = jax.nn.softmax(-alpha * (gaps**2 if distance == "squared" else gaps))
    return masks.mean(optax.softmax_cross_entropy(logits, targets), where)
