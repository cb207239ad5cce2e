"""Ordinal image classification with learned margins, in JAX.

`cloc_jax.load(folder)` is the model that `launch.py export` wrote there.
"""

__all__ = ["load"]
__version__ = "0.1.0"


def __getattr__(name: str) -> object:
    """`load`, imported when it is asked for: the losses alone stay light."""
    if name == "load":
        from cloc_jax.scoring.exported_model import load

        return load
    raise AttributeError(f"module 'cloc_jax' has no attribute {name!r}")
