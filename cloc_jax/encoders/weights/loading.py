"""Weights of networks trained on ImageNet: loading and converting them."""

import pathlib

from flax import nnx

from cloc_jax.encoders import registry
from cloc_jax.encoders.weights import hub, pretrained, tensor_checks, weight_files
from cloc_jax.runtime import environment
from cloc_jax.runtime.console import console

SHOWN = (
    "architecture",
    "stride",
    "preprocessing",
    "bn_eps",
    "source",
    "licence",
    "sha256",
)


def load(
    source: str,
    *,
    architecture: str | None = None,
    preprocessing: str | None = None,
    cache: pathlib.Path | None = None,
) -> pretrained.Weights:
    """Weights by torchvision's names, with the metadata an encoder needs.

    Args:
      source: a file, a folder or an archive (see `weight_files`), or else a name on
        the Hugging Face hub such as timm/resnet50.tv_in1k.
      architecture: the one wanted; weights of another are an error. None takes any.
      preprocessing: how pixels were scaled, for files that do not tell.
      cache: folder for what is downloaded; cloc_jax's cache folder by default.
    """
    path = pathlib.Path(source).expanduser()
    if not source:
        raise ValueError(f"no weights were given. {weight_files.MISSING}")
    is_name = not path.exists() and _names_a_repository(source)
    if is_name:
        path = hub.fetch(source, cache=cache or environment.cache_folder())
    raw = weight_files.read(path)
    said = raw.metadata
    if is_name:
        said = said | {"source": f"Hugging Face hub, {source.split('@')[0]}"}
    try:
        return pretrained.canonical(
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
    return hub.is_name(source) and not is_file and not is_below


def _check_shapes(weights: pretrained.Weights, source: str) -> None:
    """ValueError where the tensors do not fill the network that they are named for."""
    fixed = pretrained.options(weights)
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

    problems = pretrained.misfits(nnx.eval_shape(make), weights)
    if problems:
        raise ValueError(
            f"{source}: these are no weights of a {weights.metadata['architecture']}: "
            f"{tensor_checks.some(problems)}. Get the file again, or another one."
        )


def convert(
    source: str,
    target: str,
    *,
    architecture: str | None = None,
    preprocessing: str | None = None,
    cache: pathlib.Path | None = None,
) -> pretrained.Weights:
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
    weight_files.write(pathlib.Path(target).expanduser(), weights)
    sizes = [tensor.size for tensor in weights.tensors.values()]
    facts = {"file": target} | {k: weights.metadata.get(k, "none") for k in SHOWN}
    facts["tensors"] = f"{len(sizes)}, {sum(sizes) / 1e6:.1f}M numbers"
    for key, value in facts.items():
        console.print(f"{key:14} {value}", soft_wrap=True)
    return weights
