"""Pretrained weights: one naming for all files, and how it fills an encoder.

The naming is torchvision's, with its layouts: kernels [out, in, height, width],
matrices [out, in]. `canonical` brings other namings to it, and writes into the metadata
what no tensor shows but the result depends on: where the stride is, how pixels are
scaled, the epsilon of batch norms.
"""

import re
from collections.abc import Callable
from typing import NamedTuple

import jax.numpy as jnp
import numpy as np
from flax import nnx

from cloc_jax.encoders.backbone import Backbone, Pretrainable
from cloc_jax.encoders.preprocessing import PREPROCESSINGS, sum_over_colours
from cloc_jax.encoders.resnet import STRIDES
from cloc_jax.encoders.weights import keras_names, tensor_checks
from cloc_jax.encoders.weights import torchvision_names as names

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
    is_keras = any(map(keras_names.keras_leaf, tensors))
    read = keras_names.from_keras if is_keras else keras_names.from_timm
    named = read(tensors)
    found = names.recognise({name: tensor.shape for name, tensor in named.items()})
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
        or ("caffe_bgr" if is_keras and found != "densenet121" else "imagenet_rgb"),
    }
    if found.startswith("resnet"):
        says["stride"] = "1x1" if is_keras else "3x3"
    if found != "vgg16":
        says["bn_eps"] = "1.001e-5" if is_keras else "1e-5"
    says |= dict.fromkeys(REMARKS, UNKNOWN)
    says |= {key: metadata[key] for key in says if key in metadata}
    _check_metadata(says)
    tensor_checks.check_values(named)
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
        name = names.name_of(encoder.architecture, path)
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
        name = names.name_of(encoder.architecture, path)
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
