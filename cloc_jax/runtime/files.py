"""Files that are whole or not there, checked when they are read, and never too large.

Ours are written beside their place, then renamed. A JSON file carries its checksum and
the mark of its run under one more key, and its fields are of their types; a whole
folder of arrays has a list of its files with their checksums. `Damaged` names the file
and what to do. Files that a user names have to be regular, and unpack up to a limit.
"""

import contextlib
import csv
import dataclasses
import functools
import hashlib
import io
import itertools
import json
import os
import pathlib
import re
import stat
import types
import typing
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeVar

from cloc_jax.runtime import errors

PART = ".part"  # suffix of what is being written
KEY = "integrity"  # of the checksum in a JSON object
SEAL = "checksums.json"  # in a sealed folder

MEBIBYTE = 2**20
READ_LIMIT = 512 * MEBIBYTE  # of an image or a table
UNPACKED_LIMIT = 4 * 2**30  # bytes that one packed file may unpack to
# Cells that a spreadsheet takes for a formula, and those with the mark against it.
_FORMULA = re.compile(r"(?![+-]?[0-9.]+(e[+-]?[0-9]+)?$)[=+@\t\r'-]")
T = TypeVar("T")


class Damaged(ValueError):
    """A file is not as it was written."""

    def __init__(self, path: pathlib.Path, problem: str, remedy: str):
        super().__init__(f"{path} is damaged: {problem}. {remedy}")
        self.path = path


class NotRegularError(ValueError):
    """Something that has a file's name, but is none or is too large."""


class TooLarge(ValueError):
    """Something that would take more memory than the limit."""


# --- writing ---


def write_bytes(path: pathlib.Path, data: bytes) -> None:
    """Writes bytes, replacing the file as a whole."""
    # Two processes may write the same file at once.
    part = path.with_name(f"{path.name}.{os.getpid()}{PART}")
    try:
        with errors.naming(path), part.open("wb") as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())  # else a crash may leave the name without content
        os.replace(part, path)
    finally:
        part.unlink(missing_ok=True)


@contextlib.contextmanager
def claimed(path: pathlib.Path) -> Iterator[None]:
    """Makes a new file, for what is to be written; it goes where that fails.

    FileExistsError where there is one: of several processes, one makes it.
    """
    path.touch(exist_ok=False)
    try:
        yield
    except BaseException:
        path.unlink()
        raise


def is_part(path: pathlib.Path) -> bool:
    """Whether a file is what `write_bytes` leaves where it is killed."""
    return bool(re.search(rf"\.\d+\{PART}$", path.name)) and path.is_file()


def write_text(path: pathlib.Path, text: str) -> None:
    """Writes UTF-8 text, replacing the file as a whole."""
    write_bytes(path, text.encode())


def write_json(path: pathlib.Path, value: Any) -> None:
    """Writes strict JSON, replacing the file as a whole."""
    write_text(path, json.dumps(value, indent=2, allow_nan=False) + "\n")


def write_csv(path: pathlib.Path, rows: Iterable[Sequence[Any]]) -> None:
    """Writes a table as UTF-8, replacing the file as a whole.

    Names of files that are not UTF-8 keep their bytes. A cell that a spreadsheet would
    run as a formula, such as a file called =A1.png, gets a ' in front.
    """
    text = io.StringIO(newline="")
    for row in rows:
        is_run = [isinstance(cell, str) and _FORMULA.match(cell) for cell in row]
        marked = [f"'{c}" if run else c for c, run in zip(row, is_run, strict=True)]
        csv.writer(text).writerow(marked)
    write_bytes(path, text.getvalue().encode(errors="surrogateescape"))


def read_csv(path: pathlib.Path) -> Iterator[dict[str, str]]:
    """The rows of a table that `write_csv` wrote, by the names in its first one."""
    text = path.read_text(encoding="utf-8", errors="surrogateescape")
    for row in csv.DictReader(io.StringIO(text, newline="")):
        yield {name: cell.removeprefix("'") for name, cell in row.items()}


def unused_path(path: pathlib.Path) -> pathlib.Path:
    """The path, or with -2, -3, … before its suffix: the first that does not exist."""
    others = (path.with_stem(f"{path.stem}-{n}") for n in range(2, 10**6))
    return next(p for p in itertools.chain([path], others) if not p.exists())


# --- JSON with a checksum ---


