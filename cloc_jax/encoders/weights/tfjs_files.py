"""Reading TensorFlow.js models: a folder, or the archive that `npm pack` leaves.

model.json lists tensors in groups; the bytes of a group are its shards put one after
another, so a tensor may begin in one shard and end in another. Nothing is unpacked to
the disk and no link in an archive is followed.
"""

import collections
import gzip
import hashlib
import json
import math
import pathlib
import posixpath
import tarfile
import zlib
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

import numpy as np

from cloc_jax.runtime import files

MODEL = "model.json"
MAX_TEXT = 64 * 2**20  # bytes of a model.json or package.json; real ones have 0.1 MiB
MAX_MEMBERS = 100_000  # files in an archive; real ones have dozens
_CHUNK = 2**20  # bytes
# Types that tensors of networks have, little-endian in the shards.
TYPES = {"float32": "<f4", "int32": "<i4", "bool": "|b1"}
QUANTISED = {"float16": "<f2", "uint8": "|u1", "uint16": "<u2"}


class Entry(NamedTuple):
    """One tensor as model.json describes it."""

    name: str
    shape: tuple[int, ...]
    dtype: str  # what it stands for
    stored: np.dtype  # what its bytes are
    scale: float = 1.0
    minimum: float = 0.0

    @property
    def size(self) -> int:
        """Bytes in the shards."""
        return math.prod(self.shape) * self.stored.itemsize


class Group(NamedTuple):
    """Tensors that share shards."""

    shards: list[str]
    entries: list[Entry]


