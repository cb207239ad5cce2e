"""Pretrained weights: loading and converting them, and filling an encoder with them.

`canonical` brings all files to torchvision's names, and puts into the metadata what no
tensor shows: where the stride is, how pixels are scaled, the epsilon of batch norms.
"""

import pathlib
import re
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from cloc_jax.encoders.backbone import PREPROCESSINGS, Backbone
from cloc_jax.encoders.resnet import STRIDES
from cloc_jax.encoders.weights import download, names, weight_files
from cloc_jax.runtime import environment
from cloc_jax.runtime.console import console

# What a file may say about itself; `canonical` drops other remarks.
REMARKS = ("source", "licence", "sha256")


class Weights(NamedTuple):
    """Tensors by torchvision's names, and what must be known to use them.

    Metadata: architecture, preprocessing, source, licence and sha256; for ResNets also
    stride ("3x3" or "1x1": the convolution of a downsampling bottleneck that has it),
    and for networks with batch norm bn_eps.
    """

    tensors: dict[str, np.ndarray]
    metadata: dict[str, str]


def load(
    source: str, *, architecture: str | None = None, preprocessing: str | None = None
) -> Weights:
    """Weights by torchvision's names, with the metadata an encoder needs.

    `source` is a file (see `weight_files`), or else a name on the Hugging Face hub such
    as timm/resnet50.tv_in1k. Weights of another architecture are an error; None takes
    any. `preprocessing` is for files that do not tell how pixels were scaled.
    """
    path = pathlib.Path(source).expanduser()
    # owner/name could be a path with a mistake in it as well: it is one if it ends
    # like a file of weights, or its first part is a folder here.
    is_path = source.lower().endswith(weight_files.SUFFIXES) or path.parent.is_dir()
    if download.is_name(source) and not is_path:
        path = download.fetch(source, cache=environment.cache_folder())
        tensors, metadata = weight_files.read(path)
        metadata["source"] = f"Hugging Face hub, {source}"
    else:
        tensors, metadata = weight_files.read(path)
    try:
        return canonical(
            tensors, metadata, architecture=architecture, preprocessing=preprocessing
        )
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def convert(
    source: str,
    target: str,
    *,
    architecture: str | None = None,
    preprocessing: str | None = None,
) -> None:
    """Writes weights of any format as safetensors, and says what they are."""
    if not source or not target.endswith(".safetensors"):
        raise ValueError(
            "weights needs --from=, a file or a name, and --to=, the file to write, "
            f"which ends in .safetensors. {weight_files.MISSING}"
        )
    weights = load(source, architecture=architecture, preprocessing=preprocessing)
    weight_files.write(pathlib.Path(target).expanduser(), *weights)
    sizes = [tensor.size for tensor in weights.tensors.values()]
    count = f"{len(sizes)}, {sum(sizes) / 1e6:.1f}M numbers"
    for key, value in {"file": target, **weights.metadata, "tensors": count}.items():
        console.print(f"{key:14} {value}", soft_wrap=True)


def canonical(
    tensors: dict[str, np.ndarray],
    metadata: dict[str, str],
    *,
    architecture: str | None = None,
    preprocessing: str | None = None,
) -> Weights:
    """Tensors named by torchvision or timm, as Weights.

    What the metadata leave open is as in torchvision: the stride in the 3x3
    convolution, "imagenet_rgb". The result's metadata says what was taken.

    Another architecture than the wanted one is an error; given `preprocessing` counts.
    """
    named = names.from_timm(tensors)
    for name, tensor in named.items():
        with np.errstate(over="ignore"):  # which is what is looked for
            numbers = np.asarray(tensor, np.float32)
        if not np.isfinite(numbers).all():
            raise ValueError(
                f"the tensor {name} holds numbers that are infinite, no numbers or too "
                "large for float32; get other weights."
            )
    recognised = names.recognise(named)
    if architecture not in (None, recognised):
        raise ValueError(
            f"these weights are a {recognised} by their tensors, and encoder.name asks "
            f"for {architecture}; use the file that belongs to the encoder."
        )
    says = {"preprocessing": "imagenet_rgb"}
    if recognised.startswith("resnet"):
        says["stride"] = "3x3"
    if recognised != "vgg16":
        says["bn_eps"] = "1e-5"
    says |= dict.fromkeys(REMARKS, "unknown")
    says |= {key: metadata[key] for key in says if key in metadata}
    says["preprocessing"] = preprocessing or says["preprocessing"]
    choices = {"preprocessing": tuple(PREPROCESSINGS), "stride": STRIDES}
    for key, known in choices.items():
        if says.get(key, known[0]) not in known:
            raise ValueError(
                f"the weights' {key} is {says[key]!r}; this version knows "
                f"{', '.join(known)}."
            )
    return Weights(named, {"architecture": recognised} | says)


# --- filling ---


def options(weights: Weights) -> dict[str, str | float]:
    """The encoder's keyword arguments that these weights fix."""
    metadata = weights.metadata
    fixed: dict[str, str | float] = {"preprocessing": metadata["preprocessing"]}
    if "bn_eps" in metadata:
        fixed["epsilon"] = float(metadata["bn_eps"])
    if metadata["architecture"] == "resnet50":
        fixed["stride"] = metadata["stride"]
    return fixed


def filled(make: Callable[[], Backbone], weights: Weights) -> Backbone:
    """The encoder that `make` builds, with these weights in it.

    Compiles nothing, since no initial values are drawn: that takes longer than reading
    the weights. Every parameter and statistic must have its tensor and every tensor its
    place, except the classifier's; whatever does not fit is in one ValueError. The
    encoder must have the `options` of the weights. Call it outside of compiled
    functions, which would carry the weights as constants.
    """
    encoder = nnx.eval_shape(make)
    architecture = weights.metadata["architecture"]
    variables = {
        names.torchvision_name(architecture, path): (path, variable)
        for path, variable in nnx.to_flat_state(nnx.state(encoder))
    }
    wanted = {name: _torch_shape(v.shape) for name, (_, v) in variables.items()}
    given = {name: tensor.shape for name, tensor in weights.tensors.items()}
    problems = [
        f"{name} is {given.get(name, 'missing')}, not {shape}"
        for name, shape in wanted.items()
        if given.get(name) != shape
    ]
    problems += [
        f"{name} {shape} has no place"
        for name, shape in given.items()
        if name not in wanted and not re.fullmatch(names.IGNORED, name)
    ]
    if problems:
        raise ValueError(
            f"weights and encoder ({architecture}) do not fit:\n  "
            + "\n  ".join(problems)
        )
    new = {
        path: variable.replace(
            jnp.asarray(_from_torch_layout(name, weights.tensors[name]), variable.dtype)
        )
        for name, (path, variable) in variables.items()
    }
    nnx.update(encoder, nnx.from_flat_state(new))
    return encoder


def _torch_shape(shape: tuple[int, ...]) -> tuple[int, ...]:
    """torch's shape of a variable of ours."""
    return (shape[3], shape[2], *shape[:2]) if len(shape) == 4 else shape[::-1]


def _from_torch_layout(name: str, tensor: np.ndarray) -> np.ndarray:
    if name == "classifier.0.weight":
        # fc6 of VGG16 reads channels of 7x7 positions, ours positions of channels.
        tensor = tensor.reshape(len(tensor), -1, 7, 7).transpose(0, 2, 3, 1)
        return tensor.reshape(len(tensor), -1).T
    return tensor.transpose(2, 3, 1, 0) if tensor.ndim == 4 else tensor.T
