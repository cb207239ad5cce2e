"""What a run would train on, as pictures: images of every rank, plain and augmented.

Needs the data and nothing else: no encoder is built and no weights are read.
"""

import pathlib

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data.datasets import Dataset
from cloc_jax.data.source import Draw, augmented
from cloc_jax.report.figures import style
from cloc_jax.report.figures.contact_sheet import Picture, Row, sheet
from cloc_jax.runtime import files
from cloc_jax.runtime.console import console, print_dataset
from cloc_jax.runtime.errors import printable
from cloc_jax.training import encoder
from cloc_jax.training.assembly import build_dataset
from cloc_jax.training.encoder import augmentation

COLUMNS = 7
MOST_ROWS = 16
MOST_OF_A_RANK = 3


def show(config: ConfigDict, folder: pathlib.Path) -> pathlib.Path:
    """Writes a contact sheet of the training images into a folder, under a new name.

    They are shown as they are, and as `config.augment` changes them.
    """
    dataset = build_dataset(config)
    draw = _augmented(config, dataset)
    print_dataset(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    strengths = augmentation(config)._asdict()
    texts = ", ".join(f"{name} {value:g}" for name, value in strengths.items() if value)
    path = files.unused_path(folder / "images.png")
    colours = style.rank_colours(len(dataset.ranks))
    drawn = sheet(
        _rows(dataset, draw, config.seed),
        dict(zip(dataset.ranks, colours, strict=True)),
        title=f"{config.data.name}, {config.method.name}: images",
        note=texts if draw else "without augmentation",
        headings=("as evaluated", "as training may see it") if draw else ("", ""),
    )
    style.save(drawn, path)
    console.print(f"picture  {path}", soft_wrap=True)
    console.print("  another --config.seed shows others")
    return path


def _augmented(config: ConfigDict, dataset: Dataset) -> Draw | None:
    """Draws views as config.augment says; None where training never sees them."""
    augment = augmentation(config)
    is_kept = encoder.entrance(config) and config.encoder.views == 1
    if is_kept or not augment.is_on:
        return None
    return augmented(dataset.splits["train"], augment)


def _rows(dataset: Dataset, draw: Draw | None, seed: int) -> list[Row]:
    """Some images of each rank: in a row alone and its views, or side by side."""
    train = dataset.splits["train"]
    present = np.unique(train.labels).tolist()
    shown = [present[i] for i in style.thinned(len(present), MOST_ROWS)]
    if len(shown) < len(dataset.ranks):
        console.print(f"  the picture has {len(shown)} of {len(dataset.ranks)} ranks")
    each = min(max(MOST_ROWS // len(shown), 1), MOST_OF_A_RANK)
    rows = []
    for rank in shown:
        items = np.flatnonzero(train.labels == rank)
        chosen = np.random.default_rng((seed, rank)).permutation(items).tolist()
        plain = {
            i: Picture(train[i], printable(train.ids[i])) for i in chosen[:COLUMNS]
        }
        if draw is None:
            rows.append(Row(dataset.ranks[rank], list(plain.values())))
            continue
        for item in chosen[:each]:
            views = [
                Picture(draw(item, np.random.default_rng((seed, item, n))))
                for n in range(COLUMNS - 1)
            ]
            rows.append(Row(dataset.ranks[rank], [plain[item], *views]))
    return rows
