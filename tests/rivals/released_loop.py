"""CLOC's loss as a loop over columns, in PyTorch: what ours is compared with.

The released code walks over the columns of the similarity matrix and takes each as the
positive of all anchors. This is that way of working in our own words, written from the
formula, with the same reduction; it needs PyTorch, an optional package.
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
