"""What surrounds the process: versions, caches, cores, libraries."""

import ctypes
import itertools
import os
import pathlib
import platform
import re
import sys
import warnings
from collections.abc import Sequence
from importlib import metadata
from typing import Any

from cloc_jax.runtime import errors

GPUS = pathlib.Path("/proc/driver/nvidia/gpus")  # a folder for each
VISIBLE = "CUDA_VISIBLE_DEVICES"
PACKAGE = pathlib.Path(__file__).resolve().parents[1]
LAUNCH = PACKAGE.parent / "launch.py"  # in the repository alone
KEEP_MEMORY = "CLOC_KEEP_MEMORY"  # environment variable; 0 leaves the allocator alone
# Numbers of glibc's malloc.h.
_M_TRIM_THRESHOLD, _M_MMAP_MAX, _M_ARENA_MAX = -1, -4, -8


def environment() -> dict[str, str]:
    """Where a figure was made: versions and devices."""
    import jax

    devices = jax.devices()
    cores, all_cores = len(usable_cores()), os.cpu_count() or 1
    share = ""
    if devices[0].platform == "cpu" and cores < all_cores:
        share = f" on {cores} of {all_cores} cores"
    packages = ("jax", "flax", "optax", "orbax-checkpoint", "grain", "numpy")
    return {
        "device": f"{devices[0].device_kind} x{len(devices)}{share}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }


def commands_here(text: str) -> str:
    """A text about `launch.py`, which is `cloc-jax` where the package is installed."""
    if LAUNCH.is_file():
        return text
    return re.sub(r"\b(python )?launch\.py\b", "cloc-jax", text)


def cache_folder() -> pathlib.Path:
    """Compiled programs and other files that are kept between runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "cloc_jax"


def usable_cores() -> list[int]:
    """Cores that this process may use, which may be fewer than the machine has."""
    if hasattr(os, "sched_getaffinity"):
        return sorted(os.sched_getaffinity(0))
    return list(range(os.cpu_count() or 1))


def shares(workers: int) -> list[tuple[Sequence[int], dict[str, str]]]:
    """Cores of each worker, and variables that name its GPUs.

    ValueError where this machine has too little for so many.
    """
    cores, gpus = usable_cores(), _gpus()
    if not hasattr(os, "sched_setaffinity"):
        raise ValueError("--workers needs Linux, to give each cores of its own.")
    usable, what = (gpus, "GPUs") if gpus else (cores, "cores")
    if workers > min(len(usable), len(cores)):
        more = ", or JAX_PLATFORMS=cpu to train on the cores" if gpus else ""
        raise ValueError(
            f"--workers is {workers}, but this process may use {len(usable)} {what}; "
            f"use that many at most{more}."
        )
    visible = [{VISIBLE: ",".join(own)} if own else {} for own in _parts(gpus, workers)]
    return list(zip(_parts(cores, workers), visible, strict=True))


def _parts(items: Sequence[Any], count: int) -> list[Sequence[Any]]:
    ends = [len(items) * i // count for i in range(count + 1)]
    return [items[a:b] for a, b in itertools.pairwise(ends)]


def _gpus() -> list[str]:
    """NVIDIA's GPUs that JAX would use, without loading it."""
    asked = os.environ.get("JAX_PLATFORMS") or "cuda"
    if not {"cuda", "gpu"} & set(asked.split(",")):
        return []
    if VISIBLE in os.environ:
        # CUDA stops at the first that is none, such as -1.
        listed = [one.strip() for one in os.environ[VISIBLE].split(",")]
        return list(itertools.takewhile(lambda one: one and one[0] != "-", listed))
    return [str(i) for i, _ in enumerate(GPUS.iterdir())] if GPUS.is_dir() else []


def set_up_libraries(*, is_joint: bool) -> None:
    """Keeps compiled programs between runs and libraries' talk off the screen.

    `is_joint`: several processes train together.
    """
    keep_memory()  # before any of the libraries has threads
    import cv2
    import jax
    from absl import logging

    # Orbax also logs the errors that it raises, and libtpu that there is no TPU.
    logging.set_verbosity(logging.FATAL)
    for name, value in (("TPU_STDERR_LOG_LEVEL", "3"), ("TPU_MIN_LOG_LEVEL", "3")):
        os.environ.setdefault(name, value)
    asked = os.environ.get("XLA_FLAGS", "") + os.environ.get("JAX_NUM_CPU_DEVICES", "")
    is_asked = bool(re.search(r"device_count|^\d+$", asked))
    if len(usable_cores()) > 1 and not is_joint and not is_asked:
        # XLA leaves a core idle in many operations; two devices share a batch better,
        # and every batch is even. GPUs are used all the same where there are some.
        jax.config.update("jax_num_cpu_devices", 2)
    # XLA ends the process where one CPU device waits 60 s for another, which happens on
    # a machine with too much to do. Versions that lack a flag end as well.
    if jax.__version_info__ < (0, 12):
        patience = "--xla_cpu_collective_call_terminate_timeout_seconds=3600"
        quiet = "--xla_cpu_collective_call_warn_stuck_timeout_seconds=600"
        given = os.environ.get("XLA_FLAGS", "")  # the last one counts: the user's
        os.environ["XLA_FLAGS"] = f"{patience} {quiet} {given}"
    cv2.setNumThreads(0)  # the pipeline's threads are enough
    jax.config.update("jax_compilation_cache_dir", str(cache_folder()))
    # Where it cannot be read or written, programs are compiled again: slower, no harm.
    warnings.filterwarnings("ignore", message=".*persistent compilation cache.*")
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    errors.raise_interrupts()


def keep_memory() -> bool:
    """Makes glibc keep freed memory; whether it does now.

    XLA allocates the temporaries of a step on a CPU anew in every step. By default
    glibc returns such blocks to the kernel at once, which then clears fresh pages for a
    large part of a step. Has to be called before libraries start threads, each of which
    may get its own arena. GLIBC_TUNABLES, MALLOC_…_ and CLOC_KEEP_MEMORY=0 hold.
    """
    by_user = "glibc.malloc" in os.environ.get("GLIBC_TUNABLES", "") or any(
        name.startswith("MALLOC_") for name in os.environ
    )
    if by_user or os.environ.get(KEEP_MEMORY) == "0" or sys.platform != "linux":
        return False
    library = ctypes.CDLL(None)
    if not hasattr(library, "gnu_get_libc_version"):
        return False
    settings = ((_M_MMAP_MAX, 0), (_M_TRIM_THRESHOLD, -1), (_M_ARENA_MAX, 1))
    return all([library.mallopt(which, value) for which, value in settings])
