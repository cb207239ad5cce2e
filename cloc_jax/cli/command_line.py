"""The words of a command: the flags of its job, and settings of a run.

A job is a function: its parameters are its flags with their defaults, and its docstring
has the help, one entry of "Args:" per flag. A parameter whose type is a dataclass
stands for a group of flags, its fields; `asked` are those of the job itself. One whose
type is `Settings` takes a file with a configuration, and the fields that override it.
"""

import argparse
import ast
import dataclasses
import inspect
import pathlib
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, NoReturn

from absl import flags as absl_flags
from ml_collections import ConfigDict, config_flags

from cloc_jax.config import check_settings, saved_config
from cloc_jax.config_files import load_config
from cloc_jax.runtime import environment, processes
from cloc_jax.runtime.errors import printable

Job = Callable[..., int]


@dataclasses.dataclass(frozen=True)
class Settings:
    """Any setting of cloc_jax/config.py can be given as well: --config=FILE or the name
    of a file in configs/, and --config.train.batch_size=32."""

    config: ConfigDict
    name: str  # of the file and its variant
    words: tuple[str, ...]  # as given

    allowed: ClassVar[str] = r"--config(=|\.)"  # how its words start

    @classmethod
    def read(cls, words: Sequence[str]) -> "Settings":
        """The settings that these words give; every mistake ends with a hint."""
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
        path = pathlib.Path(run or f"runs/{'-'.join(filter(None, (self.name, job)))}")
        if path.exists() and not path.is_dir():
            raise FileExistsError(f"--run={path} is a file; give the name of a folder.")
        return path

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


def _override(config: ConfigDict, words: list[str]) -> ConfigDict:
    """The configuration with fields set by words such as --config.seed=3."""
    given = sys.argv
    sys.argv = [given[0], *words]  # ml_collections looks there for the order
    values = absl_flags.FlagValues()
    try:
        holder = config_flags.DEFINE_config_dict("config", config, flag_values=values)
        values(sys.argv)
    except absl_flags.Error as error:
        problem, hint = f"{error}.", "cloc_jax/config.py shows the type of every field."
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


class Parser(argparse.ArgumentParser):
    """A parser whose mistakes end with one sentence and a hint."""

    def format_help(self) -> str:
        return environment.commands_here(super().format_help())

    def error(self, message: str) -> NoReturn:
        message += "an empty word" * message.endswith(": ")
        print(
            f"error: {printable(message)}. `{self.prog} --help` shows what it takes.",
            file=sys.stderr,
        )
        sys.exit(2)


def parser(job: Job) -> Parser:
    """The parser of a job's own flags."""
    taken = settings_type(job)
    made = Parser(
        prog=environment.commands_here(f"python launch.py {job.__name__}"),
        description=summary(job),
        epilog=inspect.getdoc(taken) if taken else None,
        allow_abbrev=False,
    )
    _add_flags(made, job)
    return made


def read_words(job: Job, words: Sequence[str]) -> dict[str, Any]:
    """The arguments of a job."""
    taken = settings_type(job)
    made = parser(job)
    places = [action.dest for action in made._get_positional_actions()]
    end = [*words, "--"].index("--") if places else len(words)
    settings = [w for w in words[:end] if taken and re.match(taken.allowed, w)]
    own = [word for word in words[:end] if word not in settings]
    given = vars(made.parse_intermixed_args(own))
    for place in places:
        given[place] += words[end + 1 :]  # which no dash makes a flag
    for name, hint, _ in list(_parameters(job)):
        if _is_group(hint):
            fields = [field.name for field in dataclasses.fields(hint)]
            given[name] = hint(**{field: given.pop(field) for field in fields})
    return given | ({"settings": taken.read(settings)} if taken else {})


def summary(documented: Any) -> str:
    """What a job does or a group of flags is for, in a sentence."""
    return (inspect.getdoc(documented) or "").partition("\n\n")[0].replace("\n", " ")


def settings_type(job: Job) -> type[Settings] | None:
    """The kind of settings that a job takes, if any."""
    return typing.get_type_hints(job).get("settings")


def _add_flags(place: Any, documented: Any) -> None:
    """Gives a parser the flags of a job, or of a group of them."""
    _, _, section = (inspect.getdoc(documented) or "").partition("Args:\n")
    entries = re.findall(r"^  (\w+): ((?:.|\n(?=    ))+)", section, re.MULTILINE)
    helps = {name: " ".join(text.split()) for name, text in entries}
    for name, hint, default in _parameters(documented):
        if _is_group(hint):
            is_own = name == "asked"
            title = summary(hint).rstrip(".")
            _add_flags(place if is_own else place.add_argument_group(title), hint)
        elif name != "settings":
            _add_flag(place, name, hint, default, helps[name])


def _parameters(documented: Any) -> Iterator[tuple[str, Any, Any]]:
    """Name, type and default of each parameter of a job or field of a group."""
    hints = typing.get_type_hints(documented, include_extras=True)
    for name, parameter in inspect.signature(documented).parameters.items():
        yield name, hints[name], parameter.default


def _is_group(hint: Any) -> bool:
    """Whether a type is a dataclass of flags."""
    is_class = isinstance(hint, type) and dataclasses.is_dataclass(hint)
    return is_class and not issubclass(hint, Settings)


