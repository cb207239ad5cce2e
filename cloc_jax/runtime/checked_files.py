"""Files that are checked when they are read: JSON with a checksum, sealed folders.

A JSON file carries a checksum of itself under one more key; a folder of arrays, once it
is whole, gets a list of its files with theirs. Files of older runs, which have neither,
are read all the same. `Damaged` names the file and what can be done about it.
"""

import hashlib
import json
import pathlib
import re
from collections.abc import Collection, Mapping
from typing import Any

from cloc_jax.runtime import atomic_files

KEY = "integrity"  # of the checksum in a JSON object: "v<version>:<part of a SHA-256>"
VERSION = 1
_SEALED = re.compile(r"v[0-9]+:[0-9a-f]{32}")  # a checksum, whatever it is called
SEAL = "checksums.json"  # in a sealed folder


class Damaged(ValueError):
    """A file is not as it was written."""

    def __init__(self, path: pathlib.Path, problem: str, remedy: str):
        super().__init__(f"{path} is damaged: {problem}. {remedy}")
        self.path = path


# --- JSON ---


def sealed(value: Mapping[str, Any]) -> dict[str, Any]:
    """The object with its checksum as the last entry."""
    plain = {key: item for key, item in value.items() if key != KEY}
    return plain | {KEY: f"v{VERSION}:{_digest(plain)}"}


def opened(text: str | bytes) -> dict[str, Any]:
    """The object that a text holds, without its checksum.

    ValueError says in a few words what is wrong with it.
    """
    try:
        value = json.loads(text)
    except UnicodeDecodeError:
        raise ValueError("it is not UTF-8") from None
    except (ValueError, RecursionError):
        problem = "it is not valid JSON" if text.strip() else "it is empty"
        raise ValueError(problem) from None
    if not isinstance(value, dict):
        raise ValueError(f"it holds a {type(value).__name__}, not an object")
    if KEY not in value:
        if any(_SEALED.fullmatch(str(item)) for item in value.values()):
            raise ValueError("the name of its checksum is damaged")
        return value  # of an older run
    version, _, digest = str(value.pop(KEY)).partition(":")
    if version != f"v{VERSION}" and version[1:].isdecimal() and int(version[1:]) > 1:
        raise ValueError(
            f"it was written by a newer version of cloc_jax ({version}), or its "
            "checksum changed"
        )
    if digest != _digest(value):
        raise ValueError("it does not match its checksum")
    return value


def write_json(path: pathlib.Path, value: Mapping[str, Any]) -> None:
    """Writes strict JSON with its checksum, replacing the file as a whole."""
    atomic_files.write_json(path, sealed(value))


def read_json(
    path: pathlib.Path, *, remedy: str, fields: Collection[str] = ()
) -> dict[str, Any]:
    """What `write_json` wrote, or a file of an older run; else Damaged.

    Args:
      remedy: a sentence that says what can be done about a damaged one.
      fields: that it must have.
    """
    try:
        value = opened(path.read_bytes())
    except ValueError as error:
        raise Damaged(path, str(error), remedy) from None
    missing = [field for field in fields if field not in value]
    if missing:
        raise Damaged(path, f"it lacks {', '.join(missing)}", remedy)
    return value


def is_sealed(path: pathlib.Path) -> bool:
    """Whether a JSON file, which has to be there, carries a checksum."""
    return f'"{KEY}"'.encode() in path.read_bytes()


def _digest(value: Mapping[str, Any]) -> str:
    return hashlib.sha256(json.dumps(value).encode()).hexdigest()[:32]


# --- other files, and folders ---


def sha256(path: pathlib.Path) -> str:
    """The checksum of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def check_file(path: pathlib.Path, digest: str, *, remedy: str) -> None:
    """Damaged where a file is not there or not the one with this checksum."""
    if not path.is_file():
        raise Damaged(path, "it is missing", remedy)
    if sha256(path) != digest:
        raise Damaged(path, "it does not match its checksum", remedy)


def read_arrays(path: pathlib.Path, *, remedy: str) -> dict[str, Any]:
    """The arrays of an .npz, whose parts have checksums; Damaged where one is wrong."""
    import numpy as np  # late: `launch.py --help` answers at once

    try:
        with np.load(path, allow_pickle=False) as arrays:
            return {key: arrays[key] for key in arrays.files}
    except Exception as error:  # damage surfaces as nearly any of them
        problem = str(error).rstrip(".") or type(error).__name__
        raise Damaged(path, problem, remedy) from None


def seal_folder(folder: pathlib.Path) -> pathlib.Path:
    """Writes the checksums of all files in a folder into it; returns their list."""
    files = {
        path.relative_to(folder).as_posix(): sha256(path)
        for path in sorted(folder.rglob("*"))
        if path.is_file() and path.name != SEAL
    }
    write_json(folder / SEAL, {"files": files})
    return folder / SEAL


def check_folder(folder: pathlib.Path, *, remedy: str) -> bool:
    """Whether the folder is sealed; Damaged where a file differs from its checksum."""
    seal = folder / SEAL
    if not seal.is_file():
        return False
    files = read_json(seal, remedy=remedy, fields=("files",))["files"]
    for name, digest in files.items():
        check_file(folder / name, digest, remedy=remedy)
    return True
