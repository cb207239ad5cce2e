"""Kept features: what the frozen parts of an encoder make of every image.

They are computed once and kept, by item, under a mark of all that decides them: the
frozen weights and how they are applied, the preparation of the images, and the view
(the clean image, or one of several augmented ones). Splits, labels and seeds are not
among it: folds, relabelled data and sweeps share one store, and processes the work.
"""

import functools
import hashlib
import json
import pathlib
import random
import uuid
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from flax import nnx
from jax.sharding import Mesh

from cloc_jax.data import augment as augmentation
from cloc_jax.data.source import AugmentedOnce, KeptFeatures, Source, Subset
from cloc_jax.runtime import checkpoint, errors, files, processes, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.console import console, track
from cloc_jax.scoring import inference

# Written at a time, what an interruption may lose: as much as both of these allow.
PART_BYTES, MOST_BATCHES = 2**28, 8
BATCH = 32  # images at a time


class FeatureStore:
    """Arrays by the item's name, on disk.

    A store is a folder of `<part>.npy` with `<part>.json`: the names of its rows and
    the array's checksum. The list is written last and whole; an array without one does
    not count. A damaged part is removed, and its items are computed again.
    """

    def __init__(self, folder: pathlib.Path):
        self._folder = folder
        self._rows: dict[str, tuple[pathlib.Path, int]] = {}
        self._parts: set[pathlib.Path] = set()
        self.look_again()

    def look_again(self) -> None:
        """Finds what others have added since."""
        for listed in sorted(set(self._folder.glob("*.json")) - self._parts):
            array = listed.with_suffix(".npy")
            try:
                about = files.read_sealed(listed, remedy="")
                files.check_digest(array, about["sha256"], remedy="")
            except files.Damaged as error:
                console.print(f"{error} It is computed again.", soft_wrap=True)
                listed.unlink(missing_ok=True)
                array.unlink(missing_ok=True)
            else:
                self._index(listed, about["names"])

    def __contains__(self, name: str) -> bool:
        return name in self._rows

    def add(self, names: Sequence[str], rows: np.ndarray) -> None:
        """Writes a part: a row for each name."""
        self._folder.mkdir(parents=True, exist_ok=True)
        part = self._folder / uuid.uuid4().hex
        array = part.with_suffix(".npy")
        # An array that was cut short never gets a list, and is not read.
        with errors.naming(array):
            np.save(array, rows, allow_pickle=False)
        about = {"names": list(names), "sha256": files.sha256(array)}
        files.write_sealed(part.with_suffix(".json"), about)
        self._index(part.with_suffix(".json"), list(names))

    def read(self, names: Sequence[str]) -> list[np.ndarray]:
        """The rows of these names, in their order, mapped from disk."""
        places = [self._rows[name] for name in names]
        arrays = {path: np.asarray(np.load(path, mmap_mode="r")) for path, _ in places}
        return [arrays[path][row] for path, row in places]

    def _index(self, listed: pathlib.Path, names: Sequence[str]) -> None:
        self._parts.add(listed)
        array = listed.with_suffix(".npy")
        for row, name in enumerate(names):
            self._rows[name] = (array, row)


class Trunk:
    """The first parts of an encoder with their weights, applied in evaluation mode.

    Nothing of the encoder from the part `until` on is used; None is its end. `settings`
    are what else decides the output, as plain data.
    """

    def __init__(
        self,
        encoder: nnx.Module,
        until: str | None,
        mesh: Mesh,
        *,
        dtype: str,
        settings: Mapping[str, Any],
    ):
        graph, self.state = checkpoint.split_model(encoder)
        self.graph = graph
        self.mesh, self._mesh = mesh, sharding.own_mesh(mesh)
        decides = {"until": until, "kept_dtype": dtype, **settings}
        self.mark = _mark(decides, self.state)[:16]

        def apply(state, images):
            model = checkpoint.evaluating(graph, state)
            return model.before(images, until).astype(dtype)

        self._apply = jax.jit(apply, out_shardings=sharding.copied(self._mesh))

    @functools.cached_property
    def _here(self) -> ModelState:
        """The state on devices of this process."""
        return placed(self.state, self._mesh)

    def bytes_of_one(self, shape: tuple[int, ...]) -> int:
        """Size of the activations of one image of that shape."""
        image = jax.ShapeDtypeStruct((1, *shape), np.uint8)
        out = jax.eval_shape(self._apply, self.state, image)
        return out.size * out.dtype.itemsize

    def over(self, source: Source, **options: Any) -> np.ndarray:
        """The activations of every image of a source; options are of `inference.over`.

        Of several processes each one computes them all.
        """
        apply = functools.partial(self._apply, self._here)
        # Always batches of the same size, so that one program serves all.
        return inference.over(apply, source, self._mesh, is_padded=True, **options)


def placed(state: ModelState, mesh: Mesh) -> ModelState:
    """The state on every device of a mesh; as it is in a process that works alone."""
    if processes.is_alone():
        return state
    copied = sharding.copied(mesh)
    return sharding.place_state(state, jax.tree.map(lambda _: copied, state))


def derive(
    source: Source,
    trunk: Trunk,
    folder: pathlib.Path,
    *,
    name: str,
    preparation: Mapping[str, Any],
    augment: augmentation.Augment,
    views: int,
    threads: int,
) -> KeptFeatures:
    """The activations of a source, from the store in `folder` or computed into it.

    The first of the views is clean. `preparation` says how images are prepared, as
    plain data; `name` is the split's, for the progress bar.
    """
    features = []
    for view in range(views):
        seen: Source = source
        settings: dict[str, Any] = {"trunk": trunk.mark, **preparation}
        if view:
            settings |= {"view": view, **augment._asdict()}
            seen = AugmentedOnce(source, view, augment)
        store = FeatureStore(folder / _mark(settings)[:32])
        shown = f"{name} images" if not view else f"{name} images, view {view + 1}"
        _fill(store, seen, trunk, shown, threads)
        features.append(store.read(source.stamps))
    return KeptFeatures(source, features)


def _fill(
    store: FeatureStore, source: Source, trunk: Trunk, shown: str, threads: int
) -> None:
    """Computes what is missing, in parts that are written one by one.

    Other processes may be at the same store. Each takes the parts in an order of its
    own and passes over what others have added meanwhile.
    """
    marks = source.stamps
    missing = [i for i, mark in enumerate(marks) if mark not in store]
    if not missing:
        return
    console.print(f"computing features of {len(missing)} {shown}, once")
    one = trunk.bytes_of_one(source[0].shape)
    size = min(max(PART_BYTES // one // BATCH, 1), MOST_BATCHES) * BATCH
    starts = list(range(0, len(missing), size))
    random.shuffle(starts)
    done_all = f"features of {len(missing)} {shown}"
    with track(f"features of {shown}", len(missing), note=done_all) as advance:
        for start in starts:
            part = missing[start : start + size]
            store.look_again()
            rest = [i for i in part if marks[i] not in store]
            advance(len(part) - len(rest))
            if not rest:
                continue
            rows = trunk.over(
                Subset(source, rest),
                batch_size=BATCH,
                threads=threads,
                between=lambda: advance(BATCH),  # the very last may have fewer
            )
            store.add([marks[i] for i in rest], rows)


def _mark(settings: Mapping[str, Any], state: ModelState | None = None) -> str:
    mark = hashlib.sha256(json.dumps(settings, sort_keys=True).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        value = np.asarray(leaf)
        mark.update(
            f"{jax.tree_util.keystr(path)} {value.dtype} {value.shape}".encode()
        )
        mark.update(np.ascontiguousarray(value).tobytes())
    return mark.hexdigest()
