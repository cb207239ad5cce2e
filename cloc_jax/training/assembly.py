"""From a configuration to the parts of a run: dataset, method and model.

Every setting is checked here, before anything is compiled.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import optax
from flax import nnx
from jax.sharding import Mesh
from ml_collections import ConfigDict

from cloc_jax import losses, methods
from cloc_jax.data import samplers, view_recipes
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.source import Draw, KeptFeatures, augmented
from cloc_jax.runtime import sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import (
    encoder,
    fit,
    kept_features,
    optimizer,
    train_step,
)
from cloc_jax.training.dataset import (
    augmentation,
    build_dataset,
    built_dataset,
    canonical,
    check_critical,
    describe,
    from_canonical,
)


class Parts(NamedTuple):
    """What a job works with."""

    dataset: Dataset
    method: methods.Method
    create: encoder.Creator  # the model as it starts
    mesh: Mesh
    samplers: Sequence[samplers.Sampler]  # the training batches of each stage
    critical: tuple[str, ...]
    trunk: kept_features.Trunk | None  # frozen parts the dataset went through

    def describe(self) -> dict[str, Any]:
        """What a run keeps of its dataset."""
        return describe(self.dataset, self.trunk.mark if self.trunk else "")


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
    derived, trunk = encoder.kept(config, parts.dataset, parts.mesh, folder)
    return parts._replace(dataset=derived, trunk=trunk)


def check(config: ConfigDict, dataset: Dataset) -> Parts:
    """The parts before frozen parts are applied; ValueError for every bad setting.

    Nothing is computed.
    """
    encoder.check(config)
    check_critical(config, dataset.ranks)
    mesh = sharding.make_mesh(config.mesh.devices, config.mesh.shape)
    method = build_method(config, len(dataset.ranks), mesh)
    labels = dataset.splits["train"].labels
    made = fit.samplers_of(method, labels, fit_settings(config), dataset.ranks)
    for stage, batches in zip(method.stages, made, strict=True):
        optimizer_of(config, stage, batches.steps_per_epoch)
        check_views(config, stage)
    create = encoder.Creator(config, method, mesh.size)
    nnx.eval_shape(create.random)  # the encoder's own checks
    critical = tuple(config.data.critical)
    return Parts(dataset, method, create, mesh, made, critical, None)


def forget() -> None:
    """Frees what this process keeps for further runs: data, features, programs."""
    _method.cache_clear()
    built_dataset.cache_clear()
    encoder.forget()
    train_step.PROGRAMS.clear()


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
        shard_params=config.mesh.shard_params,
    )


def build_method(config: ConfigDict, num_ranks: int, mesh: Mesh) -> methods.Method:
    """The configured method for that many ranks, its losses spread over a mesh.

    Margins of CLOC are numbers in the model's state, and only `init` and `readouts`
    know them. All else is the very same functions for all margins, so that runs which
    differ in them share what is compiled.
    """
    sections = ("method", "head", "encoder", "train", "optimizer")
    make = methods.METHODS.get(config.method.name)
    text = canonical(config, *sections)
    method = _method(text, make, num_ranks, mesh)
    if config.method.name != "cloc":
        return method
    common = config.method.cloc.to_dict() | {"margins": "learn", "rho": 0.0}
    text = canonical(config, *sections, method={"cloc": common})
    same = _method(text, make, num_ranks, mesh)
    return same._replace(init=method.init, readouts=method.readouts)


@functools.lru_cache(maxsize=32)
def _method(
    text: str, make: Callable | None, num_ranks: int, mesh: Mesh
) -> methods.Method:
    config = from_canonical(text)
    name, train = config.method.name, config.train
    settings = config.method[name].to_dict() if name in methods.METHODS else {}
    if "algorithm" in settings:
        settings["algorithm"] = loss_form(config, mesh)
    method = methods.build(
        name,
        settings,
        {
            "num_ranks": num_ranks,
            "mesh": mesh,
            "batch_size": train.batch_size,
            "is_encoder_frozen": config.encoder.frozen,
            "head": methods.HeadOptions(**config.head.to_dict()),
            "limits": methods.Limits(train.max_epochs, train.patience, train.monitor),
        },
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
        view_recipes.check(view.augment)
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
    platform = sharding.platform(mesh)
    asked = config.method.cloc.algorithm
    if asked == "pallas" and platform != "gpu":
        raise ValueError(
            "method.cloc.algorithm is 'pallas', which is a kernel for GPUs, and there "
            "is none here; use auto."
        )
    if asked != "auto":
        return asked
    batch = config.train.batch_size
    return losses.choose_algorithm(batch, platform, anchors=-(-batch // mesh.size))


def optimizer_of(
    config: ConfigDict, stage: methods.Stage, steps_per_epoch: int
) -> optax.GradientTransformation:
    """The optimizer of a stage with epochs of so many steps."""
    return optimizer.build(
        stage.trains,
        methods.group_of,
        steps_per_epoch=steps_per_epoch,
        epochs=stage.stop.max_epochs,
        **(dict(fit_settings(config).optimizer) | dict(stage.optimizer)),
    )
