"""torchvision's names of tensors: what they are here, and which network has them."""

import re
from collections import Counter
from collections.abc import Collection, Mapping

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


def name_of(architecture: str, path: tuple) -> str:
    """torchvision's name of a variable of an encoder, given the path of it."""
    module, leaf = ".".join(map(str, path[:-1])), LEAVES[path[-1]]
    for pattern, name in TABLES[architecture].items():
        if found := re.fullmatch(pattern, module):
            return f"{found.expand(name)}.{leaf}"
    raise KeyError(f"{architecture} has no name for {module}")


DEPTHS: dict[tuple[int, tuple[int, ...]], str] = {
    (2, (2, 2, 2, 2)): "resnet18",
    (2, (3, 4, 6, 3)): "resnet34",
    (3, (3, 4, 6, 3)): "resnet50",
}


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
        what = f"have tensors such as {some(shapes)}" if shapes else "have no tensors"
    raise ValueError(
        f"these weights {what}; this version knows {', '.join(TABLES)}, by the names "
        "of torchvision, timm or Keras."
    )


def _counts(names: Collection[str], pattern: str) -> tuple[int, ...]:
    found = Counter(m[1] for name in names if (m := re.fullmatch(pattern, name)))
    return tuple(found[group] for group in "1234")


def some(names: Collection[str]) -> str:
    """A few of many names."""
    more = f" and {len(names) - 8} more" if len(names) > 8 else ""
    return ", ".join(sorted(names)[:8]) + more
