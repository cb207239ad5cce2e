"""Models as plain arrays, and checkpoints of them that a kill never spoils.

A checkpoint is arrays and a small record of where a run is; it is sealed with checksums
once it is whole, and checked before it is used.
"""

import contextlib
import errno
import os
import pathlib
import shutil
from collections.abc import Iterator
from typing import Any, NamedTuple

import jax
import orbax.checkpoint as ocp
from flax import nnx

from cloc_jax.runtime import errors, files, processes
from cloc_jax.runtime.run_folder import REMEDY

KEEP = 2  # the newest, and one before it in case the newest is damaged
ENTRY = 4096  # bytes of an array in a checkpoint, besides its numbers; at most about
BEFORE_IT = "Move it away, and --resume goes on from the checkpoint before it."


class ModelState(NamedTuple):
    """All arrays of a model."""

    params: nnx.State  # what optimizers train
    rest: nnx.State  # batch statistics and other variables


def split_model(model: nnx.Module) -> tuple[nnx.GraphDef, ModelState]:
    """A model's structure and its arrays."""
    parts: Any = nnx.split(model, nnx.Param, ...)
    graph, params, rest = parts
    return graph, ModelState(params, rest)


def evaluating(graph: nnx.GraphDef, state: ModelState) -> Any:
    """The model with its batch norms and dropouts in evaluation mode."""
    model = merge_model(graph, state)
    model.eval()
    return model


def merge_model(graph: nnx.GraphDef, state: ModelState) -> Any:
    """The model again, with variables of its own.

    A copy, since batch statistics may change within the trace of a gradient.
    """
    return nnx.merge(graph, *state, copy=True)


class Checkpoints:
    """The numbered checkpoints of a run that is under way, the newest of them checked.

    What a process was writing when it was killed is removed.
    """

    def __init__(self, folder: pathlib.Path, owner: str = ""):
        """`owner` is the mark of the run."""
        self._folder, self._owner = folder, owner
        for path in folder.glob("*") if processes.is_first() else ():
            if path.name.isdecimal() and not has_model(path):
                shutil.rmtree(path)
        processes.wait("unfinished checkpoints are removed")
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=KEEP,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            ),
        )
        if newest := self.latest():
            path = folder / str(newest)
            files.check_folder(path, remedy=BEFORE_IT, owner=owner)

    def save(self, arrays: Any, record: dict[str, Any]) -> int:
        """Writes the next checkpoint and returns its number."""
        number = (self.latest() or 0) + 1
        plain = jax.tree.map(_without_keys, arrays)
        with _written(self._folder / str(number), plain, self._owner):
            self._manager.save(
                number,
                args=ocp.args.Composite(
                    arrays=ocp.args.StandardSave(plain),
                    record=ocp.args.JsonSave(record),
                ),
            )
        return number

    def latest(self) -> int | None:
        """Number of the newest complete checkpoint, None without one."""
        return self._manager.latest_step()

    def record(self) -> dict[str, Any]:
        """The newest checkpoint's record."""
        return self._restore(record=ocp.args.JsonRestore())["record"]

    def arrays(self, like: Any) -> Any:
        """The newest checkpoint's arrays, shaped and typed as `like`."""
        plain = jax.tree.map(_without_keys, like)
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, plain)
        restored = self._restore(arrays=ocp.args.StandardRestore(abstract))
        return jax.tree.map(_with_keys, restored["arrays"], like)

    def close(self) -> None:
        self._manager.close()

    def _restore(self, **what: Any) -> Any:
        return self._manager.restore(self.latest(), args=ocp.args.Composite(**what))


def save_model(folder: pathlib.Path, state: Any) -> None:
    """Writes one model; an earlier one of the same name gives way."""
    plain = jax.tree.map(_without_keys, state)
    with _written(folder, plain), ocp.StandardCheckpointer() as checkpointer:
        checkpointer.save(folder.absolute(), plain, force=True)


@contextlib.contextmanager
def _written(path: pathlib.Path, arrays: Any, owner: str = "") -> Iterator[None]:
    """Seals a folder of arrays once it is written; OSError where there is no room.

    Amid writing, each thread of Orbax that finds it full would print a traceback.
    """
    place = next(p for p in path.absolute().parents if p.exists())
    needed = sum(leaf.nbytes + ENTRY for leaf in jax.tree.leaves(arrays))
    if shutil.disk_usage(place).free < needed:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(path))
    with errors.naming(path):
        yield
    if processes.is_first():
        files.seal_folder(path, owner)


def has_model(folder: pathlib.Path) -> bool:
    """Whether a whole model or checkpoint lies there."""
    return (folder / files.SEAL).is_file()


def load_model(folder: pathlib.Path, like: Any, sharding: jax.sharding.Sharding) -> Any:
    """Reads a model that `save_model` wrote, shaped and typed as `like`."""
    files.check_folder(folder, remedy=REMEDY)
    plain = jax.eval_shape(lambda tree: jax.tree.map(_without_keys, tree), like)
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), plain
    )
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(folder.absolute(), abstract)
    return jax.tree.map(_with_keys, restored, like)


def is_key(leaf: Any) -> bool:
    """Whether an array is of random keys."""
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(leaf: Any) -> Any:
    """The numbers of a random key; other arrays as they are."""
    return jax.random.key_data(leaf) if is_key(leaf) else leaf


def _with_keys(leaf: Any, like: Any) -> Any:
    """The random key again, where `like` is one."""
    return jax.random.wrap_key_data(leaf) if is_key(like) else leaf
