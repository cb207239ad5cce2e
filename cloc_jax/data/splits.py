"""From a listing to the indices of train, val and test, and calibration if asked for.

Shipped splits are kept; missing ones are carved from train by rank, patients whole.
"""

import collections
import itertools
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np

from cloc_jax.data.layouts.listing import (
    SPLITS,
    Item,
    comma,
    count_of,
    place_by_hash,
    plural,
)

CALIBRATION = "calibration"  # the split that only a guarantee is fitted on


class Division(NamedTuple):
    """Which items are in which split."""

    indices: dict[str, np.ndarray]  # into the items, ascending
    notes: list[str]


def divide(
    items: Sequence[Item],
    ranks: Sequence[str],
    *,
    merge_val: bool,
    val_fraction: float,
    test_fraction: float,
    seed: int,
    calibration_fraction: float = 0.0,
    may_lack_ranks: bool = False,
) -> Division:
    """Divides items into train, val and test, and calibration if asked for.

    A split that is missing is carved from train: stratified by rank, groups kept
    whole, chosen by a hash of seed and name. The same files give the same splits in
    any listing order, and one more file moves at most a few others.

    `merge_val` puts a shipped val into train, then carves a new one from the whole. The
    fractions are of the groups of each rank; that of calibration is taken of what would
    be train without it, so that val and test stay as they are.
    """
    notes: list[str] = []
    splits: dict[str, list[Item]] = collections.defaultdict(list)
    for item in items:
        splits[item.split or "train"].append(item)
    if "train" not in splits:
        raise ValueError(
            f"there are no training images, only {comma(sorted(splits))}; check "
            "data.root and how the splits are named."
        )
    if merge_val and "val" in splits:
        val = splits.pop("val")
        splits["train"] = sorted(splits["train"] + val)
        notes.append(f"The shipped val ({count_of(val)}) was merged into train.")
    elif merge_val:
        notes.append("data.merge_val is on, but there is no shipped val to merge.")
    fractions = {"test": test_fraction, "val": val_fraction}
    carved = {split: fractions[split] for split in fractions if split not in splits}
    _check_fractions(fractions | {CALIBRATION: calibration_fraction}, carved)
    # An item without a group is its own; a slash keeps the two kinds of names apart.
    own = "/" if any(item.group for item in items) else ""
    groups = {item.id: item.group or f"{own}{item.id}" for item in items}
    # One after the other, so that test and val are the same without calibration.
    held = {CALIBRATION: calibration_fraction} if calibration_fraction else {}
    for part in filter(None, (carved, held)):
        splits |= _carve(splits["train"], groups, part, seed, notes)
    if any(item.group for item in items):
        notes += _shared_groups(splits, groups)
    elif carved or held:
        notes.append(
            "For carving, each image was taken as its own patient or subject; where "
            "several images show the same one, give data.group_pattern."
        )
    names = (*SPLITS, *held)
    for split in names:
        present = {item.label for item in splits[split]}
        absent = [rank for label, rank in enumerate(ranks) if label not in present]
        if absent and split == "train" and not may_lack_ranks:
            raise ValueError(
                f"there are no training images of {comma(absent)}; a rank without them "
                "cannot be learned. Add some, or leave the rank out."
            )
        if absent:
            notes.append(
                f"{split} has no images of {plural(absent, 'rank')} {comma(absent)}: "
                "scores there say nothing about them."
            )
    place = {item.id: index for index, item in enumerate(items)}
    indices = {
        split: np.array(sorted(place[item.id] for item in splits[split]), np.int64)
        for split in names
    }
    return Division(indices, notes)


# --- carving ---


def keep_together(items: Sequence[Item], copies: Sequence[Sequence[str]]) -> list[Item]:
    """Items of which identical ones are of one group, so that carving keeps them whole.

    Patients or subjects that share an image become one group. Copies in two splits as
    shipped are left as they are: nothing is carved between those.
    """
    split_of = {item.id: item.split for item in items}
    group_of = {item.id: item.group or f"/{item.id}" for item in items}
    is_changed = False
    for ids in copies:
        for split in {split_of[i] for i in ids}:
            merged = {group_of[i] for i in ids if split_of[i] == split}
            if len(merged) > 1:
                first, is_changed = min(merged), True
                group_of = {i: first if g in merged else g for i, g in group_of.items()}
    if not is_changed:
        return list(items)
    return [item._replace(group=group_of[item.id]) for item in items]


def _check_fractions(fractions: dict[str, float], carved: dict[str, float]) -> None:
    """ValueError for shares that are none; `carved` has those of splits not shipped."""
    for split, fraction in fractions.items():
        if not 0 <= fraction < 1 or (split in carved and fraction == 0):
            raise ValueError(
                f"data.{split}_fraction={fraction} is not a share of the training "
                "images; give a number above 0 and below 1, e.g. 0.1."
            )
    if sum(carved.values()) >= 1:
        raise ValueError(
            f"the fractions of {' and '.join(carved)} leave nothing to train on; make "
            "the sum of data.val_fraction and data.test_fraction less than 1."
        )


def _carve(
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
    for group in sorted(ranks_of, key=lambda group: place_by_hash(f"{seed}/{group}")):
        strata[max(ranks_of[group])].append(group)

    split_of = dict.fromkeys(ranks_of, "train")
    for stratum in strata.values():
        counts = _share(len(stratum), fractions)
        # Test from the front, others from the back: more of one does not move another.
        for split, count in counts.items():
            if count:
                part = stratum[:count] if split == "test" else stratum[-count:]
                split_of.update(dict.fromkeys(part, split))

    carved: dict[str, list[Item]] = {split: [] for split in ("train", *fractions)}
    for item in items:
        carved[split_of[groups[item.id]]].append(item)
    for split in fractions:
        if not carved[split]:
            raise ValueError(
                f"data.root: too few images to carve {split} from train "
                f"({count_of(items)} in {len(ranks_of)} groups); give each rank at "
                f"least {len(fractions) + 1} groups, or go without "
                f"data.{split}_fraction."
            )
        count = sum(value == split for value in split_of.values())
        notes.append(
            f"{split} was carved from train: {count_of(carved[split])} in "
            f"{count} of {len(ranks_of)} groups, stratified by rank (seed {seed})."
        )
    return carved


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


def _shared_groups(splits: dict[str, list[Item]], groups: dict[str, str]) -> list[str]:
    """Notes on patients or subjects that are in two splits as shipped."""
    names = {s: {groups[item.id] for item in items} for s, items in splits.items()}
    notes = []
    for first, second in (*itertools.combinations(SPLITS, 2), (CALIBRATION, "test")):
        if shared := sorted(names.get(first, set()) & names[second]):
            notes.append(
                f"{len(shared)} groups (patients or subjects), such as {shared[0]}, "
                f"are both in {first} and in {second} as shipped; scores on {second} "
                "may be too good."
            )
    return notes
