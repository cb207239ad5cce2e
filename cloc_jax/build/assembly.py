"""From a configuration to the parts of a run: dataset, method and model.

Every setting is checked here, before anything is compiled.
"""

import copy
import hashlib
import json
import pathlib
from typing import Any, NamedTuple

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax import losses, methods
from cloc_jax.build import encoder, kept_features
from cloc_jax.build.encoder import resolve as resolve
from cloc_jax.data import augment, datasets, pipeline
from cloc_jax.data.datasets import DATASETS, Dataset
from cloc_jax.data.samplers import BatchPlan
from cloc_jax.runtime import console, environment, sharding
from cloc_jax.runtime.run_folder import RunFolder, write_json
from cloc_jax.scoring import metrics
from cloc_jax.training import optimizer

CROSSOVERS = "crossovers.json"


class Parts(NamedTuple):
    """What a job works with."""

    dataset: Dataset
    method: methods.Method
    create: encoder.Creator  # the model as it starts
    mesh: Mesh
    critical: tuple[str, ...]
    draw: pipeline.Draw  # views of the training items
    trunk: kept_features.Trunk | None  # frozen parts the dataset went through


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
    encoder.check(config)
    dataset = dataset or build_dataset(config)
    boundaries = metrics.boundary_names(dataset.ranks)
    unknown = [b for b in config.data.critical if b not in boundaries]
    if unknown:
        raise ValueError(
            f"data.critical names {', '.join(unknown)}; the boundaries of this dataset "
            f"are {', '.join(boundaries)}."
        )
    mesh = sharding.make_mesh(config.mesh.devices)
    method = build_method(config, len(dataset.ranks), mesh)
    for name in ("eval_batch_size", "log_steps", "checkpoint_steps"):
        if config.train[name] < 1:
            raise ValueError(f"train.{name} is {config.train[name]}; use 1 or more.")
    for index, stage in enumerate(method.stages):
        plan(config, dataset, stage, index)
        build_optimizer(config, stage)
    train = dataset.splits["train"]
    create = encoder.Creator(config, method)
    nnx.eval_shape(create.random)  # the encoder's own checks, nothing is computed
    draw, trunk = pipeline.augmented(train, encoder.augmentation(config)), None
    if encoder.entrance(config):
        trunk = encoder.build_trunk(config, mesh, folder)
        dataset, draw = encoder.derive(config, dataset, trunk)
    critical = tuple(config.data.critical)
    return Parts(dataset, method, create, mesh, critical, draw, trunk)


def build_dataset(config: ConfigDict) -> Dataset:
    """The prepared dataset of a configuration, whose encoder does not matter."""
    augment.check(encoder.augmentation(config))
    for field, seed in (("seed", config.seed), ("data.seed", config.data.seed)):
        if not 0 <= seed < 2**32:
            raise ValueError(f"{field} is {seed}; use a number from 0 to 2**32 - 1.")
    dataset = prepare(load(config), config)
    dataset.splits["train"][0]  # a crop larger than the images shows here
    return permuted(dataset, config.data.permute)


def permuted(dataset: Dataset, number: int) -> Dataset:
    """The dataset with its training labels dealt out anew, as `number` says; 0: not."""
    if number < 0:
        raise ValueError(f"data.permute is {number}; use 0 or more.")
    if not number:
        return dataset
    train: Any = copy.copy(dataset.splits["train"])
    train.labels = np.random.default_rng(number).permutation(train.labels)
    return dataset._replace(splits=dataset.splits | {"train": train})


def with_method(parts: Parts, config: ConfigDict) -> Parts:
    """The parts of a configuration that differs in its method's settings or seed.

    Its training labels may be permuted, those of `parts` are as they came.
    """
    method = build_method(config, len(parts.dataset.ranks), parts.mesh)
    return parts._replace(
        dataset=permuted(parts.dataset, config.data.permute),
        method=method,
        create=encoder.Creator(config, method),
    )


def load(config: ConfigDict) -> Dataset:
    """The dataset as it comes."""
    data = config.data
    if data.name not in DATASETS:
        raise ValueError(
            f"data.name is {data.name!r}; this version has {', '.join(DATASETS)}. Use "
            "--config=configs/folder.py for your own images."
        )
    if len(data.size) != 2 or min(data.size) < 16:
        raise ValueError(
            f"data.size is {tuple(data.size)}; it is (height, width), each at least 16."
        )
    if data.channels not in (1, 3):
        raise ValueError(
            f"data.channels is {data.channels}; use 1 for grey or 3 for colour."
        )
    if data.crop and (len(data.crop) != 2 or min(data.crop) < 1):
        raise ValueError(
            f"data.crop is {tuple(data.crop)}; it is (height, width), or None."
        )
    if data.threads < 1:
        raise ValueError(f"data.threads is {data.threads}; use 1 or more.")
    if data.max_pixels < 1:
        raise ValueError(f"data.max_pixels is {data.max_pixels}; use 1 or more.")
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
    return augment.uncropped((height, width), config.augment.random_crop)


