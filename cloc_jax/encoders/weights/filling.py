"""Pretrained weights: loading and converting them, and filling an encoder with them.

`canonical` brings all files to torchvision's names and layouts, and writes into the
metadata what no tensor shows but the result depends on: where the stride is, how pixels
are scaled, the epsilon of batch norms.
"""

import pathlib
import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from cloc_jax.encoders import registry
from cloc_jax.encoders.backbone import Backbone, Pretrainable
from cloc_jax.encoders.preprocessing import PREPROCESSINGS, sum_over_colours
from cloc_jax.encoders.resnet import STRIDES
from cloc_jax.encoders.weights import download, names, weight_files
from cloc_jax.runtime import environment
from cloc_jax.runtime.console import console

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


def load(
    source: str,
    *,
    architecture: str | None = None,
    preprocessing: str | None = None,
    cache: pathlib.Path | None = None,
) -> Weights:
    """Weights by torchvision's names, with the metadata an encoder needs.

    Args:
      source: a file (see `weight_files`), or else a name on the Hugging Face hub such
        as timm/resnet50.tv_in1k.
      architecture: the one wanted; weights of another are an error. None takes any.
      preprocessing: how pixels were scaled, for files that do not tell.
      cache: folder for what is downloaded; cloc_jax's cache folder by default.
    """
    path = pathlib.Path(source).expanduser()
    if not source:
        raise ValueError(f"no weights were given. {weight_files.MISSING}")
    is_name = not path.exists() and _names_a_repository(source)
    if is_name:
        path = download.fetch(source, cache=cache or environment.cache_folder())
    raw = weight_files.read(path)
    said = raw.metadata
    if is_name:
        said = said | {"source": f"Hugging Face hub, {source.split('@')[0]}"}
    try:
        return canonical(
            raw.tensors, said, architecture=architecture, preprocessing=preprocessing
        )
    except ValueError as error:
        raise ValueError(f"{source}: {error}") from error


def _names_a_repository(source: str) -> bool:
    """Whether something that is no path here should be asked for on the hub.

    owner/name could be a path with a mistake in it as well: it is one if it ends like
    a file of weights, or its first part is a folder here.
    """
    is_file = source.lower().endswith(weight_files.SUFFIXES)
    is_below = pathlib.Path(source).parent.is_dir()
    return download.is_name(source) and not is_file and not is_below


def convert(
    source: str,
    target: str,
    *,
    architecture: str | None = None,
    preprocessing: str | None = None,
    cache: pathlib.Path | None = None,
) -> Weights:
    """Writes weights of any format as safetensors, and says what they are."""
    if not source or not target:
        raise ValueError(
            "weights needs --from=, a file or a name, and --to=, the file to write. "
            f"{weight_files.MISSING}"
        )
    if not target.endswith(".safetensors"):
        raise ValueError(
            f"--to is {target}; give a name that ends in .safetensors, the format "
            "that is written."
        )
    weights = load(
        source, architecture=architecture, preprocessing=preprocessing, cache=cache
    )
    _check_shapes(weights, source)
    weight_files.write(pathlib.Path(target).expanduser(), *weights)
    sizes = [tensor.size for tensor in weights.tensors.values()]
    shown = ("architecture", "stride", "preprocessing", "bn_eps", *REMARKS)
    facts = {"file": target} | {k: weights.metadata.get(k, "none") for k in shown}
    facts["tensors"] = f"{len(sizes)}, {sum(sizes) / 1e6:.1f}M numbers"
    for key, value in facts.items():
        console.print(f"{key:14} {value}", soft_wrap=True)
    return weights


def _check_shapes(weights: Weights, source: str) -> None:
    """ValueError where the tensors do not fill the network that they are named for."""
    fixed = options(weights)
    # VGG16 without its classifier is used with average pooling.
    pooling = "fc" if "classifier.0.weight" in weights.tensors else "average"

    def make():
        return registry.build(
            weights.metadata["architecture"],
            channels=3,
            rngs=nnx.Rngs(0),
            pooling=pooling,
            **fixed,
        )

    problems = misfits(nnx.eval_shape(make), weights)
    if problems:
        raise ValueError(
            f"{source}: these are no weights of a {weights.metadata['architecture']}: "
            f"{names.some(problems)}. Get the file again, or another one."
        )


# --- one naming for all ---


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
    is_keras = any(map(names.keras_leaf, tensors))
    read = names.from_keras if is_keras else names.from_timm
    named = read(tensors)
    recognised = names.recognise({name: tensor.shape for name, tensor in named.items()})
    for said, by in (
        (metadata.get("architecture"), "the file's metadata says"),
        (architecture, "encoder.name asks for"),
    ):
        if said is not None and said != recognised:
            raise ValueError(
                f"these weights are a {recognised} by their tensors, and {by} {said}; "
                "use the file that belongs to the encoder."
            )
    if preprocessing and metadata.get("preprocessing", preprocessing) != preprocessing:
        raise ValueError(
            f"encoder.preprocessing is {preprocessing!r}, but the weights say they "
            f"were trained with {metadata['preprocessing']!r}; leave it out."
        )
    is_caffe = is_keras and recognised != "densenet121"
    usual = "caffe_bgr" if is_caffe else "imagenet_rgb"
    says = {"architecture": recognised, "preprocessing": preprocessing or usual}
    if recognised.startswith("resnet"):
        says["stride"] = "1x1" if is_keras else "3x3"
    if recognised != "vgg16":
        says["bn_eps"] = "1.001e-5" if is_keras else "1e-5"
    says |= dict.fromkeys(REMARKS, UNKNOWN)
    says |= {key: metadata[key] for key in says if key in metadata}
    _check_metadata(says)
    _check_values(named)
    return Weights(named, says | {"names": "torchvision"})


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


