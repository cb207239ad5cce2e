"""Files of weights as NumPy arrays by the file's own names.

`read` goes by content, not by ending. It executes no pickle and unpacks to no disk.
"""

import pathlib
import pickle
import warnings

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
SUFFIXES = (".safetensors", ".pth", ".pt", ".bin")


def read(path: pathlib.Path) -> tuple[Tensors, Metadata]:
    """Tensors of a file by their names in it, and what it says about itself.

    Metadata has the source, the file's name, and sha256, of its bytes; a converted file
    keeps its own, which tell from what. ValueError where it is none that can be read.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {path}. {MISSING}")
    with path.open("rb") as file:
        head = file.read(16)
    metadata: Metadata = {}
    if head.startswith(b"PK\x03\x04") or (head[:1] == b"\x80" and head[1:2] <= b"\x05"):
        tensors = _read_torch(path)
    elif path.suffix == ".safetensors" or head[8:9] == b"{":
        tensors, metadata = _read_safetensors(path)
    else:
        raise ValueError(
            f"{path} begins with {head!r}, as no file of weights does; formats that "
            "can be read: safetensors and PyTorch (.pth, .pt, .bin)."
        )
    if not tensors:
        raise ValueError(
            f"{path} holds no tensors by name, as what model.state_dict() gives does; "
            f"get another file. {MISSING}"
        )
    if "sha256" not in metadata:
        metadata["sha256"] = files.sha256(path)
    return tensors, {"source": path.name} | metadata


def write(path: pathlib.Path, tensors: Tensors, metadata: Metadata) -> None:
    """Writes safetensors, whole or not at all, and never over another file."""
    if path.exists():
        raise FileExistsError(f"{path} exists; give another name or move it away.")
    # safetensors writes the memory as it lies, also that of a transposed view.
    tensors = {name: np.asarray(t, order="C") for name, t in tensors.items()}
    path.parent.mkdir(parents=True, exist_ok=True)
    # Not its own save_file, which makes files that only their owner can read.
    files.write_bytes(path, safetensors.numpy.save(tensors, metadata=metadata))


def _read_safetensors(path: pathlib.Path) -> tuple[Tensors, Metadata]:
    try:
        with safetensors.safe_open(path, framework="np") as file:
            tensors = {name: file.get_tensor(name) for name in file.keys()}
            return tensors, dict(file.metadata() or {})
    except (safetensors.SafetensorError, TypeError) as error:
        raise _damaged(path, error) from error


def _read_torch(path: pathlib.Path) -> Tensors:
    try:
        import torch
    except ImportError as error:
        raise ValueError(
            f"{path} is a file of PyTorch, which is needed to read it: pip install "
            "torch; or give the same weights as safetensors."
        ) from error
    files.check_unpacked_zip(path)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pickle's versions
            loaded = torch.load(path, map_location="cpu", weights_only=True)
        state = loaded if isinstance(loaded, dict) else {}
        return {k: v.detach().numpy() for k, v in state.items() if torch.is_tensor(v)}
    except pickle.UnpicklingError as error:
        raise ValueError(
            f"{path} was refused: it holds more than tensors, and opening it would "
            "execute code that is in it (pickle). If you trust it, save "
            "model.state_dict() of it with PyTorch and give that file."
        ) from error
    except Exception as error:  # damage surfaces as nearly any of them
        raise _damaged(path, error) from error


def _damaged(path: pathlib.Path, error: Exception) -> ValueError:
    reason = str(error).strip().splitlines() or [type(error).__name__]
    return ValueError(
        f"{path} is cut short, damaged or of types that cannot be read "
        f"({reason[0][:120].rstrip('.')}); get it again."
    )
