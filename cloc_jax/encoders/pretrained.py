"""Pretrained weights: one naming for all files, and how it fills an encoder.

The naming is torchvision's, with its layouts: kernels [out, in, height, width],
matrices [out, in]. `canonical` brings other namings to it, and writes into the metadata
what no tensor shows but the result depends on: where the stride is, how pixels are
scaled, the epsilon of batch norms.
"""

import re
from collections import Counter
from typing import NamedTuple

import numpy as np

from cloc_jax.encoders.preprocessing import PREPROCESSINGS

STRIDES = ("3x3", "1x1")
UNKNOWN = "unknown"
# What a file may say about itself; `canonical` drops other remarks.
REMARKS = ("source", "licence", "sha256")


class Weights(NamedTuple):
    """Tensors by torchvision's names, and what must be known to use them.

    Metadata: architecture, preprocessing, names ("torchvision"), source, licence and
    sha256; for ResNets also stride ("3x3" or "1x1": the convolution of a downsampling
    bottleneck that has it), and for networks with batch norm bn_eps.
    """

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]


def canonical(
    tensors: dict[str, np.ndarray],
    metadata: dict[str, str],
    *,
    architecture: str | None = None,
    preprocessing: str | None = None,
) -> Weights:
    """Tensors named by torchvision, timm or Keras, as Weights.

    What the metadata leave open follows from the naming: torchvision and timm have the
    stride in the 3x3 convolution and "imagenet_rgb", Keras has it in the first 1x1 and
    "caffe_bgr" (DenseNet: "imagenet_rgb"). The result's metadata says what was taken.

    Args:
      tensors: by the names in the file.
      metadata: what the file says about itself; keys as in Weights.
      architecture: the one wanted, if that is known; another one is an error.
      preprocessing: for files that say nothing and are not as their names suggest.
    """
    is_keras = any(_keras_leaf(name) for name in tensors)
    family, named = _from_keras(tensors) if is_keras else _from_timm(tensors)
    found = _recognise(named)
    for said, by in (
        (metadata.get("architecture"), "the file's metadata says"),
        (architecture, "encoder.name asks for"),
    ):
        if said is not None and said != found:
            raise ValueError(
                f"these weights are a {found} by their tensors, and {by} {said}; use "
                "the file that belongs to the encoder."
            )
    if preprocessing and metadata.get("preprocessing", preprocessing) != preprocessing:
        raise ValueError(
            f"encoder.preprocessing is {preprocessing!r}, but the weights say they "
            f"were trained with {metadata['preprocessing']!r}; leave it out."
        )
    says = {
        "architecture": found,
        "preprocessing": preprocessing
        or ("caffe_bgr" if is_keras and family != "densenet" else "imagenet_rgb"),
    }
    if family == "resnet":
        says["stride"] = "1x1" if is_keras else "3x3"
    if found != "vgg16":
        says["bn_eps"] = "1.001e-5" if is_keras else "1e-5"
    says |= dict.fromkeys(REMARKS, UNKNOWN)
    says |= {key: metadata[key] for key in says if key in metadata}
    _check_metadata(says)
    return Weights(named, says | {"names": "torchvision"})


def options(weights: Weights) -> dict[str, str | float]:
    """The encoder's keyword arguments that these weights fix."""
    metadata = weights.metadata
    fixed: dict[str, str | float] = {"preprocessing": metadata["preprocessing"]}
    if "bn_eps" in metadata:
        fixed["epsilon"] = float(metadata["bn_eps"])
    if metadata["architecture"] == "resnet50":
        fixed["stride"] = metadata["stride"]
    return fixed


def _check_metadata(metadata: dict[str, str]) -> None:
    for key, choices in (
        ("preprocessing", tuple(PREPROCESSINGS)),
        ("stride", STRIDES),
    ):
        if metadata.get(key, choices[0]) not in choices:
            raise ValueError(
                f"the weights' {key} is {metadata[key]!r}; this version knows "
                f"{', '.join(choices)}."
            )
    epsilon = metadata.get("bn_eps", "1e-5")
    try:
        positive = float(epsilon) > 0
    except ValueError:
        positive = False
    if not positive:
        raise ValueError(f"the weights' bn_eps is {epsilon!r}; it is a number above 0.")


# ---------------------------------------------------------- which network it is

RESNETS = {
    (2, (2, 2, 2, 2)): "resnet18",
    (2, (3, 4, 6, 3)): "resnet34",
    (3, (3, 4, 6, 3)): "resnet50",
}
KNOWN = "resnet18, resnet34, resnet50, vgg16, vgg16_bn and densenet121"


