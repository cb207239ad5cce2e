"""The settings that the command line starts from, for estimators."""

import importlib
import pathlib
import sys
from collections.abc import Mapping
from typing import Any

from ml_collections import ConfigDict

ROOT = pathlib.Path(__file__).resolve().parents[2]


def read(name: str) -> Any:
    """The module configs/<name>.py of this repository."""
    if not (ROOT / "configs" / f"{name}.py").is_file():
        raise FileNotFoundError(
            f"there is no configs/{name}.py beside the package in {ROOT}; install "
            "cloc_jax from its repository with `pip install -e .`."
        )
    if str(ROOT) not in sys.path:
        sys.path.append(str(ROOT))  # where launch.py has it from
    module = importlib.import_module(f"configs.{name}")
    if pathlib.Path(str(module.__file__)).resolve().parent != ROOT / "configs":
        raise ImportError(
            f"another package is called configs: {module.__file__}. Estimators need "
            f"the one in {ROOT}; rename the other, or import cloc_jax.sklearn first."
        )
    return module


def change(config: ConfigDict, settings: Mapping[str, Any]) -> None:
    """Sets fields by name, such as {"method.cloc.weight": 0.5}, in place."""
    config.lock()  # a field that it lacks is an error
    try:
        config.update_from_flattened_dict(dict(settings))
    except (KeyError, TypeError, ValueError) as error:
        text = str(error).strip("'\"").replace("\\n", " ")
        raise ValueError(
            f"settings has something that cloc_jax/config.py does not: {text}"
        ) from None
