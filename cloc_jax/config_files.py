"""Configurations by the names of their files, shipped ones and those of runs."""

import importlib.util
import json
import pathlib

from ml_collections import ConfigDict

from cloc_jax.config import saved_config
from cloc_jax.runtime import environment, files

# In an installation within the package, in the repository beside it.
CONFIGS = next(
    folder
    for place in (environment.PACKAGE, environment.PACKAGE.parent)
    if (folder := place / "configs").is_dir()
)


def load_config(text: str) -> tuple[ConfigDict, str]:
    """The configuration of FILE.py or FILE.json, or the shipped one of that name, and
    its name; of a variant where one follows, as in FILE.py:frozen or koa:frozen."""
    file, _, variant = text.partition(":")
    path = pathlib.Path(file)
    if file and path.name == file and not path.suffix:
        path = CONFIGS / f"{file}.py"
    elif not path.exists() and path.parent.name == CONFIGS.name:
        path = CONFIGS / path.name  # one that is shipped, asked for from elsewhere
    try:
        if path.suffix == ".json":
            return _read_saved(path), path.stem
        files.check_regular(path)
        spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is neither a .py nor a .json file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        config = module.get_config(*([variant] if variant else []))
        if not isinstance(config, ConfigDict):
            raise TypeError("its get_config gives no ConfigDict")
    except (files.Damaged, files.NotRegularError):
        raise  # it says already what is wrong
    except (Exception, SystemExit) as error:
        names = ", ".join(sorted(p.name for p in CONFIGS.glob("[a-z]*.py")))
        raise ValueError(
            f"the configuration file {text} was not loaded: {error}. configs/ has "
            f"{names}."
        ) from None
    return config, "_".join(filter(None, (path.stem, *variant.split(","))))


def _read_saved(path: pathlib.Path) -> ConfigDict:
    """The configuration in a JSON file, which has a checksum if a run wrote it."""
    text = files.read_regular(path)
    try:
        values = json.loads(text)
        if not isinstance(values, dict) or files.KEY in values:
            values = files.unsealed(text)
    except ValueError as error:
        raise files.Damaged(path, str(error), "Give another --config.") from None
    return saved_config(values)