def _recognise(tensors: dict[str, np.ndarray]) -> str:
    """The architecture that has these tensors, by its depth."""
    if "layer1.0.conv1.weight" in tensors:
        depth = 3 if "layer1.0.conv3.weight" in tensors else 2
        blocks = _counts(tensors, r"layer(\d)\.\d+\.conv1\.weight", 4)
        if (depth, blocks) in RESNETS:
            return RESNETS[depth, blocks]
        raise ValueError(
            f"these weights are a ResNet with {blocks} blocks of {depth} convolutions; "
            f"this version has {KNOWN}."
        )
    if "features.denseblock1.denselayer1.conv1.weight" in tensors:
        layers = _counts(tensors, r"features\.denseblock(\d)\.\w+\.conv1\.weight", 4)
        if layers == (6, 12, 24, 16):
            return "densenet121"
        raise ValueError(
            f"these weights are a DenseNet with {layers} layers; this version has "
            f"{KNOWN}."
        )
    convolutions = {
        int(name.split(".")[1])
        for name, tensor in tensors.items()
        if re.fullmatch(r"features\.\d+\.weight", name) and tensor.ndim == 4
    }
    for name in ("vgg16", "vgg16_bn"):
        if convolutions == {
            int(place.removeprefix("features."))
            for place in vgg_names(name == "vgg16_bn").values()
            if place.startswith("features")
        }:
            return name
    raise ValueError(
        f"no network is known with tensors such as {_some(tensors)}; this version has "
        f"{KNOWN}, by the names of torchvision, timm or Keras."
    )


def _counts(tensors: dict[str, np.ndarray], pattern: str, groups: int):
    found = Counter(m[1] for name in tensors if (m := re.fullmatch(pattern, name)))
    return tuple(found[str(group)] for group in range(1, groups + 1))


def _some(names) -> str:
    names = sorted(names)
    return ", ".join(names[:8]) + (f" and {len(names) - 8} more" * (len(names) > 8))


# --------------------------------------------------------------- timm's naming


def _from_timm(tensors: dict[str, np.ndarray]):
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
    family = "resnet" if "layer1.0.conv1.weight" in named else "other"
    return family, named


# -------------------------------------------------------------- Keras' naming

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


def _from_keras(tensors: dict[str, np.ndarray]):
    """Keras' tensors under torchvision's names and in its layouts."""
    layers: dict[str, dict[str, np.ndarray]] = {}
    strangers = []
    for name, tensor in tensors.items():
        leaf = _keras_leaf(name)
        if leaf:
            layers.setdefault(_keras_layer(name), {})[leaf] = tensor
        else:
            strangers.append(name)
    if "block1_conv1" in layers:
        family, module_of = "vgg", _keras_vgg
    elif "pool2_conv" in layers:
        family, module_of = "densenet", _keras_densenet
    else:
        family, module_of = "resnet", _keras_resnet
    modules = {layer: module_of(layer) for layer in layers}
    strangers += [layer for layer, module in modules.items() if module is None]
    if strangers:
        raise ValueError(
            f"these weights look like a {family} of Keras, but it has no "
            f"{_some(strangers)}; this version has {KNOWN} (ResNets of Keras: the "
            "first version, not V2)."
        )
    named = {
        f"{modules[layer]}.{leaf}": _from_keras_layout(str(modules[layer]), tensor)
        for layer, leaves in layers.items()
        for leaf, tensor in leaves.items()
    }
    if family != "vgg":
        _fold_biases(named)
    return family, named


def _keras_leaf(name: str) -> str | None:
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
    if module == "classifier.0" and tensor.ndim == 2:
        # Its inputs are 7x7 positions of channels, in torchvision channels of them.
        tensor = tensor.reshape(7, 7, -1, tensor.shape[1])
        return tensor.transpose(3, 2, 0, 1).reshape(tensor.shape[3], -1)
    return tensor.transpose(3, 2, 0, 1) if tensor.ndim == 4 else tensor.T


def _fold_biases(tensors: dict[str, np.ndarray]) -> None:
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
    return found and vgg_names(False).get((int(found[1]), int(found[2])))


def vgg_names(batch_norm: bool) -> dict[tuple[int, int], str]:
    """torchvision's names of VGG16's convolutions, by block and place from 1."""
    names, index = {}, 0
    for block, count in enumerate((2, 2, 3, 3, 3), 1):
        for place in range(1, count + 1):
            names[block, place] = f"features.{index}"
            index += 3 if batch_norm else 2  # convolution, norm, ReLU
        index += 1  # pooling
    return names
