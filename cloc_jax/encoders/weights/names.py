"""Names of tensors: torchvision's, which those of timm are brought to.

Its layouts come with them: kernels [out, in, height, width], matrices [out, in].
"""

import re
from collections.abc import Collection, Mapping

import numpy as np

from cloc_jax.encoders.vgg import CONVOLUTIONS

# Of a module: its path here -> its name there; groups are what both share.
RESNET = {
    r"stem\.conv": "conv1",
    r"stem\.norm": "bn1",
    r"(layer\d)\.layers\.(\d+)\.conv(\d)": r"\1.\2.conv\3",
    r"(layer\d)\.layers\.(\d+)\.norm(\d)": r"\1.\2.bn\3",
    r"(layer\d)\.layers\.(\d+)\.shortcut\.conv": r"\1.\2.downsample.0",
    r"(layer\d)\.layers\.(\d+)\.shortcut\.norm": r"\1.\2.downsample.1",
}
DENSENET = {
    r"stem\.(conv|norm)": r"features.\g<1>0",
    r"layer4\.layers\.\d+\.layers\.0": "features.norm5",
    r"layer(\d)\.layers\.\d+\.(conv|norm)": r"features.transition\1.\2",
} | {
    # They count layers from 1.
    rf"layer(\d)\.layers\.{n}\.(conv|norm)(\d)": (
        rf"features.denseblock\1.denselayer{n + 1}.\2\3"
    )
    for n in range(24)
}


def _vgg(step: int) -> dict[str, str]:
    """Each convolution is `step` modules: itself, perhaps a batch norm, and a ReLU."""
    table = {r"layer5\.fc6": "classifier.0", r"layer5\.fc7": "classifier.3"}
    index = 0
    for block, count in enumerate(CONVOLUTIONS):
        part = f"layer{block}" if block else "stem"
        for place in range(count):
            table[rf"{part}\.convs\.{place}"] = f"features.{index}"
            table[rf"{part}\.norms\.{place}"] = f"features.{index + 1}"
            index += step
        index += 1  # pooling
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
# A kernel near the end of each, the deeper ones first. Others that have one of them as
# well do not fit into the encoder, which `filling.filled` says.
LAST_KERNELS = {
    "layer4.2.conv3.weight": "resnet50",
    "layer4.2.conv2.weight": "resnet34",
    "layer4.1.conv2.weight": "resnet18",
    "features.denseblock4.denselayer16.conv2.weight": "densenet121",
    "features.40.weight": "vgg16_bn",
    "features.28.weight": "vgg16",
}


def torchvision_name(architecture: str, path: tuple) -> str:
    """torchvision's name of a variable of an encoder, given the path of it."""
    module, leaf = ".".join(map(str, path[:-1])), LEAVES[path[-1]]
    for pattern, name in TABLES[architecture].items():
        if match := re.fullmatch(pattern, module):
            return f"{match.expand(name)}.{leaf}"
    raise KeyError(f"{architecture} has no name for {module}")


def recognise(names: Collection[str]) -> str:
    """The architecture of tensors with these names."""
    for last, architecture in LAST_KERNELS.items():
        if last in names:
            return architecture
    raise ValueError(
        f"these weights have tensors such as {', '.join(sorted(names)[:5])}; this "
        f"version knows {', '.join(TABLES)}, by the names of torchvision or timm."
    )


def from_timm(tensors: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
    """Tensors by torchvision's names where timm's are others: VGG16's classifier."""
    named = {}
    for name, tensor in tensors.items():
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
