"""Settings of a command: a file with a configuration, and fields that override it."""

import dataclasses
import importlib.util
import json
import pathlib
import re
import sys
from collections.abc import Sequence
from typing import Any, ClassVar

from absl import flags
from ml_collections import ConfigDict, config_flags

from cloc_jax.config import check_settings, saved_config
from cloc_jax.runtime import files

# Beside the package, in the repository as in an installation.
CONFIGS = pathlib.Path(__file__).resolve().parents[2] / "configs"


@dataclasses.dataclass(frozen=True)
class Settings:
    """Any setting of cloc_jax/config.py can be given as well: --config=FILE and
    --config.train.batch_size=32."""

    config: ConfigDict
    name: str  # of the file and its variant
    words: tuple[str, ...]  # as given

    allowed: ClassVar[str] = "--config"  # how words have to start

    @classmethod
    def read(cls, words: Sequence[str], job: str) -> "Settings":
        """The settings that these words give; every mistake ends with a hint."""
        refused = [word for word in words if not re.match(cls.allowed, word)]
        if refused:
            refuse(job, refused, "mesh.*, data.root and data.prepared")
        # The last of a setting counts, as for other flags: tuples would be appended.
        last = {word.partition("=")[0]: word for word in words}
        file = last.pop("--config", "=configs/quickstart.py").partition("=")[2]
        config, name = load_config(file)
        return cls(_override(config, list(last.values())), name, tuple(words))

    def check(self, *methods: str) -> None:
        """ValueError for settings that make no sense, or of a method that no run uses.

        `methods` are those that the runs use; by default the configured one.
        """
        used = set(methods) or {self.config.method.name}
        if self.is_saved:  # a sweep's runs have settings of each other's methods
            used |= set(self.config.method)
        check_settings(self.config, used)

    def run_folder(self, run: str, job: str = "") -> pathlib.Path:
        """--run, or runs/<name of the configuration>, with the job's name."""
        return pathlib.Path(run or f"runs/{'-'.join(filter(None, (self.name, job)))}")

    @property
    def is_saved(self) -> bool:
        """Whether the file is one that a run wrote."""
        return any(re.match(r"--config=.*\.json$", word) for word in self.words)


class PlaceSettings(Settings):
    """The run's own settings are used; only --config.mesh.*, --config.data.root and
    --config.data.prepared can be given."""

    allowed = r"--config\.(mesh\.|data\.root=|data\.prepared=)"

    def of_run(self, values: dict[str, Any]) -> ConfigDict:
        """A run's own configuration, with where things are on this machine."""
        config = saved_config(values)
        config.mesh = self.config.mesh
        for place in ("root", "prepared"):
            if any(word.startswith(f"--config.data.{place}=") for word in self.words):
                config.data[place] = self.config.data[place]
        return config


def refuse(job: str, words: Sequence[str], allowed: str) -> None:
    """ValueError: the job does not take these settings."""
    raise ValueError(
        f"{job} uses no settings of its own, but got {' '.join(words)}; it takes "
        f"{allowed}."
    )


def split_words(words: Sequence[str], job: str) -> tuple[list[str], list[str]]:
    """The words that are settings, in the form --config.field=value, and the others."""
    settings, others = [], []
    waiting = [re.sub(r"^-config\b", "--config", word) for word in words]
    while waiting:
        word = waiting.pop(0)
        if not re.match(r"--config(\.|=|$)", word):
            others.append(word)
            continue
        is_open = "=" not in word and waiting and not waiting[0].startswith("-")
        if is_open and (job != "predict" or word == "--config"):
            word = f"{word}={waiting.pop(0)}"
        settings.append(word)
    return settings, others


def load_config(text: str) -> tuple[ConfigDict, str]:
    """The configuration of FILE.py, FILE.py:variant or FILE.json, and its name."""
    file, _, variant = text.partition(":")
    path = pathlib.Path(file)
    if not path.exists() and path.parent.name == CONFIGS.name:
        path = CONFIGS / path.name  # one that is shipped, asked for from elsewhere
    try:
        if path.suffix == ".json":
            return _saved(path), path.stem
        spec = importlib.util.spec_from_file_location(f"config_{path.stem}", path)
        if spec is None or spec.loader is None:
            raise ImportError(f"{file} is neither a .py nor a .json file")
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        config = module.get_config(*([variant] if variant else []))
    except ValueError:
        raise  # it says already what is wrong
    except Exception as error:
        names = ", ".join(sorted(p.name for p in CONFIGS.glob("[a-z]*.py")))
        raise ValueError(
            f"the configuration file {text} was not loaded: {error}. configs/ has "
            f"{names}."
        ) from None
    return config, "_".join(filter(None, (path.stem, variant)))


def _saved(path: pathlib.Path) -> ConfigDict:
    """The configuration in a JSON file, which has a checksum if a run wrote it."""
    text = path.read_bytes()
    try:
        values = json.loads(text)
        if not isinstance(values, dict) or files.KEY in values:
            values = files.unsealed(text)
    except ValueError as error:
        raise files.Damaged(path, str(error), "Give another --config.") from None
    return saved_config(values)


def _override(config: ConfigDict, words: list[str]) -> ConfigDict:
    """The configuration with fields set by words such as --config.seed=3."""
    given = sys.argv
    sys.argv = [given[0], *words]  # ml_collections looks there for the order
    values = flags.FlagValues()
    try:
        holder = config_flags.DEFINE_config_dict("config", config, flag_values=values)
        values(sys.argv)
    except flags.IllegalFlagValueError as error:
        problem, hint = f"{error}.", "cloc_jax/config.py shows the type of every field."
    except flags.Error as error:
        problem, hint = str(error), "python launch.py --help shows how it is used."
    except (AttributeError, KeyError) as error:
        # ml_collections quotes the field and its own suggestion in one string.
        text = str(error).replace("\\n", ". ").replace("\\", "").replace("'", "")
        problem = f"the configuration has no field {text}"
        hint = "cloc_jax/config.py lists them all."
    else:
        if holder.value.data.get("crop") == (None,):
            holder.value.data.crop = None  # how a tuple's "None" is read
        return holder.value
    finally:
        sys.argv = given
    raise ValueError(f"{problem} {hint}")
