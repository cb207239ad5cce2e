"""What a run would train on, as a picture: images of every rank, plain and augmented.

Needs the data and nothing else: no encoder is built and no weights are read.
"""

import pathlib

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.build import encoder
from cloc_jax.build.dataset import augmentation, build_dataset
from cloc_jax.data import pipeline
from cloc_jax.data.augment import Augment
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.source import augmented
from cloc_jax.report import figures
from cloc_jax.report.figures import Picture, Row
from cloc_jax.report.figures.style import thinned
from cloc_jax.runtime import atomic_files
from cloc_jax.runtime.console import console, print_dataset

COLUMNS = 7
MOST_ROWS = 16
MOST_OF_A_RANK = 3


def show(config: ConfigDict, folder: pathlib.Path) -> pathlib.Path:
    """Writes a contact sheet of the training images into a folder, under a new name."""
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--run={folder} is a file; give the name of a folder.")
    dataset = build_dataset(config)
    augment = augmentation(config)
    print_dataset(dataset)
    strengths = _strengths(augment)
    console.print(f"  augmentation: {strengths or 'none'}", soft_wrap=True)
    note = _frozen_note(config, augment)
    if note:
        console.print(f"  {note}", soft_wrap=True)
    rows = _rows(dataset, augment, config.seed)
    folder.mkdir(parents=True, exist_ok=True)
    path = atomic_files.unused(folder / "images.png")
    headings = ("", "")
    if augment.is_on:
        headings = ("as evaluated", "augmented" if note else "as training may see it")
    height, width, channels = rows[0].pictures[0].image.shape
    kind = "grey" if channels == 1 else "colour"
    figures.sheet(
        path,
        rows,
        dataset.ranks,
        title=f"{config.data.name}: training images, {height}x{width}, {kind}",
        note=". ".join(filter(None, (note, strengths))) or "without augmentation",
        headings=headings,
    )
    console.print(f"picture  {path}", soft_wrap=True)
    console.print("  another --config.seed shows others")
    return path


def _rows(dataset: Dataset, augment: Augment, seed: int) -> list[Row]:
    """Some images of each rank: in a row alone and augmented, or side by side."""
    train = dataset.splits["train"]
    present = np.unique(train.labels).tolist()
    shown = [present[i] for i in thinned(len(present), MOST_ROWS)]
    if len(shown) < len(dataset.ranks):
        console.print(f"  the picture has {len(shown)} of {len(dataset.ranks)} ranks")
    draw = augmented(train, augment)
    each = min(max(MOST_ROWS // len(shown), 1), MOST_OF_A_RANK)
    rows = []
    for rank in shown:
        items = np.flatnonzero(train.labels == rank)
        chosen = np.random.default_rng((seed, rank)).permutation(items)
        plain = [Picture(train[i], train.ids[i]) for i in chosen[:COLUMNS].tolist()]
        if not augment.is_on:
            rows.append(Row(dataset.ranks[rank], plain))
            continue
        for item, picture in zip(chosen[:each].tolist(), plain, strict=False):
            views = [
                Picture(draw(item, pipeline.generator((seed, item, view))))
                for view in range(COLUMNS - 1)
            ]
            rows.append(Row(dataset.ranks[rank], [picture, *views]))
    return rows


def _strengths(augment: Augment) -> str:
    """The strengths that are on, in words."""
    on = {name: value for name, value in augment._asdict().items() if value}
    if not augment.perspective:
        on.pop("perspective_probability", None)
    return ", ".join(f"{name} {value:g}" for name, value in on.items())


def _frozen_note(config: ConfigDict, augment: Augment) -> str:
    """How kept features limit augmentation, or nothing."""
    if not (encoder.entrance(config) and augment.is_on):
        return ""
    views = config.encoder.views
    if views == 1:
        return (
            "frozen encoder: training sees the images as evaluated only; "
            "encoder.views=4 would keep three augmented views of each as well"
        )
    return f"frozen encoder: {views - 1} augmented views of each image are kept"
