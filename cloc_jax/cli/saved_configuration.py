"""A saved configuration as a file of configs/: what `--config=FILE.json` loads."""

import pathlib

from ml_collections import ConfigDict

from cloc_jax.config import saved_config
from cloc_jax.runtime import files


def get_config(path: str) -> ConfigDict:
    """The configuration that a run or a sweep wrote."""
    remedy = "Put back a copy, or start the command that wrote it again."
    return saved_config(files.read_sealed(pathlib.Path(path), remedy=remedy))
