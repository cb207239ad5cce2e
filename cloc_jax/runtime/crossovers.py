"""Up to which batch the dense form of the loss is the faster one, as measured here.

`launch.py bench --calibrate` records it per backend; runs that choose the form
themselves read it.
"""

import json
import pathlib

from cloc_jax.runtime.atomic_files import write_json

NAME = "crossovers.json"


def read(folder: pathlib.Path) -> dict[str, int]:
    """Largest batch for the dense form by backend; {} where none was recorded."""
    path = folder / NAME
    return json.loads(path.read_text()) if path.exists() else {}


def record(folder: pathlib.Path, backend: str, dense_up_to: int) -> None:
    """Adds a backend to what `read` returns."""
    folder.mkdir(parents=True, exist_ok=True)
    write_json(folder / NAME, read(folder) | {backend: dense_up_to})
