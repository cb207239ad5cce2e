"""Training labels made wrong, and ranks made rare, on purpose.

For studies of biased labels (the paper relabels 60% of IDRiD's grade 1 as 2 and 30% of
grade 2 as 1) and of imbalance. Only training data are touched. Which images are chosen
depends on the seed and their ids alone.
"""

import hashlib
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from cloc_jax.data.source import Source, Subset


def add_label_noise(
    source: Source,
    ranks: Sequence[str],
    *,
    relabel: Sequence[str],
    subsample: Sequence[str],
    seed: int,
) -> tuple[Source, dict[str, list[str]]]:
    """Training data with rules applied, and the ids that each of them changed.

    All rules go by the labels as they came; images left out are not relabelled.

    Args:
        source: Training data.
        ranks: Names in order.
        relabel: Rules such as "1>2:0.6": of rank 1, 60% are called 2.
        subsample: Rules such as "4:0.2": of rank 4, 20% are kept.
        seed: Chooses the images.
    """
    ids, labels = source.ids, np.asarray(source.labels)
    kept = np.ones(len(ids), bool)
    changed = np.array(labels, np.int32)
    changes: dict[str, list[str]] = {}
    one = {rank: label for label, rank in enumerate(ranks)}
    for rule, rank, fraction in _parse("data.subsample", subsample, one, "4:0.2"):
        order = _order(rule, np.flatnonzero(labels == rank), ids, seed)
        count = int(fraction * len(order) + 0.5)
        if not count:
            raise ValueError(
                f"data.subsample={rule!r} leaves no training images of rank "
                f"{ranks[rank]} (there are {len(order)}); keep more."
            )
        kept[order[count:]] = False
        changes[f"subsample {rule}"] = sorted(ids[i] for i in order[count:])
    is_free = kept.copy()  # not relabelled yet
    two = {f"{a}>{b}": (one[a], one[b]) for a in ranks for b in ranks if a != b}
    for rule, (old, new), fraction in _parse("data.relabel", relabel, two, "1>2:0.6"):
        count = int(fraction * (kept & (labels == old)).sum() + 0.5)
        order = _order(rule, np.flatnonzero(is_free & (labels == old)), ids, seed)
        chosen = order[:count]
        is_free[chosen] = False
        changed[chosen] = new
        changes[f"relabel {rule}"] = sorted(ids[i] for i in chosen)
    left = np.flatnonzero(kept)
    return Subset(source, left).with_labels(changed[left]), changes


def _parse(field: str, rules: Sequence[str], known: Mapping[str, Any], example: str):
    """Each rule, such as "1>2:0.6", with what its head means and its fraction."""
    for rule in rules:
        head, _, number = rule.rpartition(":")
        try:
            fraction = float(number)
        except ValueError:
            fraction = -1.0
        if head not in known or not 0 <= fraction <= 1:
            raise ValueError(
                f"{field} has the rule {rule!r}; write it like {example!r}, with a "
                f"fraction from 0 to 1 and known ranks."
            )
        yield rule, known[head], fraction


def _order(rule: str, items: np.ndarray, ids: Sequence[str], seed: int) -> list[int]:
    """Indices shuffled by a hash of seed, rule and id; the fraction plays no part."""
    head = rule.rpartition(":")[0]

    def key(index: int) -> bytes:
        text = f"{seed}/{head}/{ids[index]}"
        return hashlib.blake2b(os.fsencode(text), digest_size=16).digest()

    return sorted(map(int, items), key=key)
