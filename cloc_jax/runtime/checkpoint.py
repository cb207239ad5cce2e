"""Checkpoints: arrays and a small record, written so that a kill never spoils one."""

import pathlib
from typing import Any

import jax
import orbax.checkpoint as ocp

KEEP = 2  # the newest, and one before it in case the newest's disk was full


class Checkpoints:
    """The numbered checkpoints of a run that is under way."""

    def __init__(self, folder: pathlib.Path):
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
        self._manager.save(
            number,
            args=ocp.args.Composite(
                arrays=ocp.args.StandardSave(jax.tree.map(_without_keys, arrays)),
                record=ocp.args.JsonSave(record),
            ),
        )
        return number

    def latest(self) -> int | None:
        """Number of the newest complete checkpoint, None without one."""
        return self._manager.latest_step()

    def record(self) -> dict[str, Any]:
        """The newest checkpoint's record."""
        restored = self._manager.restore(
            self.latest(), args=ocp.args.Composite(record=ocp.args.JsonRestore())
        )
        return restored["record"]

    def arrays(self, like: Any) -> Any:
        """The newest checkpoint's arrays, shaped and typed as `like`."""
        plain = jax.tree.map(_without_keys, like)
        abstract = jax.tree.map(ocp.utils.to_shape_dtype_struct, plain)
        restored = self._manager.restore(
            self.latest(),
            args=ocp.args.Composite(arrays=ocp.args.StandardRestore(abstract)),
        )
        return jax.tree.map(_with_keys, restored["arrays"], like)

    def close(self) -> None:
        self._manager.close()


def save_model(folder: pathlib.Path, state: Any) -> None:
    """Writes one model; an earlier one of the same name gives way."""
    with ocp.StandardCheckpointer() as checkpointer:
        plain = jax.tree.map(_without_keys, state)
        checkpointer.save(folder.absolute(), plain, force=True)


def load_model(folder: pathlib.Path, like: Any, sharding: jax.sharding.Sharding) -> Any:
    """Reads a model that `save_model` wrote, shaped and typed as `like`."""
    if not folder.is_dir():
        raise FileNotFoundError(
            f"there is no trained model at {folder}; the run has not reached the end "
            "of that stage. Continue it with --resume."
        )
    plain = jax.eval_shape(lambda tree: jax.tree.map(_without_keys, tree), like)
    abstract = jax.tree.map(
        lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=sharding), plain
    )
    with ocp.StandardCheckpointer() as checkpointer:
        restored = checkpointer.restore(folder.absolute(), abstract)
    return jax.tree.map(_with_keys, restored, like)


def _is_key(leaf: Any) -> bool:
    return jax.dtypes.issubdtype(leaf.dtype, jax.dtypes.prng_key)


def _without_keys(leaf: Any) -> Any:
    """The numbers of a random key; other arrays as they are."""
    return jax.random.key_data(leaf) if _is_key(leaf) else leaf


def _with_keys(leaf: Any, like: Any) -> Any:
    """The random key again, where `like` is one."""
    return jax.random.wrap_key_data(leaf) if _is_key(like) else leaf
