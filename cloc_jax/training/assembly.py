"""From a configuration to the parts of a run: dataset, method and model.

Every setting is checked here, before anything is compiled.
"""

import contextlib
import functools
import hashlib
import json
import os
import pathlib
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax import losses, methods
from cloc_jax.config import check_choice, check_settings, frozen_part
from cloc_jax.data import datasets, samplers, view_recipes
from cloc_jax.data.datasets import DATASETS, Dataset
from cloc_jax.data.images import NetworkInput
from cloc_jax.data.source import Draw, KeptFeatures, Prepared, Source, augmented
from cloc_jax.methods.interface import check_weights
from cloc_jax.runtime import environment, sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics
from cloc_jax.training import encoder, fit, kept_features, optimizer
from cloc_jax.training.encoder import augmentation

DIGITS = 16  # of a digest that a run keeps: 64 bits


class Parts(NamedTuple):
    """What a job works with."""

    dataset: Dataset
    method: methods.Method
    create: encoder.Creator  # the model as it starts
    mesh: Mesh
    samplers: Sequence[samplers.Sampler]  # the training batches of each stage
    trunk: kept_features.Trunk | None  # frozen parts the dataset went through

    def describe(self) -> dict[str, Any]:
        """What a run keeps of its dataset: names, sizes, a fingerprint of all items.

        `sha256` is of names, labels and given weights; `content` has the digest of
        every file by name, and is empty for drawn images. `trunk` is the mark of the
        frozen parts whose output the items are, or "".
        """
        dataset, mark = self.dataset, hashlib.sha256()
        content: dict[str, dict[str, str]] = {}
        for name, source in dataset.splits.items():
            mark.update(json.dumps([name, list(source.ids)]).encode())
            mark.update(np.asarray(source.labels, np.int32).tobytes())
            if hashes := source.contents:
                digests = zip(source.ids, hashes, strict=True)
                content[name] = {item: one[:DIGITS] for item, one in digests}
        if weights := [(i.id, i.weight) for i in dataset.items if i.weight is not None]:
            mark.update(json.dumps(weights).encode())
        return {
            "ranks": list(dataset.ranks),
            "images": {name: len(source) for name, source in dataset.splits.items()},
            "notes": dataset.notes,
            "details": dataset.details,
            "sha256": mark.hexdigest(),
            "content": content,
            "trunk": self.trunk.mark if self.trunk else "",
        }


def build(
    config: ConfigDict,
    folder: RunFolder | None = None,
    *,
    dataset: Dataset | None = None,
) -> Parts:
    """Dataset, method and model of a configuration, or ValueError saying what to do.

    `folder` is that of a run which has begun: its frozen parts are used again.
    `dataset` is what `build_dataset` gave, where it was called already.
    """
    parts = check(config, dataset or build_dataset(config))
    if not encoder.entrance(config):
        return parts
    trunk = encoder.build_trunk(config, parts.mesh, folder)
    derived = _derived(config, parts.dataset, trunk)
    return parts._replace(dataset=derived, trunk=trunk)


# What the last runs of this process were trained on.
_DERIVED: dict[tuple, Dataset] = {}


def _derived(
    config: ConfigDict, dataset: Dataset, trunk: kept_features.Trunk
) -> Dataset:
    """The dataset of what frozen parts make of the images."""
    part = frozen_part(config, "data", "augment", "encoder", data={"permute": 0})
    key = (part, file_state(config), environment.cache_folder(), trunk.mark)
    if key not in _DERIVED:
        _DERIVED.clear()  # only the last, since they may take much memory
        _DERIVED[key] = encoder.derive(config, dataset, trunk)
    train = dataset.splits["train"]  # whose labels may be permuted
    return _with_train(_DERIVED[key], train.labels, train.weights)


def check(config: ConfigDict, dataset: Dataset) -> Parts:
    """The parts before frozen parts are applied; ValueError for every bad setting.

    Nothing is computed.
    """
    check_critical(config, dataset.ranks)
    mesh = sharding.make_mesh(config.mesh.devices, config.mesh.shape)
    method = build_method(config, len(dataset.ranks), mesh)
    labels, own = dataset.splits["train"].labels, dataset.splits["train"].weights
    weights = item_weights(config, method, labels, len(dataset.ranks), own)
    dataset = _with_train(dataset, labels, weights)
    settings = fit_settings(config)
    made = fit.samplers_of(method, labels, settings, dataset.ranks)
    for stage, batches in zip(method.stages, made, strict=True):
        optimizer.of_stage(stage, settings.optimizer, batches.steps_per_epoch)
        check_views(config, stage)
    create = encoder.Creator(config, method, mesh.size)
    nnx.eval_shape(create.random)  # the encoder's own checks
    return Parts(dataset, method, create, mesh, made, None)


