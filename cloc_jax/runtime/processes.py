"""Several processes that train one run together, on one machine or many.

When one of them dies, JAX ends the others; all of them go on with --resume.
"""

import ctypes
import os
import sys
from typing import Any

from cloc_jax.runtime import errors

HEARTBEAT_SECONDS = 20  # after which a silent process counts as dead
PR_SET_PDEATHSIG = 1  # of prctl(2)
# Loaded here, as a process that was forked amid other threads must not load anything.
LIBRARY = ctypes.CDLL(None) if sys.platform == "linux" else None


def is_joint(coordinator: str) -> bool:
    """Whether several processes were asked to work together."""
    is_named = bool(coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS"))
    return is_named or int(os.environ.get("SLURM_NTASKS", 1)) > 1


def end_with_parent(number: int) -> None:
    """Has this process sent a signal when its parent ends; on Linux only."""
    if LIBRARY:
        LIBRARY.prctl(PR_SET_PDEATHSIG, number)


def give_up(code: int) -> None:
    """Ends this process at once, without waiting for processes that are gone."""
    errors.drop_unread()
    os._exit(code)


# --- joint work ---


def connect(coordinator: str, count: int, index: int) -> None:
    """Joins the processes of a run; does nothing for a run of one process.

    Taken from the arguments, else from the variables JAX_COORDINATOR_ADDRESS,
    JAX_NUM_PROCESSES and JAX_PROCESS_ID, else from SLURM.
    """
    coordinator = coordinator or os.environ.get("JAX_COORDINATOR_ADDRESS", "")
    count = count or int(os.environ.get("JAX_NUM_PROCESSES", 0))
    if index < 0:
        index = int(os.environ.get("JAX_PROCESS_ID", -1))
    import jax

    options: dict[str, Any] = {"heartbeat_timeout_seconds": HEARTBEAT_SECONDS}
    if coordinator or count or index >= 0:
        if not coordinator or count < 1 or not 0 <= index < count:
            raise ValueError(
                f"a run of several processes needs all of --coordinator=HOST:PORT (is "
                f"{coordinator!r}), --processes=COUNT (is {count}) and --process=INDEX "
                f"from 0 (is {index}), as flags or as the variables "
                "JAX_COORDINATOR_ADDRESS, JAX_NUM_PROCESSES and JAX_PROCESS_ID."
            )
        jax.distributed.initialize(coordinator, count, index, **options)
    elif int(os.environ.get("SLURM_NTASKS", 1)) > 1 and "SLURM_PROCID" in os.environ:
        jax.distributed.initialize(**options)


def is_first() -> bool:
    """Whether this process is the one that writes files and speaks."""
    import jax

    return jax.process_index() == 0


def wait(name: str) -> None:
    """Returns once every process has come here."""
    if not is_alone():
        from jax.experimental import multihost_utils

        multihost_utils.sync_global_devices(name)


def is_alone() -> bool:
    """Whether this process works by itself."""
    import jax

    return jax.process_count() == 1


def largest(value: int) -> int:
    """The largest of the values that the processes bring."""
    if is_alone():
        return value
    from jax.experimental import multihost_utils

    return int(multihost_utils.process_allgather(value).max())
