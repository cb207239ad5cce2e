"""Names of tensors: torchvision's, which all others are brought to, timm's and Keras'.

torchvision's layouts come with its names: kernels [out, in, height, width], matrices
[out, in]. Keras' names are those of keras.applications in every version: ResNet50 (the
first, not V2), VGG16 and DenseNet121.
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from cloc_jax.encoders.vgg import CONVOLUTIONS

Tensors = dict[str, np.ndarray]

# --- torchvision ---

# Of a module: its path here -> its name there; groups are what both share.
RESNET = {
    r"stem\.conv": "conv1",
    r"stem\.norm": "bn1",
    r"(layer\d)\.blocks\.(\d+)\.conv(\d)": r"\1.\2.conv\3",
    r"(layer\d)\.blocks\.(\d+)\.norm(\d)": r"\1.\2.bn\3",
    r"(layer\d)\.blocks\.(\d+)\.shortcut\.conv": r"\1.\2.downsample.0",
    r"(layer\d)\.blocks\.(\d+)\.shortcut\.norm": r"\1.\2.downsample.1",
}
DENSENET = {
    r"stem\.(conv|norm)": r"features.\g<1>0",
    r"layer4\.blocks\.\d+\.norm": "features.norm5",
    r"layer(\d)\.blocks\.\d+\.(conv|norm)": r"features.transition\1.\2",
} | {
    # They count layers from 1.
    rf"layer(\d)\.blocks\.{n}\.(conv|norm)(\d)": (
        rf"features.denseblock\1.denselayer{n + 1}.\2\3"
    )
    for n in range(24)
}


def vgg_convolutions(step: int) -> dict[tuple[int, int], int]:
    """Places of VGG16's convolutions in torchvision's list, by block and place from 0.

    Each is `step` modules long: convolution and ReLU, or with a batch norm between.
    """
    places, index = {}, 0
    for block, count in enumerate(CONVOLUTIONS):
        for place in range(count):
            places[block, place] = index
            index += step
        index += 1  # pooling
    return places


def _vgg(step: int) -> dict[str, str]:
    table = {r"layer5\.fc6": "classifier.0", r"layer5\.fc7": "classifier.3"}
    for (block, place), index in vgg_convolutions(step).items():
        part = f"layer{block}" if block else "stem"
        table[rf"{part}\.convs\.{place}"] = f"features.{index}"
        table[rf"{part}\.norms\.{place}"] = f"features.{index + 1}"
    return table


TABLES = {
    "resnet18": RESNET,
    "resnet34": RESNET,
    "resnet50": RESNET,
    "vgg16": _vgg(2),
    "vgg16_bn": _vgg(3),
    "densenet121": DENSENET,
}
LEAVES = {
    "kernel": "weight",
    "scale": "weight",
    "bias": "bias",
    "mean": "running_mean",
    "var": "running_var",
}
# What an encoder does not use: the classifier, and torch's counts of batches. VGG16's
# classifier has fc6 and fc7 in it, which only `pooling="average"` leaves unused.
IGNORED = r"fc\..*|classifier\.([036]\.)?(weight|bias)|.*\.num_batches_tracked"
DEPTHS: dict[tuple[int, tuple[int, ...]], str] = {
    (2, (2, 2, 2, 2)): "resnet18",
    (2, (3, 4, 6, 3)): "resnet34",
    (3, (3, 4, 6, 3)): "resnet50",
}


def torchvision_name(architecture: str, path: tuple) -> str:
    """torchvision's name of a variable of an encoder, given the path of it."""
    module, leaf = ".".join(map(str, path[:-1])), LEAVES[path[-1]]
    for pattern, name in TABLES[architecture].items():
        if match := re.fullmatch(pattern, module):
            return f"{match.expand(name)}.{leaf}"
    raise KeyError(f"{architecture} has no name for {module}")


