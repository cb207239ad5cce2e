"""Names of tensors: torchvision's, which those of timm are brought to.

torchvision's layouts come with its names: kernels [out, in, height, width], matrices
[out, in].
"""

import re
from collections import Counter
from collections.abc import Collection, Mapping

import numpy as np

from cloc_jax.encoders.vgg import CONVOLUTIONS

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
        what = f"a ResNet with {blocks} blocks of {depth} convolutions"
    elif "features.denseblock1.denselayer1.conv1.weight" in shapes:
        layers = _counts(shapes, r"features\.denseblock(\d)\.\w+\.conv1\.weight")
        if layers == (6, 12, 24, 16):
            return "densenet121"
        what = f"a DenseNet with {layers} layers"
    else:
        kernels = {name for name, shape in shapes.items() if len(shape) == 4}
        for architecture in ("vgg16", "vgg16_bn"):
            table = TABLES[architecture].items()
            if {f"{name}.weight" for key, name in table if "convs" in key} == kernels:
                return architecture
        what = f"tensors such as {', '.join(sorted(shapes)[:5])}"
    raise ValueError(
        f"these weights have {what}; this version knows {', '.join(TABLES)}, by the "
        "names of torchvision or timm."
    )


def _counts(names: Collection[str], pattern: str) -> tuple[int, ...]:
    groups = Counter(m[1] for name in names if (m := re.fullmatch(pattern, name)))
    return tuple(groups[group] for group in "1234")


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
