"""What a run would train on, as pictures: images of every rank, plain and augmented.

Stages that see several views of an image, as in pretraining, get a picture of their
own. Needs the data and nothing else: no encoder is built and no weights are read.
"""

import pathlib
from collections.abc import Sequence

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data import pipeline
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.source import Draw, augmented
from cloc_jax.report import figures
from cloc_jax.report.figures import Picture, Row
from cloc_jax.report.figures.style import rank_colours, thinned
from cloc_jax.runtime import files, sharding
from cloc_jax.runtime.console import console, print_dataset
from cloc_jax.runtime.errors import printable
from cloc_jax.training import assembly, encoder
from cloc_jax.training.assembly import build_dataset
from cloc_jax.training.encoder import augmentation

COLUMNS = 7
MOST_ROWS = 16
MOST_OF_A_RANK = 3
Views = Sequence[tuple[str, Draw]]  # each with its name


def show(config: ConfigDict, folder: pathlib.Path) -> list[pathlib.Path]:
    """Writes contact sheets of the training images into a folder, under new names.

    One as `config.augment` changes them, and one per stage with several views.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--run={folder} is a file; give the name of a folder.")
    dataset = build_dataset(config)
    sheets = {"images": _augmented(config, dataset)} | _stages(config, dataset)
    print_dataset(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    strengths = augmentation(config)._asdict()
    if not strengths["perspective"]:
        del strengths["perspective_probability"]
    said = ", ".join(f"{name} {value:g}" for name, value in strengths.items() if value)
    notes = {"images": said if sheets["images"] else "without augmentation"}
    paths = []
    for name, views in sheets.items():
        rows = _rows(dataset, views, config.seed)
        path = files.unused_path(folder / f"{name}.png")
        colours = rank_colours(len(dataset.ranks))
        sheet = figures.sheet(
            rows,
            dict(zip(dataset.ranks, colours, strict=True)),
            title=f"{config.data.name}, {config.method.name}: {name}",
            note=notes.get(name, ""),
            headings=("as evaluated", "as training may see it") if views else ("", ""),
        )
        figures.save(sheet, path)
        console.print(f"picture  {path}", soft_wrap=True)
        paths.append(path)
    console.print("  another --config.seed shows others")
    return paths


def _augmented(config: ConfigDict, dataset: Dataset) -> Views:
    """Views as config.augment draws them; none where training never sees them."""
    augment = augmentation(config)
    is_kept = encoder.entrance(config) and config.encoder.views == 1
    if is_kept or not augment.is_on:
        return []
    draw = augmented(dataset.splits["train"], augment)
    return [("", draw)] * (COLUMNS - 1)


def _stages(config: ConfigDict, dataset: Dataset) -> dict[str, Views]:
    """The views of each stage that sees several of an image."""
    if encoder.entrance(config):
        return {}  # kept features have no views of other kinds
    found: dict[str, Views] = {}
    method = assembly.build_method(config, len(dataset.ranks), sharding.make_mesh(1))
    for stage in method.stages:
        if len(stage.views) > 1:
            assembly.check_views(config, stage)
            draws = assembly.draws(config, dataset, stage)
            names = [view.augment for view in stage.views]
            found[f"views-{stage.name}"] = list(zip(names, draws, strict=True))
    return found


def _rows(dataset: Dataset, views: Views, seed: int) -> list[Row]:
    """Some images of each rank: in a row alone and its views, or side by side."""
    train = dataset.splits["train"]
    present = np.unique(train.labels).tolist()
    shown = [present[i] for i in thinned(len(present), MOST_ROWS)]
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
        if not views:
            rows.append(Row(dataset.ranks[rank], list(plain.values())))
            continue
        for item in chosen[:each]:
            picture = plain[item]
            drawn = [
                _view(draw(item, pipeline.generator((seed, item, n))), name, picture)
                for n, (name, draw) in enumerate(views)
            ]
            rows.append(Row(dataset.ranks[rank], [picture, *drawn]))
    return rows


def _view(image: np.ndarray, name: str, plain: Picture) -> Picture:
    """A view in the middle of white, so that sizes can be compared."""
    sizes = zip(image.shape, plain.image.shape, strict=True)
    canvas = np.full([max(pair) for pair in sizes], 255, np.uint8)
    height, width = image.shape[:2]
    top, left = (canvas.shape[0] - height) // 2, (canvas.shape[1] - width) // 2
    canvas[top : top + height, left : left + width] = image
    return Picture(canvas, f"{name}\n{height}x{width}" if name else "")