def read_folder(folder: pathlib.Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors by name, and metadata, of the model.json in a folder.

    The sha256 is that of model.json followed by the shards in its order.
    """
    if not (folder / MODEL).is_file():
        below = sorted(str(path.parent) for path in folder.glob(f"*/{MODEL}"))
        hint = f"; there is one in {below[0]}" if below else ""
        raise ValueError(
            f"{folder} has no {MODEL}, so it is no TensorFlow.js model{hint}. Give the "
            f"folder that holds {MODEL} and its shards, or a file of weights."
        )
    text = files.read_regular(folder / MODEL, max_bytes=MAX_TEXT)
    groups = _groups(text, str(folder / MODEL))
    digest = hashlib.sha256(text)
    shards = {}
    for name in _shards(groups):
        if not (folder / name).is_file():
            raise ValueError(_missing(folder, name))
        shards[name] = (folder / name).read_bytes()
        digest.update(shards[name])
    metadata = {"source": folder.absolute().name, "sha256": digest.hexdigest()}
    return _tensors(groups, shards, folder), metadata


def read_archive(path: pathlib.Path) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    """Tensors by name, and metadata, of the one model in a .tgz."""
    try:
        with gzip.open(path) as unpacking:
            limited = files.LimitedReader(unpacking, path)
            # The methods that tarfile calls are there.
            with tarfile.open(fileobj=cast(Any, limited), mode="r:") as archive:
                return _read_archive(archive, path)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise ValueError(
            f"{path} is cut short or damaged ({type(error).__name__}); get it again."
        ) from error


def _read_archive(
    archive: tarfile.TarFile, path: pathlib.Path
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
    members = {}
    for number, member in enumerate(archive):
        if number == MAX_MEMBERS:
            raise ValueError(
                f"{path} holds more than {MAX_MEMBERS:,} files; unpack it and give the "
                "folder of its model."
            )
        if member.isreg():
            members[posixpath.normpath(member.name)] = member
    models = [name for name in members if posixpath.basename(name) == MODEL]
    if len(models) != 1:
        held = f"several models: {', '.join(models)}" if models else f"no {MODEL}"
        raise ValueError(
            f"{path} holds {held}; give an archive with one TensorFlow.js model, or "
            "unpack it and give the folder of one."
        )

    def read(member: tarfile.TarInfo, limit: int) -> bytes:
        if member.size > limit:
            raise ValueError(
                f"{member.name} in {path} has {member.size} bytes, but {limit} is the "
                "most it can have; get the archive again."
            )
        file = archive.extractfile(member)
        assert file is not None  # a regular file has content
        return b"".join(iter(lambda: file.read(_CHUNK), b""))

    groups = _groups(read(members[models[0]], MAX_TEXT), f"{models[0]} in {path}")
    wanted = {}
    for name in _shards(groups):
        inside = posixpath.join(posixpath.dirname(models[0]), name)
        if inside not in members:
            raise ValueError(_missing(path, inside))
        wanted[name] = members[inside]
    # In the archive's order: going back would decompress from the start again.
    order = sorted(wanted, key=lambda name: wanted[name].offset_data)
    limit = sum(entry.size for group in groups for entry in group.entries)
    shards = {name: read(wanted[name], limit) for name in order}
    texts = {
        name: read(member, MAX_TEXT)
        for name, member in members.items()
        if name in ("package/package.json", "package/LICENSE")
    }
    return _tensors(groups, shards, path), _package(texts)


def _groups(text: bytes, where: str) -> list[Group]:
    try:
        groups = [
            Group([str(path) for path in group["paths"]], _entries(group["weights"]))
            for group in json.loads(text)["weightsManifest"]
        ]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(
            f"{where} does not describe the weights of a TensorFlow.js model "
            f"({type(error).__name__}: {error}); get the model again."
        ) from error
    for name in _shards(groups):
        if posixpath.normpath(name) != name or name.startswith(("/", "..")):
            raise ValueError(
                f"{where} names the shard {name!r}, which is no plain path below its "
                "folder; it was not read."
            )
    names = [entry.name for group in groups for entry in group.entries]
    twice = [name for name, count in collections.Counter(names).items() if count > 1]
    if twice:
        raise ValueError(f"{where} lists {twice[0]} twice; get the model again.")
    return groups


def _entries(weights: list[dict[str, Any]]) -> list[Entry]:
    entries = []
    for weight in weights:
        name, shape, dtype = weight["name"], tuple(weight["shape"]), weight["dtype"]
        if not isinstance(name, str):
            raise ValueError(f"a tensor is called {name!r}")
        if not all(isinstance(side, int) and side >= 0 for side in shape):
            raise ValueError(f"{name} has the shape {shape}")
        quantised = weight.get("quantization")
        types = QUANTISED if quantised else TYPES
        stored = quantised["dtype"] if quantised else dtype
        if stored not in types:
            raise ValueError(f"{name} has type {stored}; known: {', '.join(types)}")
        entry = Entry(name, shape, dtype, np.dtype(types[stored]))
        if quantised and stored != "float16":
            scale, minimum = float(quantised["scale"]), float(quantised["min"])
            entry = entry._replace(scale=scale, minimum=minimum)
        entries.append(entry)
    return entries


def _shards(groups: list[Group]) -> list[str]:
    return [name for group in groups for name in group.shards]


def _tensors(
    groups: list[Group], shards: Mapping[str, bytes], where: pathlib.Path
) -> dict[str, np.ndarray]:
    tensors = {}
    for group in groups:
        content = b"".join(shards[name] for name in group.shards)
        expected = sum(entry.size for entry in group.entries)
        if len(content) != expected:
            raise ValueError(
                f"the shards {', '.join(group.shards)} of {where} have {len(content)} "
                f"bytes, but {MODEL} lists {expected}; get the model again."
            )
        start = 0
        for entry in group.entries:
            end = start + entry.size
            tensors[entry.name] = _decode(entry, content[start:end])
            start = end
    return tensors


def _decode(entry: Entry, content: bytes) -> np.ndarray:
    stored = np.frombuffer(content, entry.stored).reshape(entry.shape)
    if entry.stored.kind != "u":
        return stored  # float16 stays so, since float32 would say no more
    value = stored.astype(np.float64) * entry.scale + entry.minimum
    return value.round().astype("i4") if entry.dtype == "int32" else value.astype("f4")


def _missing(where: pathlib.Path, name: str) -> str:
    return (
        f"{where} lacks the shard {name} that its {MODEL} lists; get the model again, "
        "with all its shards."
    )


def _package(texts: Mapping[str, bytes]) -> dict[str, str]:
    """What an npm package says about itself: name, version and licence."""
    metadata = {}
    declared = ""
    try:
        package = json.loads(texts.get("package/package.json", b"{}"))
        if "name" in package and "version" in package:
            metadata["source"] = f"npm {package['name']} {package['version']}"
        declared = str(package.get("license", ""))
    except (ValueError, AttributeError, TypeError):
        pass  # a model without a readable package.json is still a model
    lines = texts.get("package/LICENSE", b"").decode(errors="replace").splitlines()
    title = next((line.strip() for line in lines if line.strip()), "")
    stated = title.removesuffix(" License") if len(title) < 40 else ""
    if stated and declared and stated != declared:
        metadata["licence"] = f"{stated} (LICENSE), {declared} (package.json)"
    elif stated or declared:
        metadata["licence"] = stated or declared
    return metadata
