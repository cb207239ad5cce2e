"""Datasets by name: ranks and the three splits as random-access sources."""

import functools
from collections.abc import Callable, Sequence
from typing import NamedTuple

from cloc_jax.data import folder, synthetic
from cloc_jax.data.pipeline import Source


class Dataset(NamedTuple):
    """Graded images, split."""

    ranks: tuple[str, ...]  # names in order
    splits: dict[str, Source]  # "train", "val", "test"
    notes: list[str]  # what was inferred, for the user to see before training


def load_synthetic(
    *,
    size: tuple[int, int],
    channels: int,
    num_train: int,
    num_val: int,
    num_test: int,
    seed: int,
) -> Dataset:
    """Drawn knees; the splits are neighbouring stretches of one endless series."""
    if channels != 1:
        raise ValueError(
            f"data.channels is {channels}; the drawn knees are grey: use 1."
        )
    for name, count in (("train", num_train), ("val", num_val), ("test", num_test)):
        if count < 1:
            raise ValueError(f"data.num_{name} is {count}; use 1 or more.")
    splits: dict[str, Source] = {}
    start = 0
    for split, count in (("train", num_train), ("val", num_val), ("test", num_test)):
        splits[split] = synthetic.Knees(count, start=start, seed=seed, size=size)
        start += count
    return Dataset(synthetic.RANKS, splits, ["drawn knees, stored nowhere"])


def load_folder(
    *,
    root: str,
    channels: int,
    order: Sequence[str],
    val_fraction: float,
    test_fraction: float,
    merge_val: bool,
    group_pattern: str,
    seed: int,
) -> Dataset:
    """A folder a rank, with or without folders for the splits above them."""
    found = folder.scan(
        root,
        channels=channels,
        order=order,
        val_fraction=val_fraction,
        test_fraction=test_fraction,
        merge_val=merge_val,
        group_pattern=group_pattern,
        seed=seed,
    )
    return Dataset(found.ranks, dict(found.splits), list(found.notes))


@functools.wraps(load_folder)
def load_koa(**fields) -> Dataset:
    """KOA, a folder as its official download leaves it."""
    try:
        return load_folder(**fields)
    except (FileNotFoundError, ValueError) as error:
        raise type(error)(
            f"{error} How to get KOA, and which of its folders data.root is: "
            "data/koa/README.md."
        ) from None


DATASETS: dict[str, Callable[..., Dataset]] = {
    "synthetic": load_synthetic,
    "folder": load_folder,
    "koa": load_koa,
}
