"""Importing a package without a heavy one that it takes along where it is installed."""

import importlib
import sys
import warnings
from typing import Any


def import_without(name: str, unwanted: str) -> Any:
    """The module `name`, for which `unwanted` seems not to be installed."""
    if name in sys.modules:
        return sys.modules[name]
    before = {k: v for k, v in sys.modules.items() if k == unwanted}
    # None makes `import unwanted` fail for the moment.
    sys.modules[unwanted] = None  # type: ignore[assignment]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", ImportWarning)  # that it is not installed
            return importlib.import_module(name)
    finally:
        del sys.modules[unwanted]
        sys.modules.update(before)