def _add_flag(place: Any, name: str, kind: Any, default: Any, text: str) -> None:
    written = Written()
    if typing.get_origin(kind) is Annotated:
        kind, written = typing.get_args(kind)
    if written.is_positional:
        place.add_argument(name, nargs="*", help=text)
        return
    shown = ",".join(map(str, default)) if isinstance(default, tuple) else default
    if shown not in (None, "", False, 0, -1):
        text += f" (default: {shown})"
    options: dict[str, Any] = {"help": text.replace("%", "%%")}
    inner = typing.get_args(kind)
    if kind is bool:
        options["action"] = "store_true"
    elif typing.get_origin(kind) is Literal:
        options["choices"] = inner
    else:
        options["metavar"] = written.metavar or name.rstrip("_").upper()
        options["type"] = written.read or (inner[0] if inner else kind)
        if typing.get_origin(kind) is Sequence and not written.read:
            options |= {"action": "append", "default": list(default)}
    # `from_` is called so as `from` is a keyword.
    flag = f"--{name.rstrip('_').replace('_', '-')}"
    place.add_argument(flag, **{"dest": name, "default": default} | options)


# --- what flags may hold ---


def value_of(text: str) -> Any:
    """The value of a setting in words: a literal, or the words themselves."""
    try:
        return ast.literal_eval(text)
    except (ValueError, SyntaxError):
        return text


def numbers(
    kind: type, least: float | int, wanted: str, most: int | None = None
) -> Callable[[str], list]:
    """Reads numbers with commas between them."""

    def read(text: str) -> list:
        try:
            values = [kind(value) for value in text.split(",") if value.strip()]
        except ValueError:
            values = []
        if values[:most] != values or min(values, default=least - 1) < least:
            raise argparse.ArgumentTypeError(f"got {text}; give {wanted}")
        return values

    return read


def at_least(least: int) -> Callable[[str], int]:
    """Reads a whole number."""
    read = numbers(int, least, f"a whole number, {least} or more", most=1)
    return lambda text: read(text)[0]


def names(*allowed: str) -> Callable[[str], list[str]]:
    """Reads names with commas between them; any, unless some are named."""

    def read(text: str) -> list[str]:
        values = [name.strip() for name in text.split(",") if name.strip()]
        if allowed and not set(values) <= set(allowed):
            some = ", ".join(allowed)
            raise argparse.ArgumentTypeError(f"got {text}; use some of {some}")
        return values

    return read


Folder = Annotated[str, Written("DIR")]
File = Annotated[str, Written("FILE")]
Count = Annotated[int, Written("N", at_least(1))]
Counts = Annotated[
    Sequence[int],
    Written("N,N,…", numbers(int, 1, "whole numbers above 0 with commas between them")),
]
Names = Annotated[Sequence[str], Written("NAME,…", names())]
Boundaries = Annotated[Sequence[str], Written("'1|2'")]
Margins = Annotated[
    Sequence[float],
    Written("0.1,0.3", numbers(float, 0, "numbers with commas between them")),
]


@dataclasses.dataclass(frozen=True)
class Processes:
    """Several processes.

    Args:
      coordinator: of process 0
      processes: how many processes train or predict together
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


@dataclasses.dataclass(frozen=True)
class DecisionFlags:
    """What a decision is to keep.

    Args:
      boundary: a boundary that matters; repeat the flag for several; the run's critical
        ones by default
      max_missed: the largest share of the images above the boundary that may be put
        below; repeat the flag to give each --boundary its own, in the same order
      cost: in place of --max-missed: what a mistake at a boundary costs, or '1|2=5:1'
        for missed and false alarm; repeat the flag for several, others cost 1
      guarantee: hold --max-missed by conformal risk control; needs a run trained with
        --config.data.calibration_fraction above 0
      coverage: sets of neighbouring ranks that hold the true one for this share of
        images; alone or beside the others; needs a run trained with
        --config.data.calibration_fraction above 0
      sets: of --coverage, how sets grow: from the most probable rank to the more
        probable neighbour, or from the median by the ranked probability score
    """

    boundary: Boundaries = ()
    max_missed: Annotated[Sequence[float], Written("SHARE")] = ()
    cost: Annotated[Sequence[str], Written("'1|2=5'")] = ()
    guarantee: bool = False
    coverage: Annotated[float | None, Written("SHARE")] = None
    sets: Literal["greedy", "rps"] = "greedy"

    @property
    def is_anything(self) -> bool:
        """Whether a decision is asked for."""
        chosen = self.boundary or self.max_missed or self.cost or self.guarantee
        return bool(chosen) or self.coverage is not None


NO_DECISION = DecisionFlags()


@dataclasses.dataclass(frozen=True)
class TableFlags:
    """Which of the paper's runs are wanted.

    Args:
      only: some of comparison, controllability, bias, ablations, backbones, classes,
        time; all by default
      data: datasets, by the names of configs/, such as koa,idrid; the paper's six by
        default
      methods: such as cloc,ce; the paper's nine and ce by default
      protocol: a frozen encoder; one trained from layer4 on, on kept views; or the
        whole network, as in the paper
      root: where a dataset lies; repeat the flag for several
      set: a setting of one dataset, such as 'koa:data.size=(72,120)', or of one method
        on it (koa/dino:…); repeat the flag for several
      margin: at which critical margins are fixed when controlled; of several,
        validation data choose one
      folds: of adience and hid: all, or such as 0,3
    """

    only: Names = ()
    data: Names = ()
    methods: Names = ()
    protocol: Literal["frozen", "partial", "whole"] = "whole"
    root: Annotated[Sequence[str], Written("DATASET=DIR")] = ()
    set: Annotated[Sequence[str], Written("DATASET:SETTING=VALUE")] = ()
    margin: Margins = (1.0,)
    folds: str = "all"


ALL_TABLES = TableFlags()
