"""Where a figure was made, and where things are kept between runs."""

import os
import pathlib
import platform
from importlib import metadata

import jax


def environment() -> dict[str, str]:
    """Where a figure was made: versions and devices."""
    devices = jax.devices()
    packages = ("jax", "flax", "optax", "orbax-checkpoint", "grain", "numpy")
    return {
        "device": f"{devices[0].device_kind} x{len(devices)}",
        "python": platform.python_version(),
        **{name: metadata.version(name) for name in packages},
    }


def cache_folder() -> pathlib.Path:
    """Compiled programs and calibrations, kept between runs."""
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "cloc_jax"