def recognise(shapes: Mapping[str, tuple[int, ...]]) -> str:
    """The architecture of tensors with these names and shapes, by its depth."""
    if "layer1.0.conv1.weight" in shapes:
        depth = 3 if "layer1.0.conv3.weight" in shapes else 2
        blocks = _counts(shapes, r"layer(\d)\.\d+\.conv1\.weight")
        if (depth, blocks) in DEPTHS:
            return DEPTHS[depth, blocks]
        what = f"are a ResNet with {blocks} blocks of {depth} convolutions"
    elif "features.denseblock1.denselayer1.conv1.weight" in shapes:
        layers = _counts(shapes, r"features\.denseblock(\d)\.\w+\.conv1\.weight")
        if layers == (6, 12, 24, 16):
            return "densenet121"
        what = f"are a DenseNet with {layers} layers"
    else:
        convolutions = {
            int(name.split(".")[1])
            for name, shape in shapes.items()
            if re.fullmatch(r"features\.\d+\.weight", name) and len(shape) == 4
        }
        for name, step in (("vgg16", 2), ("vgg16_bn", 3)):
            if convolutions == set(vgg_convolutions(step).values()):
                return name
        tensors = some(sorted(shapes))
        what = f"have tensors such as {tensors}" if shapes else "have no tensors"
    raise ValueError(
        f"these weights {what}; this version knows {', '.join(TABLES)}, by the names "
        "of torchvision, timm or Keras."
    )


def _counts(names: Collection[str], pattern: str) -> tuple[int, ...]:
    groups = Counter(m[1] for name in names if (m := re.fullmatch(pattern, name)))
    return tuple(groups[group] for group in "1234")


def some(items: Collection[str]) -> str:
    """The first of many names or problems, and how many more there are."""
    more = f"; and {len(items) - 5} more" if len(items) > 5 else ""
    return "; ".join(list(items)[:5]) + more


# --- timm ---


def from_timm(tensors: Tensors) -> Tensors:
    """timm's names where they differ from torchvision's, and torchvision's old ones."""
    named = {}
    for name, tensor in tensors.items():
        # Until 2017 the layers of torchvision's DenseNets were called norm.1, conv.2.
        name = re.sub(r"(denselayer\d+\.(?:norm|conv))\.([12])\.", r"\1\2.", name)
        for timm, torchvision in (
            ("pre_logits.fc1.", "classifier.0."),
            ("pre_logits.fc2.", "classifier.3."),
            ("head.fc.", "classifier.6."),
        ):
            if name.startswith(timm):
                name = torchvision + name.removeprefix(timm)
                if name.endswith("weight"):  # timm has convolutions here
                    tensor = tensor.reshape(len(tensor), -1)
        named[name] = tensor
    return named


# --- Keras ---

# The last part of a variable's name, in files of Keras 2 and 3 and of Keras 1. What
# Keras 1 called running_std was the variance.
KERAS_LEAVES = {
    "kernel": "weight",
    "W": "weight",
    "bias": "bias",
    "b": "bias",
    "gamma": "weight",
    "beta": "bias",
    "moving_mean": "running_mean",
    "running_mean": "running_mean",
    "moving_variance": "running_var",
    "running_std": "running_var",
}
# Of a layer: Keras' names of it, as a pattern -> torchvision's of the module.
KERAS_LAYERS = {
    "VGG16": {"fc1": "classifier.0", "fc2": "classifier.3"}
    | {"predictions": "classifier.6"}
    | {
        f"block{block + 1}_conv{place + 1}": f"features.{index}"
        for (block, place), index in vgg_convolutions(step=2).items()
    },
    "DenseNet121": {
        "conv1_conv": "features.conv0",
        "conv1_bn": "features.norm0",
        "bn": "features.norm5",
        "fc1000|predictions": "classifier",
    }
    | {
        rf"conv{block + 1}_block(\d+)_{theirs}": (
            rf"features.denseblock{block}.denselayer\1.{ours}"
        )
        for block in (1, 2, 3, 4)
        for theirs, ours in (
            ("0_bn", "norm1"),
            ("1_conv", "conv1"),
            ("1_bn", "norm2"),
            ("2_conv", "conv2"),
        )
    }
    | {
        f"pool{block + 1}_{theirs}": f"features.transition{block}.{ours}"
        for block in (1, 2, 3)
        for theirs, ours in (("bn", "norm"), ("conv", "conv"))
    },
    "ResNet50": {
        "conv1|conv1_conv": "conv1",
        "bn_conv1|conv1_bn": "bn1",
        "fc1000|probs|predictions": "fc",
    }
    | {
        rf"conv{stage + 1}_block{block + 1}_{place}_{new}"
        rf"|{old}{stage + 1}{'abcdef'[block]}_branch{('1', '2a', '2b', '2c')[place]}": (
            f"layer{stage}.{block}." + (f"{new}{place}" if place else shortcut)
        )
        for stage, count in enumerate((3, 4, 6, 3), start=1)
        for block in range(count)
        for place in range(4)
        for new, old, shortcut in (
            ("conv", "res", "downsample.0"),
            ("bn", "bn", "downsample.1"),
        )
    },
}


