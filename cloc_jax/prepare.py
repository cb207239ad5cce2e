"""Preparation alone: images into records, and the lists of every split written out."""

import pathlib

import numpy as np
from ml_collections import ConfigDict

from cloc_jax import assemble
from cloc_jax.data import preparation
from cloc_jax.data.datasets import LAYOUTS, Dataset
from cloc_jax.progress import console


def prepare(config: ConfigDict) -> None:
    """Prepares a dataset, for all of its folds, and shows what it is."""
    name = config.data.name
    dataset = assemble.load(config)
    if name not in LAYOUTS:
        console.print(f"{name} needs no preparation: its images are drawn as needed")
        return
    old = preparation.stale(pathlib.Path(dataset.details["prepared"]))
    if old:
        preparation.remove(old)
        console.print(f"removed {len(old)} preparations of what the images were before")
        dataset = assemble.load(config)
    _show(dataset)
    console.print(f"records  {dataset.details['prepared']}", soft_wrap=True)
    folds = LAYOUTS[name].protocol.folds
    if not folds:
        console.print(f" splits  {dataset.details['splits']}", soft_wrap=True)
    for fold in range(folds):
        other = config.copy_and_resolve_references()
        other.data.fold = fold
        lists = assemble.load(other).details["splits"]
        console.print(f" fold {fold}  {lists}", soft_wrap=True)


def _show(dataset: Dataset) -> None:
    for note in dataset.notes:
        console.print(f"  {note}")
    for split, source in dataset.splits.items():
        counts = np.bincount(source.labels, minlength=len(dataset.ranks))
        shown = "  ".join(
            f"{r}: {n}" for r, n in zip(dataset.ranks, counts, strict=True)
        )
        console.print(f"{split:>7}  {len(source)} images  ({shown})")