def sealed(value: Mapping[str, Any], owner: str = "") -> dict[str, Any]:
    """The object with its checksum, and the mark of its owner, as the last entry."""
    plain = {key: item for key, item in value.items() if key != KEY}
    digest = hashlib.sha256((json.dumps(plain) + owner).encode()).hexdigest()[:32]
    return plain | {KEY: ":".join(filter(None, ("v1", digest, owner)))}


def unsealed(text: str | bytes, owner: str | None = None) -> dict[str, Any]:
    """The object that a text holds, without its checksum.

    ValueError says in a few words what is wrong with it.
    """
    value, found = _opened(text)
    if owner not in (None, found):
        raise ValueError("it is of another run")
    return value


def _opened(text: str | bytes) -> tuple[dict[str, Any], str]:
    """The object that a text holds, and its owner."""
    try:
        value = json.loads(text)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except (ValueError, RecursionError):
        problem = "it is not valid JSON" if text.strip() else "it is empty"
        raise ValueError(problem) from None
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}, not an object")
    seal = value.pop(KEY, "")
    owner = str(seal).partition(":")[2].partition(":")[2]
    if seal != sealed(value, owner)[KEY]:
        raise ValueError("it does not match its checksum")
    return value, owner


def write_sealed(path: pathlib.Path, value: Mapping[str, Any], owner: str = "") -> None:
    """Writes strict JSON with its checksum, replacing the file as a whole."""
    write_json(path, sealed(value, owner))


def read_sealed(
    path: pathlib.Path,
    *,
    remedy: str,
    fields: Mapping[str, Any] = types.MappingProxyType({}),
    owner: str | None = None,
) -> dict[str, Any]:
    """What `write_sealed` wrote; Damaged where it is missing or not as it was written.

    `remedy` says in a sentence what can be done about a damaged one, `fields` those
    that it must have, with their types, and `owner` whose it must be, if not anybody's.
    """
    try:
        return check_fields(unsealed(read_regular(path), owner), fields)
    except FileNotFoundError:
        raise Damaged(path, "it is missing", remedy) from None
    except NotRegularError:
        raise
    except ValueError as error:
        raise Damaged(path, str(error), remedy) from None


def check_fields(value: dict[str, Any], fields: Mapping[str, Any]) -> dict[str, Any]:
    """The object; ValueError where a field is missing or of another type."""
    for name, annotation in fields.items():
        if name not in value:
            raise ValueError(f"it lacks {name}")
        value[name] = _read(annotation, value[name], name)
    return value


def read_dataclass(
    kind: type[T], path: pathlib.Path, *, remedy: str, owner: str | None = None
) -> T:
    """The same as an instance of a dataclass, whose annotations it has to keep."""
    plain = read_sealed(path, remedy=remedy, owner=owner)
    try:
        return from_plain(kind, plain)
    except ValueError as error:
        raise Damaged(path, str(error), remedy) from None


def owner_of(path: pathlib.Path) -> str | None:
    """The owner of a sealed file; None where it is missing, or as nobody sealed it."""
    try:
        return _opened(read_regular(path))[1]
    except (FileNotFoundError, ValueError):
        return None


# --- JSON as dataclasses ---


