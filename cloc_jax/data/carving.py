"""Splits that a dataset does not ship: carved by rank, with patients kept whole."""

import collections
import hashlib
import os
from collections.abc import Iterable, Sequence

from cloc_jax.data.layouts.listing import Item, count_of

CALIBRATION = "calibration"  # the split that only a guarantee is fitted on


def check_fractions(
    val_fraction: float,
    test_fraction: float,
    calibration_fraction: float,
    carved: dict[str, float],
) -> None:
    """ValueError for shares that are none; `carved` has those of splits not shipped."""
    if not 0 <= calibration_fraction < 1:
        raise ValueError(
            f"data.calibration_fraction={calibration_fraction} is not a share of the "
            "training images; give a number below 1, e.g. 0.1, or 0 for none."
        )
    fractions = {"val": val_fraction, "test": test_fraction}
    for split, fraction in fractions.items():
        if not 0 <= fraction < 1 or (split in carved and fraction == 0):
            reason = " (there is no such split, so it is carved)" * (split in carved)
            raise ValueError(
                f"data.{split}_fraction={fraction} is not a share of the training "
                f"images{reason}; give a number above 0 and below 1, e.g. 0.1."
            )
    if sum(carved.values()) >= 1:
        raise ValueError(
            f"data.val_fraction={val_fraction} and data.test_fraction={test_fraction} "
            "leave nothing to train on; make their sum less than 1."
        )


def group_items(items: Sequence[Item]) -> dict[str, str]:
    """Name of the group of each id; an item without one is its own."""
    has_groups = any(item.group for item in items)
    # A slash keeps the two kinds of names apart.
    own = "/" if has_groups else ""
    return {item.id: item.group or f"{own}{item.id}" for item in items}


def carve(
    items: Sequence[Item],
    groups: dict[str, str],
    fractions: dict[str, float],
    seed: int,
    notes: list[str],
) -> dict[str, list[Item]]:
    """Train and the splits carved from it, groups kept whole.

    `fractions` names test and val, or one of them; or calibration alone.
    """
    ranks_of: dict[str, set[int]] = collections.defaultdict(set)
    for item in items:
        ranks_of[groups[item.id]].add(item.label)
    strata: dict[int, list[str]] = collections.defaultdict(list)
    for group in sorted(ranks_of, key=lambda group: _hash(seed, group)):
        strata[max(ranks_of[group])].append(group)

    split_of = dict.fromkeys(ranks_of, "train")
    for stratum in strata.values():
        counts = _share(len(stratum), fractions)
        # Test from the front and others from the back: the size of one does not move
        # the other when files are added.
        for split, count in counts.items():
            if count:
                part = stratum[:count] if split == "test" else stratum[-count:]
                split_of.update(dict.fromkeys(part, split))
    _cover(split_of, ranks_of, ("train", *fractions), seed)

    carved: dict[str, list[Item]] = {split: [] for split in ("train", *fractions)}
    for item in items:
        carved[split_of[groups[item.id]]].append(item)
    for split in fractions:
        if not carved[split]:
            without = f"ship a folder {split}"
            if split == CALIBRATION:
                without = "go without: --config.data.calibration_fraction=0"
            raise ValueError(
                f"data.root: too few images to carve {split} from train "
                f"({count_of(items)} in {len(ranks_of)} groups); give each rank at "
                f"least {len(fractions) + 1} groups, or {without}."
            )
        count = sum(value == split for value in split_of.values())
        notes.append(
            f"{split} was carved from train: {count_of(carved[split])} in "
            f"{count} of {len(ranks_of)} groups, stratified by rank (seed {seed})."
        )
    return carved


def _hash(seed: int, group: str) -> bytes:
    return hashlib.blake2b(os.fsencode(f"{seed}/{group}"), digest_size=16).digest()


def _share(count: int, fractions: dict[str, float]) -> dict[str, int]:
    """How many of count groups each carved split gets; train keeps at least one.

    Rare ranks get two, or one where there are few, so that every rank is measured.
    """
    least = min(2, count // (len(fractions) + 1))
    shares = {
        split: max(int(fraction * count + 0.5), least)
        for split, fraction in fractions.items()
    }
    while sum(shares.values()) >= count and any(shares.values()):
        shares[max(shares, key=shares.__getitem__)] -= 1
    return shares


def _cover(
    split_of: dict[str, str],
    ranks_of: dict[str, set[int]],
    splits: Iterable[str],
    seed: int,
) -> None:
    """Moves groups, in place, to where a rank is missing, if it can be spared.

    Strata go by the highest rank of a group, so a rank that occurs mostly beside
    higher ones may have missed a split.
    """
    holders: dict[tuple[str, int], list[str]] = collections.defaultdict(list)
    for group in sorted(ranks_of, key=lambda group: _hash(seed, group)):
        for rank in ranks_of[group]:
            holders[split_of[group], rank].append(group)
    splits = tuple(splits)
    for split in splits:
        for rank in sorted(set().union(*ranks_of.values())):
            if holders[split, rank]:
                continue
            spare = (
                group
                for other in splits
                for group in holders[other, rank]
                if all(len(holders[other, held]) > 1 for held in ranks_of[group])
            )
            if (moved := next(spare, None)) is None:
                continue
            for held in ranks_of[moved]:
                holders[split_of[moved], held].remove(moved)
                holders[split, held].append(moved)
            split_of[moved] = split


def shared_groups(splits: dict[str, list[Item]], groups: dict[str, str]) -> list[str]:
    """Notes on patients or subjects that are in two splits as shipped."""
    names = {s: {groups[item.id] for item in items} for s, items in splits.items()}
    notes = []
    pairs = [("train", "val"), ("train", "test"), ("val", "test")]
    pairs += [(CALIBRATION, "test")] if CALIBRATION in splits else []
    for first, second in pairs:
        shared = sorted(names[first] & names[second])
        if shared:
            notes.append(
                f"{len(shared)} groups (patients or subjects), such as {shared[0]}, "
                f"are both in {first} and in {second} as shipped; scores on {second} "
                "may be too good."
            )
    return notes
