"""How many images the official downloads hold, to compare with what was found.

By split as shipped: the counts of the ranks in order, or one number for all of them.
The cards in data/ say the same, and a test holds the two together.
"""

import collections
from collections.abc import Sequence

from cloc_jax.data.layouts.listing import Item

Counts = tuple[int, ...] | int

EXPECTED: dict[str, dict[str, Counts]] = {
    "koa": {
        "train": (2286, 1046, 1516, 757, 173),
        "val": (328, 153, 212, 106, 27),
        "test": (639, 296, 447, 223, 51),
    },
    "idrid": {
        "train": (134, 20, 136, 74, 49),
        "test": (34, 5, 32, 19, 13),
    },
    "bracs": {
        "train": (357, 714, 389, 624, 387, 665, 521),
        "val": (46, 43, 46, 49, 41, 40, 47),
        "test": (81, 79, 82, 83, 79, 85, 81),
    },
    "adience": {
        "fold 0": 4316,
        "fold 1": 3101,
        "fold 2": 3339,
        "fold 3": 2975,
        "fold 4": 3693,
        "all": (2519, 2163, 2132, 1655, 4950, 2300, 830, 875),
    },
    "hid": {"all": (265, 265, 265, 265, 265)},
    "clap2015": {"train": 2476, "val": 1136, "test": 1079},
    "retinamnist": {
        "train": (486, 128, 206, 194, 66),
        "val": (54, 12, 28, 20, 6),
        "test": (174, 46, 92, 68, 20),
    },
}


def compare(name: str, items: Sequence[Item], ranks: Sequence[str]) -> list[str]:
    """A warning for every split whose counts are not those of the card."""
    splits: dict[str, list[int]] = collections.defaultdict(lambda: [0] * len(ranks))
    for item in items:
        for split in (item.split, "all"):
            if split:
                splits[split][item.label] += 1
    warnings = []
    for split, wanted in EXPECTED.get(name, {}).items():
        found = splits[split]
        if isinstance(wanted, int):
            same, has, should = sum(found) == wanted, str(sum(found)), str(wanted)
        else:
            same = tuple(found) == wanted
            has, should = ("/".join(map(str, counts)) for counts in (found, wanted))
        if not same:
            warnings.append(
                f"Warning: {split} has {has} images; data/{name}/README.md says "
                f"{should}."
            )
    return warnings
