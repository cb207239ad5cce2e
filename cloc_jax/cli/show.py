"""What a run would train on, as pictures: images of every rank, plain and augmented.

Stages that see several views of an image, as in pretraining, get a picture of their
own. Needs the data and nothing else: no encoder is built and no weights are read.
"""

import pathlib

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data import pipeline, view_recipes
from cloc_jax.data.augment import Augment
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.source import augmented
from cloc_jax.methods import Stage
from cloc_jax.report import figures
from cloc_jax.report.figures import Picture, Row
from cloc_jax.report.figures.style import thinned
from cloc_jax.runtime import files, sharding
from cloc_jax.runtime.console import console, print_dataset
from cloc_jax.runtime.errors import printable
from cloc_jax.training import assembly, encoder
from cloc_jax.training.assembly import build_dataset
from cloc_jax.training.encoder import augmentation

COLUMNS = 7
MOST_ROWS = 16
MOST_OF_A_RANK = 3


def show(
    config: ConfigDict, folder: pathlib.Path, *, stage: str = ""
) -> list[pathlib.Path]:
    """Writes contact sheets of the training images into a folder, under new names.

    One as `config.augment` changes them, and one per stage with several views; or the
    views of `stage` alone.
    """
    if folder.exists() and not folder.is_dir():
        raise FileExistsError(f"--run={folder} is a file; give the name of a folder.")
    dataset = build_dataset(config)
    stages = _stages(config, len(dataset.ranks), stage)
    print_dataset(dataset)
    folder.mkdir(parents=True, exist_ok=True)
    paths = [] if stage else [_show_images(config, dataset, folder)]
    paths += [_show_views(config, dataset, one, folder) for one in stages]
    for path in paths:
        console.print(f"picture  {path}", soft_wrap=True)
    console.print("  another --config.seed shows others")
    return paths


def _stages(config: ConfigDict, num_ranks: int, name: str) -> list[Stage]:
    """The stage of that name, or those that see several views of an image."""
    if not name and encoder.entrance(config):
        return []  # kept features have no views of other kinds
    method = assembly.build_method(config, num_ranks, sharding.make_mesh(1))
    if not name:
        found = [stage for stage in method.stages if len(stage.views) > 1]
    else:
        found = [stage for stage in method.stages if stage.name == name]
        if not found:
            raise ValueError(
                f"--stage is {name!r}; {config.method.name} has the stages "
                f"{', '.join(stage.name for stage in method.stages)}."
            )
    for stage in found:
        assembly.check_views(config, stage)
    return found


def _show_images(
    config: ConfigDict, dataset: Dataset, folder: pathlib.Path
) -> pathlib.Path:
    """The sheet of images as config.augment changes them."""
    augment = augmentation(config)
    strengths = _strengths(augment)
    console.print(f"  augmentation: {strengths or 'none'}", soft_wrap=True)
    note = _frozen_note(config, augment)
    if note:
        console.print(f"  {note}", soft_wrap=True)
    rows = _rows(dataset, augment, config.seed)
    path = files.unused_path(folder / "images.png")
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
    return path


def _show_views(
    config: ConfigDict, dataset: Dataset, stage: Stage, folder: pathlib.Path
) -> pathlib.Path:
    """The sheet of a stage's views, as its batches would have them."""
    train = dataset.splits["train"]
    draws = assembly.draws(config, dataset, stage)
    recipes = list(dict.fromkeys(view.augment for view in stage.views))
    notes = [f"{name}: {_recipe(config, name)}" for name in recipes]
    for note in notes:
        console.print(f"  stage {stage.name}, {note}", soft_wrap=True)
    if len(draws) == 1:
        draws = draws * (COLUMNS - 1)
    rows = []
    for rank in np.unique(train.labels).tolist()[:MOST_ROWS]:
        items = np.flatnonzero(train.labels == rank)
        item = int(np.random.default_rng((config.seed, rank)).permutation(items)[0])
        plain = train[item]
        rng = pipeline.generator((config.seed, item))
        views = [draw(item, rng) for draw in draws]
        captions = [view.augment for view in stage.views]
        captions += [""] * (len(views) - len(captions))
        pictures = [
            Picture(
                _on_canvas(image, plain.shape),
                f"{caption}\n{image.shape[0]}x{image.shape[1]}",
            )
            for image, caption in zip(views, captions, strict=True)
        ]
        rows.append(Row(dataset.ranks[rank], [Picture(plain, "image"), *pictures]))
    path = files.unused_path(folder / f"views-{stage.name}.png")
    count = len(stage.views)
    figures.sheet(
        path,
        rows,
        dataset.ranks,
        title=f"{config.method.name}: stage {stage.name}, {count} "
        f"view{'s' if count > 1 else ''} per image",
        note=". ".join(notes),
        headings=("as evaluated", "as training may see it"),
    )
    return path


def _on_canvas(image: np.ndarray, shape: tuple[int, ...]) -> np.ndarray:
    """A smaller image in the middle of white, so that sizes can be compared."""
    height, width, channels = (
        max(a, b) for a, b in zip(image.shape, shape, strict=True)
    )
    canvas = np.full((height, width, channels), 255, np.uint8)
    top, left = (height - image.shape[0]) // 2, (width - image.shape[1]) // 2
    canvas[top : top + image.shape[0], left : left + image.shape[1]] = image
    return canvas


def _recipe(config: ConfigDict, name: str) -> str:
    """What a view's augmentation does, in words."""
    if name == "default":
        return _strengths(augmentation(config)) or "as evaluated"
    if name == "none":
        return "as evaluated"
    values = view_recipes.RECIPES[name]._asdict()
    if not values["blur_probability"]:
        values.pop("blur_sigma")
    return ", ".join(
        f"{field} " + (" to ".join(f"{v:.3g}" for v in np.atleast_1d(value)))
        for field, value in values.items()
        if np.any(value)
    )


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
        plain = [
            Picture(train[i], printable(train.ids[i]))
            for i in chosen[:COLUMNS].tolist()
        ]
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
