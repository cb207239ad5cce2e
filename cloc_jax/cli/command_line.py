"""The words of a command: the flags of its job, and settings of a run.

A job is a function: its parameters are its flags with their defaults, and its docstring
has the help, one entry of "Args:" per flag. A parameter whose type is a dataclass
stands for a group of flags, its fields; one whose type is `Settings` takes a file with
a configuration, and the fields that override it.
"""

import argparse
import dataclasses
import importlib.util
import inspect
import json
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn

from absl import flags as absl_flags
from ml_collections import ConfigDict, config_flags

from cloc_jax.config import check_settings, saved_config
from cloc_jax.runtime import environment, files, processes
from cloc_jax.runtime.errors import printable

Job = Callable[..., int]
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
    values = absl_flags.FlagValues()
    try:
        holder = config_flags.DEFINE_config_dict("config", config, flag_values=values)
        values(sys.argv)
    except absl_flags.IllegalFlagValueError as error:
        problem, hint = f"{error}.", "cloc_jax/config.py shows the type of every field."
    except absl_flags.Error as error:
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


# --- flags ---


class Written(NamedTuple):
    """How a flag is written, where its type does not tell; for `Annotated`."""

    metavar: str = ""  # the word for its value in --help
    read: Callable[[str], Any] | None = None  # of the text that was given
    is_positional: bool = False  # words without a flag


class Flag(NamedTuple):
    """One flag of a job."""

    name: str  # of the parameter
    kind: Any  # its type
    written: Written
    default: Any
    help: str
    group: str  # title of the group in --help, or ""


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes end with one sentence and a hint."""

    def error(self, message: str) -> NoReturn:
        print(
            f"error: {printable(message)}. `{self.prog} --help` shows what it takes.",
            file=sys.stderr,
        )
        sys.exit(2)


def parser(job: Job) -> Parser:
    """The parser of a job's own flags."""
    taken = settings_type(job)
    made = Parser(
        prog=f"python launch.py {job.__name__}",
        description=summary(job),
        epilog=inspect.getdoc(taken) if taken else None,
        allow_abbrev=False,
    )
    groups: dict[str, Any] = {"": made}
    for flag in flags_of(job):
        if flag.group not in groups:
            groups[flag.group] = made.add_argument_group(flag.group)
        groups[flag.group].add_argument(_spelling(flag), **_options(flag))
    return made


