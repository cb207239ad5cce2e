"""Reading Keras weights from HDF5, as `layer/variable` such as `conv1_conv/kernel`.

There are two layouts. Files of Keras 1 and 2, which keras.applications downloads, have
one group per layer and name every variable. Files of `save_weights("x.weights.h5")`
have one group per layer too, but named by its class and a count (`conv2d_3`), and
number the variables. Keras 3 adds each layer's name as an attribute; older versions do
not, and then only the order of the layers tells which is which.
"""

import re
from typing import Any

import h5py
import ml_dtypes
import numpy as np

from cloc_jax.runtime import files

VARIABLES = {
    "conv2d": ("kernel", "bias"),
    "dense": ("kernel", "bias"),
    "batch_normalization": ("gamma", "beta", "moving_mean", "moving_variance"),
}
# How Keras 1 called the variables. Its running_std holds the variance.
OLD_NAMES = {
    "W": "kernel",
    "b": "bias",
    "running_mean": "moving_mean",
    "running_std": "moving_variance",
}


def read(file: h5py.File) -> tuple[dict[str, np.ndarray], str]:
    """Tensors by name and the layout they were in."""
    root = file["model_weights"] if "model_weights" in file else file
    if "layer_names" in root.attrs or "layer_names0" in root.attrs:
        return _named(root), "keras h5"
    groups = _numbered_groups(root)
    if not groups:
        raise ValueError(
            f"{file.filename} is HDF5 but holds no weights of Keras layers; give a "
            "file that save_weights wrote."
        )
    return _numbered(groups, file.filename), "keras weights.h5"


def _named(root: h5py.Group) -> dict[str, np.ndarray]:
    tensors = _Tensors(root.file.filename)
    for layer in _strings(root, "layer_names"):
        for path in _strings(root[layer], "weight_names"):
            name = f"{layer}/{_variable(path, layer)}"
            if name in tensors:
                raise ValueError(
                    f"{root.file.filename} has two tensors for {name}; a model "
                    "within a model cannot be read, save its weights alone."
                )
            tensors.add(name, root[layer][path])
    return tensors


def _strings(group: h5py.Group, name: str) -> list[str]:
    """A list of names; Keras cuts lists too long for one attribute into parts."""
    parts = [group.attrs[name]] if name in group.attrs else []
    while f"{name}{len(parts)}" in group.attrs:
        parts.append(group.attrs[f"{name}{len(parts)}"])
    return [s.decode() if isinstance(s, bytes) else str(s) for p in parts for s in p]


def _variable(path: str, layer: str) -> str:
    """conv1/conv1_W_1:0 -> kernel; conv1_conv/kernel:0 -> kernel."""
    last = path.rsplit("/", 1)[-1].removesuffix(":0")
    match = re.fullmatch(rf"{re.escape(layer)}_(.+?)(_\d+)?", last)
    last = match[1] if match else last
    return OLD_NAMES.get(last, last)


def _numbered_groups(root: h5py.Group) -> dict[str, h5py.Group]:
    """Path of a layer -> the group with its numbered variables."""
    found = {}

    def visit(path: str, item: Any) -> None:
        holds = isinstance(item, h5py.Group) and len(item) > 0
        if holds and path.endswith("/vars") and not path.startswith("optimizer/"):
            found[path.removesuffix("/vars")] = item

    root.visititems(visit)
    return found


def _numbered(groups: dict[str, h5py.Group], where: str) -> dict[str, np.ndarray]:
    kinds = {path: re.sub(r"_\d+$", "", path.rsplit("/", 1)[-1]) for path in groups}
    unknown = sorted(set(kinds.values()) - set(VARIABLES))
    if unknown:
        raise ValueError(
            f"{where} has layers of kind {', '.join(unknown)}; known are "
            f"{', '.join(VARIABLES)}, the ones of ResNet, VGG and DenseNet."
        )
    if all("name" in group.attrs for group in groups.values()):
        names = {path: str(group.attrs["name"]) for path, group in groups.items()}
    else:
        names = _names_by_order(kinds, where)
    tensors = _Tensors(where)
    for path, group in groups.items():
        variables = VARIABLES[kinds[path]]
        # A layer may have no bias; of the four of a norm, none may lack.
        if len(group) not in ((4,) if len(variables) == 4 else (1, 2)):
            raise ValueError(
                f"{where} has {len(group)} variables in {path}; wanted "
                f"{', '.join(variables)}."
            )
        for number, variable in enumerate(variables[: len(group)]):
            tensors.add(f"{names[path]}/{variable}", group[str(number)])
    if sum(len(group) for group in groups.values()) != len(tensors):
        raise ValueError(f"{where} has two layers with one name; it cannot be read.")
    return tensors