def from_keras(tensors: Tensors) -> Tensors:
    """Keras' tensors under torchvision's names and in its layouts."""
    layers: dict[str, Tensors] = {}
    strangers = []
    for name, tensor in tensors.items():
        if leaf := keras_leaf(name):
            layers.setdefault(_keras_layer(name), {})[leaf] = tensor
        else:
            strangers.append(name)
    is_vgg, is_densenet = "block1_conv1" in layers, "pool2_conv" in layers
    family = "VGG16" if is_vgg else "DenseNet121" if is_densenet else "ResNet50"
    modules = {layer: _module(family, layer) for layer in layers}
    strangers += [layer for layer, module in modules.items() if not module]
    if strangers:
        raise ValueError(
            f"these weights look like Keras' {family}, but have {some(strangers)}, "
            "which it has not. Of Keras this version knows ResNet50 (not V2), VGG16 "
            "and DenseNet121."
        )
    named = {
        f"{modules[layer]}.{leaf}": _from_keras_layout(modules[layer], tensor)
        for layer, leaves in layers.items()
        for leaf, tensor in leaves.items()
    }
    if family != "VGG16":
        _fold_biases(named)
    return named


def keras_leaf(name: str) -> str | None:
    """torchvision's word for the variable of a layer; None if it is none of Keras'."""
    last = name.rsplit("/", 1)[-1].removesuffix(":0")
    if "/" not in name:
        return None
    if last in KERAS_LEAVES:
        return KERAS_LEAVES[last]
    # Keras 1: conv1/conv1_W_1:0
    old = re.fullmatch(r".+_(W|b|gamma|beta|running_mean|running_std)(_\d+)?", last)
    return KERAS_LEAVES[old[1]] if old else None


def _keras_layer(name: str) -> str:
    """Name of the layer that has a variable; HDF5 files give it twice."""
    parts = name.split("/")[:-1]
    half = len(parts) // 2
    if parts[:half] == parts[half:]:
        parts = parts[:half]
    return "_".join(parts)  # DenseNet's first layers were once called conv1/conv


def _module(family: str, layer: str) -> str:
    """torchvision's name of the module that is a layer of Keras; "" for none."""
    for pattern, name in KERAS_LAYERS[family].items():
        if match := re.fullmatch(pattern, layer):
            return match.expand(name)
    return ""


def _from_keras_layout(module: str, tensor: np.ndarray) -> np.ndarray:
    if module == "classifier.0" and tensor.ndim == 2 and len(tensor) % 49 == 0:
        # Its inputs are 7x7 positions of channels, in torchvision channels of them.
        tensor = tensor.reshape(7, 7, -1, tensor.shape[1])
        return tensor.transpose(3, 2, 0, 1).reshape(tensor.shape[3], -1)
    return tensor.transpose(3, 2, 0, 1) if tensor.ndim == 4 else tensor.T


def _fold_biases(tensors: Tensors) -> None:
    """Takes the biases before batch norms into the running means.

    norm(x + b) with mean m is norm(x) with mean m - b; with batch statistics b has no
    effect at all.
    """
    for name in [n for n in tensors if re.search(r"(conv\d|downsample\.0)\.bias$", n)]:
        norm = name.replace("conv", "bn").replace("downsample.0", "downsample.1")
        mean = norm.replace("bias", "running_mean")
        if mean not in tensors:
            continue  # `fill` reports both
        bias = tensors.pop(name).astype(np.float64)
        tensors[mean] = (tensors[mean] - bias).astype(np.float32)