def prepare(dataset: Dataset, config: ConfigDict) -> Dataset:
    """The dataset with every image cropped, equalised and resized as configured."""
    data = config.data
    splits: dict[str, pipeline.Source] = {
        name: pipeline.Prepared(
            source,
            size=prepared_size(config),
            crop=tuple(data.crop) if data.crop else None,
            equalize=data.equalize,
            channels=data.channels,
            cache_bytes=int(data.cache_gib * 2**30),
            random_crop=config.augment.random_crop,
        )
        for name, source in dataset.splits.items()
    }
    return dataset._replace(splits=splits)


def describe(parts: Parts) -> dict[str, Any]:
    """What a run keeps of its dataset: names, sizes, and a mark of every item."""
    dataset = parts.dataset
    mark = hashlib.sha256()
    for name, source in dataset.splits.items():
        mark.update(json.dumps([name, list(source.ids)]).encode())
        mark.update(np.asarray(source.labels, np.int32).tobytes())
    return {
        "ranks": list(dataset.ranks),
        "images": {name: len(source) for name, source in dataset.splits.items()},
        "notes": dataset.notes,
        "details": dataset.details,
        "sha256": mark.hexdigest(),
        "trunk": parts.trunk.mark if parts.trunk else "",
    }


def build_method(config: ConfigDict, num_ranks: int, mesh: Mesh) -> methods.Method:
    """The configured method for that many ranks, its losses spread over a mesh."""
    train = config.train
    settings = config.method.to_dict()
    settings["algorithm"] = algorithm(config)
    method = methods.build(
        settings.pop("name"),
        num_ranks=num_ranks,
        mesh=mesh,
        max_epochs=train.max_epochs,
        patience=train.patience,
        monitor=train.monitor,
        sampling=train.sampling,
        stop_accuracy=train.stop_accuracy,
        phases=train.phases,
        phase_two_init=train.phase_two_init,
        **settings,
    )
    return method._replace(
        stages=tuple(_with_encoder_settings(s, config) for s in method.stages)
    )


def _with_encoder_settings(stage: methods.Stage, config: ConfigDict) -> methods.Stage:
    """The stage with frozen groups and the groups' own optimizers as configured."""
    own, frozen = config.optimizer, encoder.frozen_groups(config)
    trains = {g: dict(s) for g, s in stage.trains.items() if g not in frozen}
    for group in trains:
        settings = {
            "learning_rate": own.encoder_learning_rate
            if group in methods.ENCODER
            else own.margin_learning_rate
            if group == methods.MARGINS
            else None,
            "name": own.margins if group == methods.MARGINS else None,
        }
        trains[group] = {k: v for k, v in settings.items() if v} | trains[group]
    return stage._replace(trains=trains)


def algorithm(config: ConfigDict) -> str:
    """How the loss is computed; what "auto" means here."""
    asked = config.method.algorithm
    if asked == "pallas" and jax.default_backend() != "gpu":
        raise ValueError(
            "method.algorithm is 'pallas', which is a kernel for GPUs, and there is "
            "none here; use auto."
        )
    return choose_algorithm(config.train.batch_size) if asked == "auto" else asked


def choose_algorithm(batch_size: int) -> str:
    """How to compute the loss here: by what was measured on this backend."""
    recorded = read_crossovers(environment.cache_folder())
    backend = jax.default_backend()
    return losses.choose_algorithm(batch_size, backend, losses.DENSE_UP_TO | recorded)


def read_crossovers(folder: pathlib.Path) -> dict[str, int]:
    """Largest batch for the dense form by backend, as `bench --calibrate` wrote it."""
    path = folder / CROSSOVERS
    return json.loads(path.read_text()) if path.exists() else {}


def record_crossover(folder: pathlib.Path, backend: str, dense_up_to: int) -> None:
    """Adds a backend to what `read_crossovers` reads."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / CROSSOVERS, read_crossovers(folder) | {backend: dense_up_to})


def plan(
    config: ConfigDict, dataset: Dataset, stage: methods.Stage, index: int
) -> BatchPlan:
    """The training batches of a stage."""
    return BatchPlan(
        dataset.splits["train"].labels,
        config.train.batch_size,
        mode=stage.sampling,
        seed=(config.seed, index),
        ranks=dataset.ranks,
    )


def build_optimizer(config: ConfigDict, stage: methods.Stage):
    """The optimizer of a stage."""
    settings = config.optimizer.to_dict()
    for name in ("encoder_learning_rate", "margins", "margin_learning_rate"):
        settings.pop(name)  # they are in the stage's groups already
    return optimizer.build(stage.trains, methods.group_of, **settings)
