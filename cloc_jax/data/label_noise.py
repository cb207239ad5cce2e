"""Training labels made wrong on purpose.

The paper relabels 60% of IDRiD's grade 1 as 2 and 30% of grade 2 as 1. Which images are
chosen depends on the seed and their ids alone.
"""

from collections.abc import Sequence

import numpy as np

from cloc_jax.data.layouts.listing import place_by_hash
from cloc_jax.data.source import Source


def relabel(
    source: Source, ranks: Sequence[str], *, rules: Sequence[str], seed: int
) -> tuple[Source, dict[str, list[str]]]:
    """Training data with rules applied, and the ids that each of them changed.

    All rules go by the labels as they came. "1>2:0.6": of rank 1, 60% are called 2.
    """
    ids, labels = source.ids, np.asarray(source.labels)
    is_free = np.ones(len(ids), bool)  # not relabelled yet
    changed = np.array(labels, np.int32)
    changes: dict[str, list[str]] = {}
    label_of = {rank: label for label, rank in enumerate(ranks)}
    pairs = {
        f"{a}>{b}": (label_of[a], label_of[b]) for a in ranks for b in ranks if a != b
    }
    for rule in rules:
        head, _, number = rule.rpartition(":")
        try:
            fraction = float(number)
        except ValueError:
            fraction = -1.0
        if head not in pairs or not 0 <= fraction <= 1:
            raise ValueError(
                f"data.relabel has the rule {rule!r}; write it like '1>2:0.6', with a "
                "fraction from 0 to 1 and known ranks."
            )
        old, new = pairs[head]

        count = int(fraction * (labels == old).sum() + 0.5)
        # The fraction plays no part in the order.
        places = {
            place_by_hash(f"{seed}/{head}/{ids[index]}"): index
            for index in np.flatnonzero(is_free & (labels == old)).tolist()
        }
        chosen = [places[key] for key in sorted(places)[:count]]
        is_free[chosen] = False
        changed[chosen] = new
        changes[rule] = sorted(ids[i] for i in chosen)
    return source.replaced(labels=changed), changes
