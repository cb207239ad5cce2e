"""Flags of the command line, from the signatures of jobs.

A job is a function: its parameters are its flags with their defaults, and its docstring
has the help, one entry of "Args:" per flag. A parameter whose type is a dataclass
stands for a group of flags, its fields.
"""

import argparse
import dataclasses
import inspect
import re
import sys
import typing
from collections.abc import Callable, Iterator, Sequence
from typing import Annotated, Any, Literal, NamedTuple, NoReturn

from cloc_jax.cli.settings import Settings
from cloc_jax.runtime import environment, processes
from cloc_jax.runtime.errors import printable

Job = Callable[..., int]


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
        if is_joint:
            processes.guard()
        environment.set_up_libraries(is_joint=is_joint)
        from cloc_jax.runtime.console import console

        processes.connect(self.coordinator, self.processes, self.process)
        console.quiet = not processes.is_first()


ALONE = Processes()