def read_flags(job: Job, words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a job, besides its settings."""
    given = vars(parser(job).parse_intermixed_args(list(words)))
    arguments = {}
    for name, hint, _ in _parameters(job):
        if _is_settings(hint):
            continue
        if _is_group(hint):
            names = [field.name for field in dataclasses.fields(hint)]
            arguments[name] = hint(**{name: given[name] for name in names})
        else:
            arguments[name] = given[name]
    return arguments


def summary(documented: Any) -> str:
    """What a job does or a group of flags is for, in a sentence."""
    return (inspect.getdoc(documented) or "").partition("\n\n")[0].replace("\n", " ")


def settings_type(job: Job) -> type[Settings] | None:
    """The kind of settings that a job takes, if any."""
    kinds = [hint for _, hint, _ in _parameters(job) if _is_settings(hint)]
    return kinds[0] if kinds else None


def flags_of(job: Job) -> Iterator[Flag]:
    """The flags of a job, in the order of its signature."""
    helps = _helps(job)
    for name, hint, default in _parameters(job):
        if _is_settings(hint):
            continue
        if not _is_group(hint):
            yield _flag(name, hint, default, helps[name], "")
            continue
        hints = typing.get_type_hints(hint, include_extras=True)
        title, inner = summary(hint).rstrip("."), _helps(hint)
        for field in dataclasses.fields(hint):
            kind, text = hints[field.name], inner[field.name]
            yield _flag(field.name, kind, field.default, text, title)


def _flag(name: str, hint: Any, default: Any, text: str, group: str) -> Flag:
    written = Written()
    if typing.get_origin(hint) is Annotated:
        hint, written = typing.get_args(hint)
    return Flag(name, hint, written, default, text, group)


def _parameters(job: Job) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each parameter."""
    hints = typing.get_type_hints(job, include_extras=True)
    for name, parameter in inspect.signature(job).parameters.items():
        yield name, hints[name], parameter.default


def _is_settings(hint: Any) -> bool:
    return isinstance(hint, type) and issubclass(hint, Settings)


def _is_group(hint: Any) -> bool:
    """Whether a type is a dataclass of flags."""
    return dataclasses.is_dataclass(hint) and not _is_settings(hint)


def _helps(documented: Any) -> dict[str, str]:
    """The entries of "Args:" in a docstring, by name."""
    _, _, section = (inspect.getdoc(documented) or "").partition("Args:\n")
    entries = re.findall(r"^  (\w+): ((?:.|\n(?=    ))+)", section, re.MULTILINE)
    return {name: " ".join(text.split()) for name, text in entries}


def _spelling(flag: Flag) -> str:
    """The flag as it is written; `from_` is called so as `from` is a keyword."""
    if flag.written.is_positional:
        return flag.name
    return f"--{flag.name.rstrip('_').replace('_', '-')}"


def _options(flag: Flag) -> dict[str, Any]:
    """What argparse has to know of a flag."""
    kind, written = flag.kind, flag.written
    options: dict[str, Any] = {"help": _with_default(flag).replace("%", "%%")}
    if written.is_positional:
        return options | {"nargs": "*"}
    options |= {"dest": flag.name, "default": flag.default}
    if kind is bool:
        return options | {"action": "store_true"}
    if typing.get_origin(kind) is Literal:
        return options | {"choices": typing.get_args(kind)}
    options["metavar"] = written.metavar or flag.name.rstrip("_").upper()
    if written.read:
        return options | {"type": written.read}
    if typing.get_origin(kind) is Sequence:
        options |= {"action": "append", "default": list(flag.default)}
        kind = typing.get_args(kind)[0]
    optional = [one for one in typing.get_args(kind) if one is not type(None)]
    return options | {"type": optional[0] if optional else kind}


def _with_default(flag: Flag) -> str:
    default = flag.default
    if isinstance(default, list | tuple):
        default = ",".join(map(str, default))
    if default in (None, "", False, 0, -1) or flag.written.is_positional:
        return flag.help
    return f"{flag.help} (default: {default})"


# --- what flags may hold ---


def numbers(kind: type, least: float | int, wanted: str) -> Callable[[str], list]:
    """Reads numbers with commas between them."""

    def read(text: str) -> list:
        try:
            values = [kind(value) for value in text.split(",") if value.strip()]
        except ValueError:
            values = []
        if not values or min(values) < least:
            raise argparse.ArgumentTypeError(f"got {text}; give {wanted}")
        return values

    return read


def at_least(least: int) -> Callable[[str], int]:
    """Reads a whole number."""

    def read(text: str) -> int:
        try:
            value = int(text)
        except ValueError:
            value = least - 1
        if value < least:
            raise argparse.ArgumentTypeError(
                f"got {text}; give a whole number, {least} or more"
            )
        return value

    return read


def _shapes(text: str) -> list[tuple[int, ...]]:
    """Reads shapes of meshes with commas between them, such as 8,2x4."""
    words = [word.strip() for word in text.split(",")]
    if not all(re.fullmatch(r"[1-9]\d*(x[1-9]\d*)?", word) for word in words):
        raise argparse.ArgumentTypeError(f"got {text}; give sizes such as 8,2x4,1x8")
    return [tuple(map(int, word.split("x"))) for word in words]


def _names(text: str) -> list[str]:
    """Reads names with commas between them."""
    return [name.strip() for name in text.split(",") if name.strip()]


Folder = Annotated[str, Written("DIR")]
File = Annotated[str, Written("FILE")]
Count = Annotated[int, Written("N", at_least(1))]
Counts = Annotated[
    Sequence[int],
    Written("N,N,…", numbers(int, 1, "whole numbers above 0 with commas between them")),
]
Shapes = Annotated[Sequence[tuple[int, ...]], Written("8,2x4", _shapes)]
Names = Annotated[Sequence[str], Written("NAME,…", _names)]
Boundaries = Annotated[Sequence[str], Written("'1|2'")]


@dataclasses.dataclass(frozen=True)
class Processes:
    """Several processes.

    Args:
      coordinator: of process 0
      processes: that work together
      process: which one this is, from 0
    """

    coordinator: Annotated[str, Written("HOST:PORT")] = ""
    processes: Annotated[int, Written("N")] = 0
    process: Annotated[int, Written("I")] = -1

    def start(self) -> None:
        """Gets ready for a job that these processes share; loads libraries."""
        is_joint = processes.is_joint(self.coordinator)
        environment.set_up_libraries(is_joint=is_joint)
        from cloc_jax.runtime.console import console

        processes.connect(self.coordinator, self.processes, self.process)
        console.quiet = not processes.is_first()


ALONE = Processes()
