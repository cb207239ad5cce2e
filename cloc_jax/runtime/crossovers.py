"""Up to which batch the dense form of the loss is the faster one, as measured here.

`launch.py bench --calibrate` records it per backend; runs that choose the form
themselves read it.
"""

import pathlib

from cloc_jax.runtime import checked_files

NAME = "crossovers.json"


def read(folder: pathlib.Path) -> dict[str, int]:
    """Largest batch for the dense form by backend; {} where none was recorded."""
    path = folder / NAME
    if not path.exists():
        return {}
    try:
        found = checked_files.read_json(path, remedy="")
    except checked_files.Damaged:
        return {}  # as before it was measured
    return {key: at for key, at in found.items() if isinstance(at, int)}


def record(folder: pathlib.Path, backend: str, dense_up_to: int) -> None:
    """Adds a backend to what `read` returns."""
    folder.mkdir(parents=True, exist_ok=True)
    checked_files.write_json(folder / NAME, read(folder) | {backend: dense_up_to})
