"""Preparation alone: images into records, and the lists of every split written out."""

import pathlib
import shutil

from ml_collections import ConfigDict

from cloc_jax.data import records
from cloc_jax.data.datasets import LAYOUTS
from cloc_jax.runtime.console import console, print_dataset
from cloc_jax.training import assembly as dataset_of


def prepare(config: ConfigDict) -> None:
    """Prepares a dataset, for all of its folds, and shows what it is."""
    name = config.data.name
    dataset = dataset_of.load(config)
    # What training would refuse is refused here, where it is quick to mend.
    dataset_of.check_critical(config, dataset.ranks)
    dataset_of.prepare(dataset, config).splits["train"][0]  # also a crop too large
    if name not in LAYOUTS:
        console.print(f"{name} needs no preparation: its images are drawn as needed")
        return
    old = records.stale(pathlib.Path(dataset.details["prepared"]))
    if old:
        for folder in old:
            shutil.rmtree(folder)
        console.print(f"removed {len(old)} preparations of what the images were before")
        dataset = dataset_of.load(config)
    print_dataset(dataset)
    console.print(f"records  {dataset.details['prepared']}", soft_wrap=True)
    folds = LAYOUTS[name].protocol.folds
    if not folds:
        console.print(f" splits  {dataset.details['splits']}", soft_wrap=True)
    for fold in range(folds):
        other = config.copy_and_resolve_references()
        other.data.fold = fold
        lists = dataset_of.load(other).details["splits"]
        console.print(f" fold {fold}  {lists}", soft_wrap=True)
