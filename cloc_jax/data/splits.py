"""From a listing to the indices of train, val and test, and calibration if asked for.

Shipped splits are used as they are, a fold or a drawn split is the test part, and what
is missing is carved from train. A carved split is written down the first time, so that
images which come later never move others from one side to the other.
"""

import collections
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np

from cloc_jax.data import carving
from cloc_jax.data.layouts.listing import FOLD, SPLITS, Item, comma, count_of, plural
from cloc_jax.runtime import files
from cloc_jax.runtime.files import write_text


class Protocol(NamedTuple):
    """How a dataset is divided, where it ships no train and test."""

    folds: int = 0  # number of folds, each of which is the test part once
    draw: int = 0  # or: test images of each rank, drawn anew for each fold


class Division(NamedTuple):
    """Which items are in which split."""

    indices: dict[str, np.ndarray]  # into the items, ascending
    carved: tuple[str, ...]  # splits that were not shipped
    notes: list[str]


def divide(
    items: Sequence[Item],
    ranks: Sequence[str],
    *,
    protocol: Protocol,
    fold: int,
    merge_val: bool,
    val_fraction: float,
    test_fraction: float,
    seed: int,
    calibration_fraction: float = 0.0,
    saved: pathlib.Path | None = None,
) -> Division:
    """Divides items into train, val and test, and calibration if asked for.

    A split that is missing is carved from train: stratified by rank, groups kept
    whole, chosen by a hash of seed and name. The same files give the same splits in
    any listing order, and one more file moves at most a few others; with a file of
    saved splits, none.

    Args:
        items: Sorted by id.
        ranks: Their names, for notes.
        protocol: How the dataset is divided.
        fold: Which of its folds is the test part.
        merge_val: Put a shipped val into train, then carve a new val from the whole.
        val_fraction: Share of the groups of each rank that a carved val receives.
        test_fraction: The same for a carved test.
        seed: Chooses among carved splits.
        calibration_fraction: Share of the groups of each rank that calibration takes
            of what would be train without it; val and test stay as they are.
        saved: File that a carved split was written to before, if it exists.
    """
    notes: list[str] = []
    splits = _shipped(items, protocol, fold)
    if merge_val and splits.get("val"):
        val = splits.pop("val")
        splits["train"] = sorted(splits["train"] + val)
        notes.append(f"The shipped val ({count_of(val)}) was merged into train.")
    elif merge_val:
        notes.append("data.merge_val is on, but there is no shipped val to merge.")
    fractions = {"test": test_fraction, "val": val_fraction}
    carved = {split: fractions[split] for split in fractions if split not in splits}
    carving.check_fractions(val_fraction, test_fraction, calibration_fraction, carved)
    # One after the other, so that test and val are the same without calibration.
    rounds = [carved]
    if calibration_fraction:
        rounds.append({carving.CALIBRATION: calibration_fraction})
    groups = carving.group_items(items)
    every = {split: share for part in rounds for split, share in part.items()}
    if every:
        again = _carved_before(splits["train"], groups, every, saved, notes)
        splits |= again
        for part in rounds if not again else ():
            if part:
                splits |= carving.carve(splits["train"], groups, part, seed, notes)
    if any(item.group for item in items):
        notes += carving.shared_groups(splits, groups)
    names = (*SPLITS, *({carving.CALIBRATION} & set(every)))
    for split in names:
        notes += _absent(split, splits[split], ranks)
    place = {item.id: index for index, item in enumerate(items)}
    indices = {
        split: np.array(sorted(place[item.id] for item in splits[split]), np.int64)
        for split in names
    }
    return Division(indices, tuple(every), notes)


def check_fold(protocol: Protocol, fold: int) -> None:
    """ValueError for a fold that a dataset does not have."""
    if not protocol.folds and fold:
        raise ValueError(
            f"data.fold is {fold}, but this dataset has no folds; leave it at 0."
        )
    if protocol.folds and not 0 <= fold < protocol.folds:
        raise ValueError(
            f"data.fold is {fold}; this dataset has the folds 0 to "
            f"{protocol.folds - 1}."
        )


