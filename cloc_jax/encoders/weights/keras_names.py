"""Other namings of pretrained networks, brought to torchvision's.

Keras' are those of keras.applications in every version: ResNet50 (the first, not V2),
VGG16 and DenseNet121, from HDF5 or TensorFlow.js.
"""

import re

import numpy as np

from cloc_jax.encoders.weights.torchvision_names import some, vgg_convolutions

Tensors = dict[str, np.ndarray]


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


def from_keras(tensors: Tensors) -> Tensors:
    """Keras' tensors under torchvision's names and in its layouts."""
    layers: dict[str, Tensors] = {}
    strangers = []
    for name, tensor in tensors.items():
        leaf = keras_leaf(name)
        if leaf:
            layers.setdefault(_keras_layer(name), {})[leaf] = tensor
        else:
            strangers.append(name)
    if "block1_conv1" in layers:
        family, module_of = "VGG16", _keras_vgg
    elif "pool2_conv" in layers:
        family, module_of = "DenseNet121", _keras_densenet
    else:
        family, module_of = "ResNet50", _keras_resnet
    modules = {layer: module_of(layer) for layer in layers}
    strangers += [layer for layer, module in modules.items() if module is None]
    if strangers:
        raise ValueError(
            f"these weights look like Keras' {family}, but have {some(strangers)}, "
            "which it has not. Of Keras this version knows ResNet50 (not V2), VGG16 "
            "and DenseNet121."
        )
    named = {
        f"{modules[layer]}.{leaf}": _from_keras_layout(str(modules[layer]), tensor)
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


def _keras_resnet(layer: str) -> str | None:
    if layer in ("conv1", "conv1_conv"):
        return "conv1"
    if layer in ("bn_conv1", "conv1_bn"):
        return "bn1"
    if layer in ("fc1000", "probs", "predictions"):
        return "fc"
    if new := re.fullmatch(r"conv([2-5])_block(\d+)_([0-3])_(conv|bn)", layer):
        stage, block, kind = int(new[1]) - 1, int(new[2]) - 1, new[4]
        place = int(new[3])
    elif old := re.fullmatch(r"(res|bn)([2-5])([a-z])_branch(1|2[abc])", layer):
        kind = "conv" if old[1] == "res" else "bn"
        stage, block = int(old[2]) - 1, ord(old[3]) - ord("a")
        place = " abc".index(old[4][1]) if old[4] != "1" else 0
    else:
        return None
    if place == 0:
        return f"layer{stage}.{block}.downsample.{0 if kind == 'conv' else 1}"
    return f"layer{stage}.{block}.{kind}{place}"


def _keras_densenet(layer: str) -> str | None:
    fixed = {
        "conv1_conv": "features.conv0",
        "conv1_bn": "features.norm0",
        "bn": "features.norm5",
        "fc1000": "classifier",
        "predictions": "classifier",
    }
    if layer in fixed:
        return fixed[layer]
    if found := re.fullmatch(
        r"conv([2-5])_block(\d+)_(0_bn|1_conv|1_bn|2_conv)", layer
    ):
        block, number = int(found[1]) - 1, found[2]
        place = {"0_bn": "norm1", "1_conv": "conv1", "1_bn": "norm2", "2_conv": "conv2"}
        return f"features.denseblock{block}.denselayer{number}.{place[found[3]]}"
    if found := re.fullmatch(r"pool([2-4])_(bn|conv)", layer):
        kind = "norm" if found[2] == "bn" else "conv"
        return f"features.transition{int(found[1]) - 1}.{kind}"
    return None


def _keras_vgg(layer: str) -> str | None:
    fixed = {
        "fc1": "classifier.0",
        "fc2": "classifier.3",
        "predictions": "classifier.6",
    }
    if layer in fixed:
        return fixed[layer]
    found = re.fullmatch(r"block([1-5])_conv(\d)", layer)
    place = found and (int(found[1]) - 1, int(found[2]) - 1)
    places = vgg_convolutions(step=2)
    return f"features.{places[place]}" if place in places else None
