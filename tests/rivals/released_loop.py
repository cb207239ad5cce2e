"""Losses as loops over columns, in PyTorch: what ours are compared with.

The released codes of CLOC and of RnC walk over the columns of the similarity matrix and
take each as the positive of all anchors. These are those ways of working in our own
words, written from the formulas, with the same reductions; they need PyTorch, an
optional package.
"""

from typing import Any

import torch


def mmnp_by_columns(embeddings: Any, labels: Any, margins: Any) -> Any:
    """mean_i H_i / (P_i N_i^2) of torch tensors [batch, dim], [batch], [ranks - 1]."""
    count = labels.shape[0]
    # [batch, batch, dim] at once, as a broadcast cosine similarity does it.
    similarity = torch.nn.functional.cosine_similarity(
        embeddings[:, None, :], embeddings[None, :, :], dim=-1
    )
    position = torch.cat([margins.new_zeros(1), torch.cumsum(margins, 0)])[labels]
    shifted = similarity + (position[:, None] - position[None, :]).abs()
    same = labels[:, None] == labels[None, :]
    negatives = (~same).sum(1).clamp(min=1)
    positives = same.sum(1).sub(1).clamp(min=1)
    collected = embeddings.new_zeros(0, count)
    for column in range(count):
        is_positive = same[:, column] & (torch.arange(count) != column)
        hinge = torch.relu(shifted - similarity[:, column : column + 1])
        mean = torch.where(same, 0.0, hinge).sum(1) / negatives
        column_of_anchors = torch.where(is_positive, mean, 0.0)[None]
        collected = torch.cat([collected, column_of_anchors])
    return (collected.sum(0) / positives / negatives).mean()


def rnc_by_columns(features: Any, labels: Any, temperature: float) -> Any:
    """Rank-N-Contrast of torch tensors [batch, views, dim] and [batch]."""
    views = features.shape[1]
    joined = torch.cat(torch.unbind(features, dim=1))
    labels = labels.repeat(views)
    count = labels.shape[0]
    others = ~torch.eye(count, dtype=torch.bool)
    # [count, count, dim] at once, as a broadcast difference does it.
    apart = (joined[:, None, :] - joined[None, :, :]).norm(dim=-1)
    logits = (-apart / temperature)[others].reshape(count, count - 1)
    gaps = (labels[:, None] - labels[None, :]).abs()[others].reshape(count, count - 1)
    # A constant of each row cancels; without it, far features would give log(0).
    logits = logits - logits.max(dim=1, keepdim=True).values.detach()
    exponentials = logits.exp()
    total = joined.new_zeros(())
    for column in range(count - 1):
        is_as_far = gaps >= gaps[:, column : column + 1]
        sums = (is_as_far * exponentials).sum(1)
        total = total + (sums.log() - logits[:, column]).sum()
    return total / (count * (count - 1))
