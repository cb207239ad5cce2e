"""From a configuration to an encoder: its weights, what of it is frozen, and the
dataset of what the frozen parts make of the images."""

import copy
import functools
import os
import pathlib
import secrets
import shutil
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array
from ml_collections import ConfigDict

from cloc_jax import encoders, methods
from cloc_jax.config import frozen_part, with_absolute_places
from cloc_jax.data.augment import Augment
from cloc_jax.data.datasets import Dataset
from cloc_jax.encoders import layers
from cloc_jax.encoders.weights import filling, weight_files
from cloc_jax.runtime import checkpoint, environment, processes, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import kept_features

FEATURES = "features"  # the entrance behind the last part of an encoder


def check(config: ConfigDict) -> None:
    """ValueError where there is no such encoder, or no such part of it."""
    encoder, parts = config.encoder, outline(config).parts
    if encoder.trainable_from and encoder.trainable_from not in parts[1:]:
        raise ValueError(
            f"encoder.trainable_from is {encoder.trainable_from!r}; of {encoder.name} "
            f"it can be {', '.join(parts[1:])}."
        )


def resolve(config: ConfigDict) -> ConfigDict:
    """The configuration as a run keeps it: with what the weights decide filled in,
    and folders of the data as absolute paths."""
    check(config)
    given = weights_of(config)
    config = with_absolute_places(copy.deepcopy(config))
    for field, value in (filling.options(given) if given else {}).items():
        if config.encoder[field] not in ("", 0.0, value):
            raise ValueError(
                f"encoder.{field} is {config.encoder[field]!r}, but the weights "
                f"{config.encoder.weights} were made with {value!r}; leave it empty."
            )
        config.encoder[field] = value
    return config


def weights_of(config: ConfigDict) -> filling.Weights | None:
    """The weights that the configuration names; None to start at random."""
    name, source = config.encoder.name, config.encoder.weights
    if source == "random" or not source and name == encoders.SMALL:
        return None
    if not source:
        raise ValueError(
            f"encoder.weights is empty, and {name} is meant to start from ImageNet "
            f"weights. {weight_files.MISSING}"
        )
    return _load_weights(source, architecture=name)


# Read once, though resolving, training and extraction all need them.
_load_weights = functools.lru_cache(maxsize=1)(filling.load)


def augmentation(config: ConfigDict) -> Augment:
    """The configured strengths."""
    return Augment(**config.augment.to_dict())


def entrance(config: ConfigDict) -> str:
    """The part of the encoder that the dataset's items enter.

    "" if they are images, "features" if they are its features already: the items are
    kept outputs of its frozen parts, unless augmentation makes new images each time.
    """
    if config.encoder.frozen:
        return FEATURES
    is_kept = not augmentation(config).is_on or config.encoder.views > 1
    return config.encoder.trainable_from if is_kept else ""


def kept_dtype(config: ConfigDict) -> str:
    """The type of what the frozen parts make of an image."""
    return "float32" if config.encoder.frozen else config.encoder.kept_dtype


def frozen_groups(config: ConfigDict) -> tuple[str, ...]:
    """Parameter groups of the encoder that no stage trains."""
    parts = outline(config).parts
    if config.encoder.frozen:
        return parts
    first = config.encoder.trainable_from
    return parts[: parts.index(first)] if first else ()


def outline(config: ConfigDict) -> encoders.Backbone:
    """The configured encoder without its arrays: its parts, width and so on."""
    return _outline(config.encoder.name, config.encoder.pooling, config.encoder.widths)


@functools.lru_cache(maxsize=8)  # tracing a deep network takes a second
def _outline(name: str, pooling: str, widths: tuple[int, ...]) -> encoders.Backbone:
    options: dict[str, Any] = {"pooling": pooling, "widths": widths}
    return nnx.eval_shape(
        lambda: encoders.Backbone(name, channels=3, rngs=nnx.Rngs(0), **options)
    )


class Creator:
    """Makes a model with its initial weights; call it.

    `devices` is how many share a batch in training.
    """

    def __init__(self, config: ConfigDict, method: methods.Method, devices: int = 1):
        self._config = config
        part = frozen_part(config, "encoder", "data", "augment", data={"permute": 0})
        self.random, self._compiled = _initializer(part, method.init, devices)

    def __call__(self) -> nnx.Module:
        """The model of the configuration's seed."""
        model: Any = self._compiled(np.uint32(self._config.seed))
        given = weights_of(self._config)
        first = entrance(self._config)
        if given and first != FEATURES:
            whole = filling.filled(lambda: build(self._config, nnx.Rngs(0)), given)
            if first:
                whole.keep_from(first)
            nnx.update(model.encoder, nnx.state(whole))
        return model


@functools.lru_cache(maxsize=32)
def _initializer(
    config: ConfigDict, init: Callable, devices: int
) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """A function of a seed that draws a model at random, and the same compiled."""

    def random(seed: int | np.uint32 | Array = 0) -> nnx.Module:
        rngs = nnx.Rngs(jax.random.key(seed))
        first = entrance(config)
        if first == FEATURES:
            whole = outline(config)
            identity = encoders.Identity(whole.features, is_signed=whole.is_signed)
            return init(identity, rngs)
        encoder = build(config, rngs)
        kind = config.encoder.batch_norm
        if kind != "global":
            layers.set_statistics(
                encoder,
                groups=devices if kind == "device" else 1,
                is_frozen=kind == "frozen",
            )
        if first:
            encoder.keep_from(first)
        return init(encoder, rngs)

    return random, compiled_model(random)