def to_plain(value: Any) -> Any:
    """Dataclasses as dicts and tuples as lists, all the way down."""
    if dataclasses.is_dataclass(value) and not isinstance(value, type):
        fields = dataclasses.fields(value)
        return {f.name: to_plain(getattr(value, f.name)) for f in fields}
    if isinstance(value, Mapping):
        return {key: to_plain(item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [to_plain(item) for item in value]
    return value


def from_plain(kind: type[T], plain: Any, name: str = "") -> T:
    """An instance of a dataclass from what `to_plain` made of it.

    Missing fields get their defaults; unknown ones are ignored: a file may hold more.

    Its fields are annotated with plain types, other dataclasses, `list[…]`, `tuple[…,
    ...]`, `dict[str, …]` and unions with None of these. ValueError names a wrong field.
    """
    given = _checked(plain, Mapping, "an object", name or kind.__name__)
    values = {}
    for field in dataclasses.fields(kind):  # type: ignore[arg-type]
        place = f"{name}.{field.name}" if name else field.name
        if field.name in given:
            annotation = _annotations(kind)[field.name]  # type: ignore[arg-type]
            values[field.name] = _read(annotation, given[field.name], place)
        elif field.default is field.default_factory is dataclasses.MISSING:
            raise ValueError(f"{place} is missing")
    return kind(**values)


_annotations = functools.cache(typing.get_type_hints)


def _read(annotation: Any, value: Any, name: str) -> Any:
    origin, inner = typing.get_origin(annotation), typing.get_args(annotation)
    if annotation is Any or (value is None and type(None) in inner):
        return value
    if origin in (types.UnionType, typing.Union):
        (only,) = [kind for kind in inner if kind is not type(None)]
        return _read(only, value, name)
    if dataclasses.is_dataclass(annotation):
        return from_plain(typing.cast(type, annotation), value, name)
    if origin in (list, tuple):
        items = enumerate(_checked(value, list | tuple, "a list", name))
        return origin([_read(inner[0], item, f"{name}[{i}]") for i, item in items])
    if origin is dict:
        pairs = _checked(value, Mapping, "an object", name).items()
        return {key: _read(inner[1], item, f"{name}.{key}") for key, item in pairs}
    if annotation is float and type(value) is int:
        return float(value)
    is_other = type(value) is not annotation  # True is no number
    return _checked(value, () if is_other else annotation, annotation.__name__, name)


def _checked(value: Any, kind: Any, words: str, name: str) -> Any:
    if isinstance(value, kind):
        return value
    text = repr(value)
    shown = text if len(text) <= 40 else f"{text[:37]}..."
    raise ValueError(f"{name} is {shown}, not {words}")


# --- other files with checksums, and folders ---


def sha256(path: pathlib.Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_digest(path: pathlib.Path, digest: str, *, remedy: str) -> None:
    """Damaged where a file is not there or not the one with this checksum."""
    if not path.is_file():
        raise Damaged(path, "it is missing", remedy)
    if sha256(path) != digest:
        raise Damaged(path, "it does not match its checksum", remedy)


def read_arrays(path: pathlib.Path, *, remedy: str) -> dict[str, Any]:
    """The arrays of an .npz, whose parts have checksums; Damaged where one is wrong."""
    import numpy as np  # late: `launch.py --help` answers at once

    check_regular(path)
    check_unpacked_zip(path)
    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except Exception as error:  # damage surfaces as nearly any of them
        problem = str(error).rstrip(".") or type(error).__name__
        raise Damaged(path, problem, remedy) from None


def seal_folder(folder: pathlib.Path, owner: str = "") -> None:
    """Writes the checksums of all files in a folder into it."""
    digests = {
        path.relative_to(folder).as_posix(): sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != SEAL
    }
    write_sealed(folder / SEAL, {"files": digests}, owner)


def check_folder(
    folder: pathlib.Path, *, remedy: str, owner: str | None = None
) -> None:
    """Damaged where a sealed folder is not as it was written, or is not the owner's."""
    fields = {"files": dict[str, str]}
    seal = read_sealed(folder / SEAL, remedy=remedy, fields=fields, owner=owner)
    for name, digest in seal["files"].items():
        check_digest(folder / name, digest, remedy=remedy)


# --- files that a user names ---


def read_regular(path: str | os.PathLike) -> bytes:
    """The content of a file, whatever its name may stand for.

    A named pipe waits for a writer that may never come, a device may never end. Those,
    and what is larger than READ_LIMIT, are a NotRegularError.
    """
    status = check_regular(path)
    if status.st_size > READ_LIMIT:
        raise NotRegularError(
            f"{path}: the file has {status.st_size / MEBIBYTE:,.0f} MiB, more than the "
            f"limit of {READ_LIMIT / MEBIBYTE:,.0f} MiB that guards memory; make it "
            "smaller."
        )
    with open(path, "rb") as file:
        return file.read(READ_LIMIT)  # even where it grows meanwhile


def check_regular(path: str | os.PathLike) -> os.stat_result:
    """NotRegularError where a name does not stand for a regular file."""
    status = os.stat(path)  # before opening, which may have effects
    if not stat.S_ISREG(status.st_mode):
        raise NotRegularError(
            f"{path}: it is a folder, a named pipe, a socket or a device, and only "
            "regular files are read; remove or copy it."
        )
    return status


def check_unpacked_zip(path: pathlib.Path) -> None:
    """TooLarge where a zip archive, such as .npz, unpacks to more than the limit.

    A few kilobytes can unpack to terabytes. What is no archive is left to its reader.
    """
    try:
        with zipfile.ZipFile(path) as archive:
            size = sum(member.file_size for member in archive.infolist())
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):
        return
    if size > UNPACKED_LIMIT:
        raise TooLarge(
            f"{path} unpacks to {size / 2**30:,.2f} GiB, beyond the limit of "
            f"{UNPACKED_LIMIT / 2**30:g} GiB that guards memory; get another file."
        )