def item_weights(
    config: ConfigDict,
    method: methods.Method,
    labels: np.ndarray,
    num_ranks: int,
    own: np.ndarray | None = None,
) -> np.ndarray | None:
    """The weight of each training item: its `own`, times that of its rank.

    None where all count alike.

    "balanced" gives all ranks that occur the same sum, and the weights a mean of 1.
    """
    if own is not None:
        check_takes_weights(config, method, "a weight for each image")
        if not own.sum():
            raise ValueError("all weights are 0, so there would be nothing to learn.")
    given = config.train.rank_weights
    if not given:
        return own
    check_takes_weights(config, method, "train.rank_weights")
    if given == "balanced":
        counts = np.bincount(labels, minlength=num_ranks)
        by_rank = len(labels) / (np.count_nonzero(counts) * np.maximum(counts, 1))
    else:
        check_weights("rank", given, num_ranks)
        by_rank = np.asarray(given)
    weights = by_rank[labels] if own is None else by_rank[labels] * own
    return weights.astype(np.float32)


def check_takes_weights(config: ConfigDict, method: methods.Method, given: str) -> None:
    """ValueError where weights of images are given and the method cannot use them."""
    if not method.takes_weights:
        raise ValueError(
            f"{given} is set, but method {config.method.name} has no mean over images "
            "in its loss that could be weighted; leave it out, use "
            "train.sampling=balanced, or another method."
        )


def fit_settings(config: ConfigDict) -> fit.Settings:
    """The settings that `fit` takes."""
    optimizer_settings = config.optimizer.to_dict()
    optimizer_settings.pop("encoder_learning_rate")  # it is in the stages' groups
    return fit.Settings(
        seed=config.get("seed", 0),
        batch_size=config.train.batch_size,
        sampling=config.train.sampling,
        optimizer=optimizer_settings,
        eval_batch_size=config.train.eval_batch_size,
        threads=config.data.threads,
    )


def build_method(config: ConfigDict, num_ranks: int, mesh: Mesh) -> methods.Method:
    """The configured method for that many ranks, its losses spread over a mesh.

    Only `init` and `readouts` know CLOC's margins, numbers in the model's state. All
    else is the same functions: runs which differ in them share what is compiled.
    """
    sections = ("method", "head", "encoder", "train", "optimizer")
    make = methods.METHODS.get(config.method.name)
    part = frozen_part(config, *sections)
    method = _method(part, make, num_ranks, mesh)
    if config.method.name != "cloc":
        return method
    common = config.method.cloc.to_dict() | {"margins": "learn", "rho": 0.0}
    part = frozen_part(config, *sections, method={"cloc": common})
    same = _method(part, make, num_ranks, mesh)
    return same._replace(init=method.init, readouts=method.readouts)


@functools.lru_cache(maxsize=32)
def _method(
    config: ConfigDict, make: Callable | None, num_ranks: int, mesh: Mesh
) -> methods.Method:
    name, train = config.method.name, config.train
    settings = config.method[name].to_dict() if name in methods.METHODS else {}
    if "algorithm" in settings:
        settings["algorithm"] = loss_form(config, mesh)
    method = methods.build(
        name,
        settings,
        methods.Task(
            num_ranks,
            methods.Limits(train.max_epochs, train.patience, train.monitor),
            methods.HeadOptions(**config.head.to_dict()),
            mesh,
            train.batch_size,
            config.encoder.frozen,
            train.boundary_weights,
        ),
    )
    return method._replace(
        stages=tuple(_with_encoder_settings(s, config) for s in method.stages)
    )


def _with_encoder_settings(stage: methods.Stage, config: ConfigDict) -> methods.Stage:
    """The stage without frozen groups, and with the encoder's own rate."""
    rate, frozen = config.optimizer.encoder_learning_rate, encoder.frozen_groups(config)
    trains = {g: dict(s) for g, s in stage.trains.items() if g not in frozen}
    if not trains:
        raise ValueError(
            f"stage {stage.name} of {config.method.name} trains the encoder only, "
            "which is frozen here, so there would be nothing to train; leave "
            "encoder.frozen out, or use another method."
        )
    for group in trains if rate is not None else ():
        if group in methods.ENCODER:
            trains[group] = {"learning_rate": rate} | trains[group]
    return stage._replace(trains=trains)


def check_views(config: ConfigDict, stage: methods.Stage) -> None:
    """ValueError where a stage's views are too small for the encoder, or are not among
    kept features."""
    is_for_encoder = not stage.is_scored and set(methods.ENCODER) & set(stage.trains)
    if config.encoder.frozen and is_for_encoder:
        raise ValueError(
            f"stage {stage.name} of {config.method.name} trains the encoder, which is "
            "frozen; it needs a trainable encoder: leave out encoder.frozen."
        )
    least = encoder.outline(config).smallest
    for view in stage.views:
        height, width = view.size or config.data.size
        if min(height, width) < least:
            name = config.method.name
            # Of all methods only dino has crops of a size of their own.
            setting = f"method.{name}.local_size" if view.size else "data.size"
            raise ValueError(
                f"stage {stage.name} of {name} has images of {height}x{width}, but "
                f"{config.encoder.name} needs at least {least}x{least}; set {setting}."
            )
        if view.augment in ("default", "none") and view.size is None:
            continue
        kinds = ("default", *view_recipes.RECIPES)
        check_choice(f"method.{config.method.name}.augment", view.augment, kinds)
        if encoder.entrance(config):
            raise ValueError(
                f"stage {stage.name} of {config.method.name} augments images in its "
                "own way, but the encoder's outputs are kept and images are not read "
                "again; it needs a trainable encoder: leave out encoder.frozen and "
                "encoder.trainable_from."
            )