def _check_values(tensors: Mapping[str, np.ndarray]) -> None:
    """ValueError for NaN, infinity, whole numbers and variances below 0."""
    problems = [
        f"{name} {problem}"
        for name, tensor in tensors.items()
        if not name.endswith(".num_batches_tracked")  # torch's count, not used
        and (problem := _problem(name, tensor))
    ]
    if problems:
        raise ValueError(
            f"these are no weights that a network was trained to: "
            f"{names.some(problems)}. Get the file again, or another one."
        )


def _problem(name: str, tensor: np.ndarray) -> str:
    """What is wrong with a tensor, or ""."""
    # By kind, or by name for bfloat16 and its like, which NumPy calls void.
    if tensor.dtype.kind != "f" and "float" not in tensor.dtype.name:
        return f"has values of type {tensor.dtype}, not floating point"
    is_known = tensor.dtype.kind == "f"
    values = tensor if is_known else tensor.astype(np.float32)
    bad = int(tensor.size - np.count_nonzero(np.isfinite(values)))
    if bad:
        return f"has {bad} of {tensor.size} values that are NaN or infinite"
    if name.endswith("running_var") and tensor.size and values.min() < 0:
        return f"is a variance, but goes down to {values.min():.3g}"
    return ""


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
    the weights. Call it outside of compiled functions.
    """
    encoder = nnx.eval_shape(make)
    fill(encoder, weights)
    return encoder


def fill(encoder: Backbone, weights: Weights) -> None:
    """Puts pretrained weights into an encoder, all of them or none.

    Every parameter and statistic must have its tensor and every tensor its place, but
    for the classifier's. Whatever does not fit is in one ValueError. Call it outside
    of compiled functions, which would carry the weights as constants.
    """
    said = weights.metadata["architecture"]
    if problems := misfits(encoder, weights):
        raise ValueError(
            f"weights and encoder ({said}) do not fit:\n  " + "\n  ".join(problems)
        )
    assert isinstance(encoder, Pretrainable)  # else it would not fit
    filled = {}
    for path, variable in nnx.to_flat_state(nnx.state(encoder)):
        name = names.torchvision_name(encoder.architecture, path)
        tensor = _from_torch_layout(name, weights.tensors[name])
        array = jnp.asarray(tensor, variable.dtype)
        if _is_summed(variable):
            array = sum_over_colours(array, encoder.preprocessing)
        filled[path] = variable.replace(array)
    nnx.update(encoder, nnx.from_flat_state(filled))


def misfits(encoder: Backbone, weights: Weights) -> list[str]:
    """What does not fit between an encoder and weights; ValueError for another one."""
    said = weights.metadata["architecture"]
    if not isinstance(encoder, Pretrainable) or encoder.architecture != said:
        raise ValueError(
            f"these weights are a {said}, but the encoder is a {encoder.architecture}; "
            f"set encoder.name={said}."
        )
    problems = [
        f"the encoder has {key} {getattr(encoder, key)}, the weights want {value}"
        for key, value in options(weights).items()
        if getattr(encoder, key) != value
    ]
    used = set()
    for path, variable in nnx.to_flat_state(nnx.state(encoder)):
        name = names.torchvision_name(encoder.architecture, path)
        used.add(name)
        wanted = _torch_shape(variable.shape, _is_summed(variable))
        tensor = weights.tensors.get(name)
        if tensor is None:
            problems.append(f"{name} {wanted} is missing")
        elif tensor.shape != wanted:
            problems.append(f"{name} is {tensor.shape}, not {wanted}")
    problems += [
        f"{name} {tensor.shape} has no place"
        for name, tensor in weights.tensors.items()
        if name not in used and not re.fullmatch(names.IGNORED, name)
    ]
    return problems


def _is_summed(variable: nnx.Variable) -> bool:
    """Whether it is a first kernel for grey images, summed over colours."""
    return variable.ndim == 4 and variable.shape[2] == 2


def _torch_shape(shape: tuple[int, ...], is_summed: bool) -> tuple[int, ...]:
    """torch's shape of a variable of ours."""
    if len(shape) == 4:
        height, width, inputs, outputs = shape
        return (outputs, 3 if is_summed else inputs, height, width)
    return shape[::-1]


def _from_torch_layout(name: str, tensor: np.ndarray) -> np.ndarray:
    if name == "classifier.0.weight":
        # fc6 of VGG16 reads channels of 7x7 positions, ours positions of channels.
        tensor = tensor.reshape(len(tensor), -1, 7, 7).transpose(0, 2, 3, 1)
        return tensor.reshape(len(tensor), -1).T
    return tensor.transpose(2, 3, 1, 0) if tensor.ndim == 4 else tensor.T
