"""Files of weights, of every common format, as NumPy arrays by the file's own names.

`read` knows a file by its content, not its ending. `filling.canonical` then brings the
names to torchvision's, and `write` keeps the result as safetensors. No pickle is ever
executed, and nothing is unpacked to the disk.
"""

import pathlib
import pickle
import re
import warnings
import zipfile
from collections.abc import Mapping
from typing import Any, NamedTuple

import h5py
import ml_dtypes  # NumPy knows bfloat16 by it, and safetensors by NumPy
import numpy as np
import safetensors
import safetensors.numpy

from cloc_jax.runtime import files

Tensors = dict[str, np.ndarray]
Metadata = dict[str, str]

MISSING = (
    "Weights can be a safetensors or .pth file of torchvision or timm; a name on the "
    "Hugging Face hub such as timm/resnet50.tv_in1k, which is downloaded; or none: "
    "encoder.weights=random starts from scratch."
)
FORMATS = "safetensors, PyTorch (.pth, .pt, .bin) and Keras (.h5, .weights.h5)"
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin", ".h5")

# Variables of Keras' layers, in the order in which `save_weights` numbers them.
KERAS_VARIABLES = {
    "conv2d": ("kernel", "bias"),
    "dense": ("kernel", "bias"),
    "batch_normalization": ("gamma", "beta", "moving_mean", "moving_variance"),
}


class Raw(NamedTuple):
    """Tensors by their names in a file.

    Metadata: what the file says about itself, and format, source (the file's name) and
    sha256 (of its bytes). A file that names its own source and sha256 keeps them: it
    was converted, and they tell from what.
    """

    tensors: Tensors
    metadata: Metadata


def read(path: str | pathlib.Path) -> Raw:
    """What a file of weights holds; ValueError where it is none that can be read.

    float16 stays float16; bfloat16, which NumPy lacks, becomes float32.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}. {MISSING}")
    form = _format(path)
    stored: Metadata = {}
    if form == "safetensors":
        tensors, stored = _read_safetensors(path)
    elif form == "torch":
        tensors = _read_torch(path)
    else:
        tensors, form = _read_keras(path)
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
    variables. Keras 3 adds each layer's name as an attribute; files of Keras 2, which
    lack it, are refused.
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
    if not all("name" in group.attrs for group in groups.values()):
        raise ValueError(
            f"{where} does not name its layers; save it with Keras 3, or as .h5."
        )
    layers = {path: str(group.attrs["name"]) for path, group in groups.items()}
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
