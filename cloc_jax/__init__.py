"""Ordinal image classification with learned margins, in JAX.

`cloc_jax.fit(images, labels)` trains a run. `cloc_jax.load(folder)` is a run, or the
model that `launch.py export` wrote.
"""

import pathlib
from typing import Any

__all__ = ["fit", "load"]
__version__ = "1.0.0"


def load(folder: str | pathlib.Path) -> Any:
    """The run in a folder (`cloc_jax.api.Run`), or the exported model there."""
    # Late, as is `fit`: the losses alone stay light, and an exported model needs
    # nothing that trains.
    if (pathlib.Path(folder) / "config.json").exists() and not (
        pathlib.Path(folder) / "model.json"
    ).exists():
        from cloc_jax.api import Run

        return Run(folder)
    from cloc_jax.scoring.exported_model import ExportedModel

    return ExportedModel(folder)


def __getattr__(name: str) -> Any:
    if name == "fit":
        from cloc_jax.api import fit

        return fit
    raise AttributeError(f"module 'cloc_jax' has no attribute {name!r}")
