"""Checkpoints: arrays and a small record, written so that a kill never spoils one.

Each is sealed with checksums once it is whole, and checked before it is used.
"""

import pathlib
import shutil
from collections.abc import Callable
from typing import Any

import jax
import orbax.checkpoint as ocp

from cloc_jax.runtime import checked_files, os_errors, processes
from cloc_jax.runtime.checked_files import Damaged
from cloc_jax.runtime.run_folder import REMEDY

KEEP = 2  # the newest, and one before it in case the newest is damaged


class Checkpoints:
    """The numbered checkpoints of a run that is under way.

    Args:
      folder: of the run's checkpoints.
      is_checked: whether all of them were sealed; those of older runs are not.
      say: told, in a line, which damaged ones are left out.
    """

    def __init__(
        self,
        folder: pathlib.Path,
        *,
        is_checked: bool = True,
        say: Callable[[str], None] = print,
    ):
        self._folder = folder
        bad = _unusable(folder, is_checked, say)
        processes.wait("checkpoints are checked")
        for path in bad if processes.is_first() else ():
            shutil.rmtree(path)
        processes.wait("damaged checkpoints are removed")
        self._manager = ocp.CheckpointManager(
            folder.absolute(),
            options=ocp.CheckpointManagerOptions(
                max_to_keep=KEEP,
                cleanup_tmp_directories=True,
                enable_async_checkpointing=False,
            ),
        )

    def save(self, arrays: Any, record: dict[str, Any]) -> int:
        """Writes the next checkpoint and returns its number."""
        number = (self.latest() or 0) + 1
        plain = jax.tree.map(_without_keys, arrays)
        with os_errors.of_library(self._folder / str(number)):
            self._manager.save(
                number,
                args=ocp.args.Composite(
                    arrays=ocp.args.StandardSave(plain),
                    record=ocp.args.JsonSave(record),
                ),
            )
        if processes.is_first():
            checked_files.seal_folder(self._folder / str(number))
        return number

    def latest(self) -> int | None:
        """Number of the newest complete checkpoint, None without one."""
        return self._manager.latest_step()

    def record(self) -> dict[str, Any]:
        """The newest checkpoint's record."""
        restored = self._restore(record=ocp.args.JsonRestore())
        return restored["record"]

    def arrays(self, like: Any) -> Any:
        """The newest checkpoint's arrays, shaped and typed as `like`."""
        plain = jax.tree.map(_without_keys, like)
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, plain)
        restored = self._restore(arrays=ocp.args.StandardRestore(abstract))
        return jax.tree.map(_with_keys, restored["arrays"], like)

    def close(self) -> None:
        self._manager.close()

    def _restore(self, **what: Any) -> Any:
        number = self.latest()
        try:
            return self._manager.restore(number, args=ocp.args.Composite(**what))
        except Exception as error:  # whatever type orbax gives to what it finds
            raise Damaged(
                self._folder / str(number),
                f"it cannot be read ({_first_line(error)})",
                "Move it away and --resume goes on from the checkpoint before it.",
            ) from error


def _unusable(
    folder: pathlib.Path, is_checked: bool, say: Callable[[str], None]
) -> list[pathlib.Path]:
    """Checkpoints that are newer than the newest good one and cannot be used.

    Damaged where some were whole once and none is good.
    """
    found = (path for path in folder.glob("*") if path.name.isdecimal())
    newest_first = sorted(found, key=lambda path: int(path.name), reverse=True)
    bad: list[pathlib.Path] = []
    first: Damaged | None = None
    remedy = "Put back a copy of it, or start another run."
    for path in newest_first:
        try:
            if checked_files.check_folder(path, remedy=remedy) or not is_checked:
                break
            problem = f"{path} was not finished"  # killed before it was sealed
        except Damaged as error:
            first = first or error
            problem = f"{error.path} is damaged"
        older = newest_first[newest_first.index(path) + 1 :]
        if older:
            say(f"{problem}; trying the checkpoint before it, {older[0].name}")
        bad.append(path)
    else:
        if first:
            raise first
    return bad


def save_model(folder: pathlib.Path, state: Any) -> None:
    """Writes one model; an earlier one of the same name gives way."""
    with os_errors.of_library(folder), ocp.StandardCheckpointer() as checkpointer:
        plain = jax.tree.map(_without_keys, state)
        checkpointer.save(folder.absolute(), plain, force=True)
    if processes.is_first():
        checked_files.seal_folder(folder)


def has_model(folder: pathlib.Path) -> bool:
    """Whether a whole model lies there."""
    return (folder / checked_files.SEAL).is_file()


def load_model(folder: pathlib.Path, like: Any, sharding: jax.sharding.Sharding) -> Any:
    """Reads a model that `save_model` wrote, shaped and typed as `like`."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no trained model at {folder}; the run has not reached the end "
            "of that stage. Continue it with --resume."
        )
    checked_files.check_folder(folder, remedy=REMEDY)
    plain = jax.eval_shape(lambda tree: jax.tree.map(_without_keys, tree), like)
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), plain
    )
    try:
        with ocp.StandardCheckpointer() as checkpointer:
            restored = checkpointer.restore(folder.absolute(), abstract)
    except Exception as error:  # whatever type orbax gives to what it finds
        problem = f"it cannot be read ({_first_line(error)})"
        raise Damaged(folder, problem, REMEDY) from error
    return jax.tree.map(_with_keys, restored, like)


def _first_line(error: Exception) -> str:
    lines = str(error).strip().splitlines() or [type(error).__name__]
    return lines[0][:200]


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(leaf: Any) -> Any:
    """The numbers of a random key; other arrays as they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _with_keys(leaf: Any, like: Any) -> Any:
    """The random key again, where `like` is one."""
    return jax.random.wrap_key_data(leaf) if _is_key(like) else leaf
