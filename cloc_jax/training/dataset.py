"""From a configuration to a dataset: loaded, prepared, and described."""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.config import check_settings
from cloc_jax.data import augment, datasets, images
from cloc_jax.data.datasets import DATASETS, Dataset
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.source import Prepared, Source
from cloc_jax.runtime import console, environment, files
from cloc_jax.scoring import metrics

DIGITS = 16  # of a digest that a run keeps: 64 bits


def build_dataset(config: ConfigDict) -> Dataset:
    """The prepared dataset of a configuration, whatever its encoder.

    Read once by a process, unless settings or files have changed since.
    """
    check_data(config)
    text = canonical(config, "data", "augment", data={"permute": 0})
    return permuted(built_dataset(text, file_state(config)), config.data.permute)


@functools.lru_cache(maxsize=2)
def built_dataset(text: str, files: str) -> Dataset:
    """The dataset of settings as text, and of files in that state."""
    config = from_canonical(text)
    dataset = prepare(_load(config), config)
    dataset.splits["train"][0]  # a crop larger than the images shows here
    return dataset


def file_state(config: ConfigDict) -> str:
    """A fingerprint of the files that a dataset is read from, without reading them."""
    data, mark = config.data, hashlib.sha256()
    kept = prepared_folder(config)
    names = sorted(os.listdir(kept)) if kept.is_dir() else []
    mark.update(json.dumps([str(kept), names]).encode())
    for place in filter(None, (data.root, data.csv, data.landmarks)):
        top = os.path.expanduser(place)
        below = [os.path.join(d, f) for d, _, files in os.walk(top) for f in files]
        for path in sorted([top, *below]):
            with contextlib.suppress(OSError):  # named when it is read
                known = os.stat(path)
                mark.update(f"{path} {known.st_size} {known.st_mtime_ns}".encode())
    return mark.hexdigest()


def check_data(config: ConfigDict) -> None:
    """ValueError where there is no such dataset, or a setting makes no sense."""
    if config.data.name not in DATASETS:
        raise ValueError(
            f"data.name is {config.data.name!r}; this version has "
            f"{', '.join(DATASETS)}. Use --config=configs/folder.py for your own "
            "images."
        )
    check_settings(config)


def check_critical(config: ConfigDict, ranks: Sequence[str]) -> None:
    """ValueError where data.critical names boundaries that the ranks do not have."""
    boundaries = metrics.boundary_names(ranks)
    unknown = [b for b in config.data.critical if b not in boundaries]
    if unknown:
        raise ValueError(
            f"data.critical names {', '.join(unknown)}; the boundaries of this dataset "
            f"are {', '.join(boundaries)}."
        )


def augmentation(config: ConfigDict) -> augment.Augment:
    """The configured strengths."""
    return augment.Augment(**config.augment.to_dict())


def permuted(dataset: Dataset, number: int) -> Dataset:
    """The dataset with its training labels permuted, as `number` says; 0: not."""
    if not number:
        return dataset
    train = dataset.splits["train"]
    labels = np.random.default_rng(number).permutation(train.labels)
    return dataset._replace(
        splits=dataset.splits | {"train": train.with_labels(labels)}
    )


def load(config: ConfigDict) -> Dataset:
    """The dataset as it comes."""
    check_data(config)
    return _load(config)


def _load(config: ConfigDict) -> Dataset:
    data = config.data
    return datasets.load(
        data.name,
        data.to_dict() | {"size": prepared_size(config)},
        prepared=prepared_folder(config),
        say=lambda text: console.console.print(f"  {text}", soft_wrap=True),
        track=console.track,
    )


def prepared_folder(config: ConfigDict) -> pathlib.Path:
    """Where prepared images are kept."""
    given = config.data.prepared
    folder = pathlib.Path(given) if given else environment.cache_folder() / "prepared"
    return folder.expanduser().absolute()


def prepared_size(config: ConfigDict) -> tuple[int, int]:
    """Height and width of prepared images: data.size, and room for the random crop."""
    height, width = config.data.size
    return images.uncropped((height, width), config.augment.random_crop)


def network_input(config: ConfigDict) -> NetworkInput:
    """How an image becomes what the network sees in evaluation."""
    data = config.data
    height, width = prepared_size(config)
    return NetworkInput(
        size=(height, width),
        channels=data.channels,
        crop=tuple(data.crop) if data.crop else None,
        equalize=data.equalize,
        random_crop=config.augment.random_crop,
        max_pixels=data.max_pixels,
        max_bytes=data.max_file_mib * files.MEBIBYTE,
    )


def prepare(dataset: Dataset, config: ConfigDict) -> Dataset:
    """The dataset with every image cropped, equalised and resized as configured."""
    how, cache_bytes = network_input(config), int(config.data.cache_gib * 2**30)
    splits: dict[str, Source] = {
        name: Prepared(source, how, cache_bytes=cache_bytes)
        for name, source in dataset.splits.items()
    }
    return dataset._replace(splits=splits)


def describe(dataset: Dataset, trunk_mark: str) -> dict[str, Any]:
    """What a run keeps of its dataset: names, sizes, and a fingerprint of all items.

    `sha256` is of names and labels; `content` has the digest of every file by name, and
    is empty for drawn images. `trunk_mark` is that of the frozen parts whose output the
    items are, or "".
    """
    mark = hashlib.sha256()
    content = {}
    for name, source in dataset.splits.items():
        mark.update(json.dumps([name, list(source.ids)]).encode())
        mark.update(np.asarray(source.labels, np.int32).tobytes())
        found = source.contents() or ()
        content[name] = {
            item: one[:DIGITS] for item, one in zip(source.ids, found, strict=False)
        }
    return {
        "ranks": list(dataset.ranks),
        "images": {name: len(source) for name, source in dataset.splits.items()},
        "notes": dataset.notes,
        "details": dataset.details,
        "sha256": mark.hexdigest(),
        "content": {name: known for name, known in content.items() if known},
        "trunk": trunk_mark,
    }


def canonical(config: ConfigDict, *sections: str, **changes: Mapping[str, Any]) -> str:
    """Some sections of a configuration as text, equal where all settings are.

    `changes` are settings by section that take the place of the configuration's own.
    """
    plain = {name: config.to_dict()[name] for name in sections}
    for name, settings in changes.items():
        plain[name] = plain[name] | settings
    return json.dumps(plain, sort_keys=True)


def from_canonical(text: str) -> ConfigDict:
    """The sections again."""
    return ConfigDict(_with_tuples(json.loads(text)))


def _with_tuples(value: Any) -> Any:
    """JSON's lists as the tuples that configurations have."""
    if isinstance(value, dict):
        return {key: _with_tuples(below) for key, below in value.items()}
    return tuple(map(_with_tuples, value)) if isinstance(value, list) else value