def compiled_model(make: Callable[..., nnx.Module]) -> Callable[..., Any]:
    """A function that makes a model, compiled as a whole but with little care.

    It runs once, so compiling it matters more than its speed: drawing each layer's
    weights is long code. The numbers are the same to the bit.
    """
    on_cpu = jax.default_backend() == "cpu"
    options: dict[str, Any] = {"xla_backend_optimization_level": 1} if on_cpu else {}

    def split(*given: Any) -> tuple[nnx.GraphDef, ModelState]:
        return checkpoint.split_model(make(*given))

    arrays = jax.jit(split, compiler_options=options)
    return lambda *given: checkpoint.merge_model(*arrays(*given))


def build(config: ConfigDict, rngs: nnx.Rngs) -> encoders.Backbone:
    """The configured encoder, with random weights."""
    names = ("widths", "pooling", "dtype", "stride", "epsilon", "preprocessing")
    options = {n: value for n in names if (value := config.encoder[n])}
    return encoders.Backbone(
        config.encoder.name, channels=config.data.channels, rngs=rngs, **options
    )


# Those of the last runs of this process.
_TRUNKS: dict[tuple, kept_features.Trunk] = {}


def build_trunk(
    config: ConfigDict, mesh: Mesh, folder: RunFolder | None
) -> kept_features.Trunk:
    """The frozen parts of the encoder: those of the run, or as the weights are."""
    place = folder.trunk() if folder else None
    if place and place.is_dir():
        known = [t for t in _TRUNKS.values() if (t.mark, t.mesh) == (place.name, mesh)]
        return known[0] if known else _trunk(config, mesh, place)
    is_drawn = config.encoder.weights in ("", "random")
    decides = frozen_part(config, "encoder", "data", "augment")
    key = (mesh, is_drawn and config.seed, decides)
    if key not in _TRUNKS:
        _TRUNKS.clear()
        _TRUNKS[key] = _trunk(config, mesh, None)
    return _TRUNKS[key]


def _trunk(
    config: ConfigDict, mesh: Mesh, place: pathlib.Path | None
) -> kept_features.Trunk:
    first = entrance(config)
    part = None if first == FEATURES else first

    def random() -> encoders.Backbone:
        return build(config, nnx.Rngs(config.seed))

    if place:
        graph, like = checkpoint.split_model(nnx.eval_shape(random))
        state = checkpoint.load_model(place, like, sharding.copied(mesh))
        encoder = checkpoint.merge_model(graph, state)
    else:
        given = weights_of(config)
        encoder = filling.filled(random, given) if given else compiled_model(random)()
    settings = config.encoder
    names = "name stride epsilon preprocessing dtype pooling widths"
    decides = {name: settings[name] for name in names.split()}
    return kept_features.Trunk(
        encoder, part, mesh, dtype=kept_dtype(config), settings=decides
    )


def keep_trunk(trunk: kept_features.Trunk | None, folder: RunFolder) -> None:
    """Writes the frozen parts beside the run that will need them to predict."""
    place = folder.trunk(trunk.mark) if trunk else None
    if not trunk or not place:
        return
    if not processes.largest(int(not checkpoint.has_model(place))):
        return
    # Workers of one sweep share it and may write it at once; the first one counts.
    # Processes of one run write it together, under a name that they agree on.
    number = processes.largest(secrets.randbelow(2**31))
    part = place.with_name(f"{place.name}.{number:08x}.part")
    checkpoint.save_model(part, kept_features.placed(trunk.state, trunk.mesh))
    try:
        if processes.is_first():
            os.rename(part, place)
    except OSError:
        shutil.rmtree(part)
        if not checkpoint.has_model(place):
            raise
    processes.wait("frozen parts are kept")


def derive(config: ConfigDict, dataset: Dataset, trunk: kept_features.Trunk) -> Dataset:
    """The dataset with the output of the frozen parts in place of the images."""
    data = config.data
    one = trunk.bytes_of_one((*data.size, data.channels))
    preparation = {n: data[n] for n in ("size", "crop", "equalize", "channels")}
    # It decides the clean view too: that is the centre.
    preparation["random_crop"] = config.augment.random_crop
    images = sum(map(len, dataset.splits.values()))
    views = (config.encoder.views - 1) * len(dataset.splits["train"]) + images
    if one * views > config.encoder.cache_gib * 2**30:
        raise ValueError(
            f"the outputs of the frozen parts for {images} images would take "
            f"{one * views / 2**30:.1f} GiB, more than encoder.cache_gib="
            f"{config.encoder.cache_gib:g}; raise it, use smaller images (data.size), "
            "fewer encoder.views, or freeze further parts."
        )
    splits = {
        name: kept_features.derive(
            source,
            trunk,
            environment.cache_folder() / "features",
            name=name,
            preparation=preparation,
            augment=augmentation(config),
            views=config.encoder.views if name == "train" else 1,
            threads=data.threads,
        )
        for name, source in dataset.splits.items()
    }
    notes = [*dataset.notes]
    first = entrance(config)
    what = "features" if first == FEATURES else f"what enters {first}"
    notes.append(f"trained on {what}, kept of every image")
    if config.encoder.views == 1 and augmentation(config).is_on:
        notes.append(
            "the images are not augmented, because the encoder is frozen; "
            "encoder.views=4 would keep four views of each"
        )
    return dataset._replace(splits=dict(splits), notes=notes)