def _names_by_order(kinds: dict[str, str], where: str) -> dict[str, str]:
    """Layer names from the order of layers, for the architectures that we know.

    The n-th convolution of the file is the n-th of Keras's `model.layers`, and so on.
    Shapes alone would not do: in a ResNet's first block two kernels have the same.
    """
    found = {
        kind: sorted((p for p, k in kinds.items() if k == kind), key=_count)
        for kind in VARIABLES
    }
    for order in (resnet50_layers(), vgg16_layers(), densenet121_layers()):
        known: dict[str, list[str]] = {kind: [] for kind in VARIABLES}
        for layer in order:
            known[_kind(layer)].append(layer)
        # Without the classifier, the dense layers are missing: `include_top=False`.
        if all(
            len(found[kind]) == len(known[kind]) or (kind, found[kind]) == ("dense", [])
            for kind in VARIABLES
        ):
            return {
                path: layer
                for kind in VARIABLES
                for path, layer in zip(found[kind], known[kind], strict=False)
            }
    counts = ", ".join(f"{len(paths)} {kind}" for kind, paths in found.items())
    raise ValueError(
        f"{where} does not name its layers, and no network known here has as many "
        f"({counts}); save it with Keras 3, or as .h5 with keras.applications' names."
    )


def _count(path: str) -> int:
    """conv2d -> 0, conv2d_3 -> 3."""
    match = re.search(r"_(\d+)$", path.rsplit("/", 1)[-1])
    return int(match[1]) if match else 0


def _kind(layer: str) -> str:
    if layer == "bn" or layer.endswith("_bn"):
        return "batch_normalization"
    return "conv2d" if "conv" in layer else "dense"


def resnet50_layers() -> list[str]:
    """Layers with weights of keras.applications.ResNet50 in Keras's order."""
    layers = ["conv1_conv", "conv1_bn"]
    for stage, blocks in ((2, 3), (3, 4), (4, 6), (5, 3)):
        for block in range(1, blocks + 1):
            parts = ["1_conv", "1_bn", "2_conv", "2_bn", "3_conv", "3_bn"]
            if block == 1:  # by depth: the shortcut is as deep as the last convolution
                parts[4:] = ["0_conv", "3_conv", "0_bn", "3_bn"]
            layers += [f"conv{stage}_block{block}_{part}" for part in parts]
    return [*layers, "predictions"]


def vgg16_layers() -> list[str]:
    """Layers with weights of keras.applications.VGG16 in Keras's order."""
    convs = [
        f"block{block}_conv{conv}"
        for block, count in enumerate((2, 2, 3, 3, 3), start=1)
        for conv in range(1, count + 1)
    ]
    return [*convs, "fc1", "fc2", "predictions"]


def densenet121_layers() -> list[str]:
    """Layers with weights of keras.applications.DenseNet121 in Keras's order."""
    layers = ["conv1_conv", "conv1_bn"]
    for stage, blocks in ((2, 6), (3, 12), (4, 24), (5, 16)):
        layers += [
            f"conv{stage}_block{block}_{part}"
            for block in range(1, blocks + 1)
            for part in ("0_bn", "1_conv", "1_bn", "2_conv")
        ]
        layers += [f"pool{stage}_bn", f"pool{stage}_conv"] if stage < 5 else ["bn"]
    return [*layers, "predictions"]


class _Tensors(dict[str, np.ndarray]):
    """Tensors of a file, which together stay within the limit of memory."""

    def __init__(self, where: str):
        super().__init__()
        self._where, self._bytes = where, 0

    def add(self, name: str, dataset: h5py.Dataset) -> None:
        """Reads one more; what was never written would be made up by HDF5."""
        self._bytes += getattr(dataset, "nbytes", 0)
        files.check_unpacked(self._bytes, self._where)
        self[name] = _array(dataset, self._where)


def _array(dataset: h5py.Dataset, where: str) -> np.ndarray:
    # HDF5 can point at bytes in other files, which nobody asked to read.
    is_own = isinstance(dataset, h5py.Dataset) and dataset.file.filename == where
    if not is_own or dataset.external or dataset.is_virtual:
        raise ValueError(
            f"{where} points at another file for {dataset.name}; save it anew, with "
            "all its weights in it."
        )
    value = np.asarray(dataset[()])
    if dataset.attrs.get("dtype") == "bfloat16":
        return value.view(ml_dtypes.bfloat16).astype(np.float32)
    return value