def draws(config: ConfigDict, dataset: Dataset, stage: methods.Stage) -> list[Draw]:
    """How a stage's views of a training item are drawn, one function per view."""
    train = dataset.splits["train"]

    def draw(view: methods.View) -> Draw:
        if view.augment == "none":
            return lambda item, rng: train[item]
        if isinstance(train, KeptFeatures):
            return train.draw
        if view.augment == "default":
            return augmented(train, augmentation(config))
        height, width = view.size or tuple(config.data.size)
        recipe = view_recipes.RECIPES[view.augment]
        return lambda item, rng: view_recipes.apply(
            recipe, train.whole(item), (height, width), rng
        )

    return [draw(view) for view in stage.views]


def loss_form(config: ConfigDict, mesh: Mesh) -> str:
    """How CLOC's loss is computed; what "auto" means on these devices."""
    asked = config.method.cloc.algorithm
    if asked != "auto":
        return asked
    batch = config.train.batch_size
    platform = sharding.platform(mesh)
    return losses.choose_algorithm(batch, platform, anchors=-(-batch // mesh.size))


def build_dataset(config: ConfigDict) -> Dataset:
    """The prepared dataset of a configuration, whatever its encoder.

    Read once by a process, unless settings or files have changed since.
    """
    check_settings(config)
    part = frozen_part(config, "data", "augment", data={"permute": 0})
    state = file_state(config)
    dataset = built_dataset(part, state)
    if not os.path.exists(dataset.details.get("prepared", os.curdir)):
        built_dataset.cache_clear()  # somebody has emptied the folder since
        dataset = built_dataset(part, state)
    if not config.data.permute:
        return dataset
    train = dataset.splits["train"]
    labels = np.random.default_rng(config.data.permute).permutation(train.labels)
    return _with_train(dataset, labels, train.weights)


def _with_train(
    dataset: Dataset, labels: np.ndarray, weights: np.ndarray | None
) -> Dataset:
    """The dataset with other labels and weights of its training images."""
    train = dataset.splits["train"].replaced(labels=labels, weights=weights)
    return dataset._replace(splits=dataset.splits | {"train": train})


@functools.lru_cache(maxsize=2)
def built_dataset(config: ConfigDict, files: str) -> Dataset:
    """The dataset of frozen settings, and of files in that state."""
    dataset = prepare(load(config), config)
    dataset.splits["train"][0]  # a crop larger than the images shows here
    return dataset


def file_state(config: ConfigDict) -> str:
    """A fingerprint of the files that a dataset is read from, without reading them."""
    data, mark = config.data, hashlib.sha256()
    mark.update(os.fsencode(prepared_folder(config)))
    for place in filter(None, (data.root, data.csv)):
        top = os.path.expanduser(place)
        below = [os.path.join(d, f) for d, _, files in os.walk(top) for f in files]
        for path in sorted([top, *below]):
            with contextlib.suppress(OSError):  # named when it is read
                known = os.stat(path)
                times = f"{known.st_mtime_ns} {known.st_ctime_ns}"
                mark.update(os.fsencode(f"{path} {known.st_size} {times}"))
    return mark.hexdigest()


def check_critical(config: ConfigDict, ranks: Sequence[str]) -> None:
    """ValueError where data.critical names boundaries that the ranks do not have."""
    boundaries = metrics.boundary_names(ranks)
    unknown = [b for b in config.data.critical if b not in boundaries]
    if unknown:
        raise ValueError(
            f"data.critical names {', '.join(unknown)}; the boundaries of this dataset "
            f"are {', '.join(boundaries)}."
        )


def load(config: ConfigDict) -> Dataset:
    """The dataset as it comes, or ValueError where there is none of that name."""
    data = config.data
    if data.name not in DATASETS:
        raise ValueError(
            f"data.name is {data.name!r}; this version has {', '.join(DATASETS)}. Use "
            "--config=configs/folder.py for your own images."
        )
    return datasets.load(
        data.name,
        data.to_dict() | {"size": network_input(config).size},
        prepared=prepared_folder(config),
    )


def prepared_folder(config: ConfigDict) -> pathlib.Path:
    """Where prepared images are kept."""
    given = config.data.prepared
    folder = pathlib.Path(given) if given else environment.cache_folder() / "prepared"
    return folder.expanduser().absolute()


def network_input(config: ConfigDict) -> NetworkInput:
    """How an image becomes what the network sees in evaluation."""
    return datasets.network_input(config.data.to_dict(), config.augment.random_crop)


def prepare(dataset: Dataset, config: ConfigDict) -> Dataset:
    """The dataset with every image cropped, equalised and resized as configured."""
    how, cache_bytes = network_input(config), int(config.data.cache_gib * 2**30)
    splits: dict[str, Source] = {
        name: Prepared(source, how, cache_bytes=cache_bytes)
        for name, source in dataset.splits.items()
    }
    return dataset._replace(splits=splits)