def _shipped(
    items: Sequence[Item], protocol: Protocol, fold: int
) -> dict[str, list[Item]]:
    """Items by split, before anything is merged or carved."""
    check_fold(protocol, fold)
    if protocol.draw:
        items = _drawn(items, fold, protocol.draw)
    splits: dict[str, list[Item]] = collections.defaultdict(list)
    for item in items:
        split = item.split or "train"
        if protocol.folds and not protocol.draw:
            split = "test" if split == FOLD.format(fold) else "train"
        splits[split].append(item)
    if "train" not in splits:
        raise ValueError(
            f"there are no training images, only {comma(sorted(splits))}; check "
            "data.root and how the splits are named."
        )
    return dict(splits)


def _drawn(items: Sequence[Item], fold: int, count: int) -> list[Item]:
    """Items with `count` of each rank as test: the first by hash of fold and id."""
    test: set[str] = set()
    for label in sorted({item.label for item in items}):
        ids = [item.id for item in items if item.label == label]
        test.update(sorted(ids, key=lambda id_: _hash(f"{fold}/{id_}"))[:count])
    return [
        item._replace(split="test" if item.id in test else "train") for item in items
    ]


def _hash(text: str) -> bytes:
    return hashlib.blake2b(os.fsencode(text), digest_size=16).digest()


def _absent(split: str, items: Sequence[Item], ranks: Sequence[str]) -> list[str]:
    present = {item.label for item in items}
    absent = [rank for label, rank in enumerate(ranks) if label not in present]
    if not absent:
        return []
    return [
        f"{split} has no images of {plural(absent, 'rank')} {comma(absent)}: scores "
        "there say nothing about them."
    ]


# --- what was carved before ---


def _carved_before(
    pool: list[Item],
    groups: Mapping[str, str],
    carved: Mapping[str, float],
    saved: pathlib.Path | None,
    notes: list[str],
) -> dict[str, list[Item]]:
    """The pool split as it was saved, or nothing where that cannot be."""
    if saved is None or not saved.exists():
        return {}
    lists = _read(saved)
    split_of = {id_: split for split, ids in lists.items() for id_ in ids}
    group_of = {
        groups[item.id]: split_of[item.id] for item in pool if item.id in split_of
    }
    splits: dict[str, list[Item]] = {split: [] for split in ("train", *carved)}
    new = []
    for item in pool:
        if item.id not in split_of:
            new.append(item)
        split = split_of.get(item.id) or group_of.get(groups[item.id], "train")
        splits.get(split, splits["train"]).append(item)
    if not all(splits.values()):
        return {}
    notes.append(
        f"{comma(sorted(carved))} as carved before: {saved} lists them; without it "
        "they are carved anew."
    )
    if new:
        notes.append(
            f"{count_of(new)} came since then, such as {new[0].id}: in train, or where "
            "their patient or subject is."
        )
    return splits


def _read(path: pathlib.Path) -> dict[str, list[str]]:
    """The ids of each split that a file lists."""
    remedy = (
        "Put back a copy; without the file the splits are carved anew, and some images "
        "may change sides."
    )
    found = files.read_sealed(path, remedy=remedy, fields=("splits",))["splits"]
    known = {*SPLITS, carving.CALIBRATION}
    is_list = isinstance(found, dict) and all(
        split in known
        and isinstance(ids, list)
        and all(isinstance(id_, str) for id_ in ids)
        for split, ids in found.items()
    )
    if not is_list:
        raise files.Damaged(path, "it does not list ids by split", remedy)
    return found


def write(
    path: pathlib.Path,
    division: Division,
    items: Sequence[Item],
    settings: Mapping[str, Any],
) -> None:
    """Writes down which id is in which split, and by which settings."""
    lists = {
        split: [items[index].id for index in chosen]
        for split, chosen in division.indices.items()
    }
    if division.carved and path.exists():
        # Images that are missing for a while come back to where they were.
        here = {item.id for item in items}
        for split, ids in _read(path).items():
            lists[split] = sorted({*lists.get(split, ()), *(set(ids) - here)})
    about = {"settings": dict(settings), "splits": lists}
    text = json.dumps(files.sealed(about), indent=1)
    if path.exists() and path.read_text() == text:
        return
    write_text(path, text)
