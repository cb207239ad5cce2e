"""Weights: namings, what is fixed by them, and filling an encoder strictly."""

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from references import encoder, few_numbers, random_weights

from cloc_jax import encoders
from cloc_jax.encoders.weights import filling

TORCH = {
    "preprocessing": "imagenet_rgb",
    "bn_eps": "1e-5",
    "source": "unknown",
    "licence": "unknown",
    "sha256": "unknown",
}


@pytest.fixture(scope="module")
def resnet():
    return random_weights("resnet18")


@pytest.mark.parametrize(
    "name, extra",
    [
        ("resnet18", {"stride": "3x3"}),
        ("resnet34", {"stride": "3x3"}),
        ("resnet50", {"stride": "3x3"}),
        ("vgg16", {"bn_eps": None}),
        ("vgg16_bn", {}),
    ],
)
def test_torchvision(name, extra):
    tensors = few_numbers(name)
    found = filling.canonical(tensors, {"format": "pt"}, architecture=name)
    says = TORCH | {"architecture": name} | extra
    assert found.metadata == {k: v for k, v in says.items() if v is not None}
    assert found.tensors.keys() == tensors.keys()
    fixed = {"preprocessing": "imagenet_rgb", "epsilon": 1e-5}
    if name == "vgg16":
        del fixed["epsilon"]
    if name == "resnet50":
        fixed["stride"] = "3x3"
    assert filling.options(found) == fixed


def test_what_the_file_says_holds():
    said = {
        "architecture": "resnet50",
        "stride": "1x1",
        "preprocessing": "caffe_bgr",
        "bn_eps": "1.001e-5",
        "licence": "MIT",
    }
    found = filling.canonical(few_numbers("resnet50"), said)
    assert found.metadata == TORCH | said
    assert filling.options(found) == {
        "preprocessing": "caffe_bgr",
        "epsilon": 1.001e-5,
        "stride": "1x1",
    }


def test_timm_vgg():
    tensors = few_numbers("vgg16")
    theirs = {
        key.replace("classifier.0", "pre_logits.fc1").replace(
            "classifier.3", "pre_logits.fc2"
        ): value
        for key, value in tensors.items()
    }
    first = tensors["classifier.0.weight"]
    theirs["pre_logits.fc1.weight"] = first.reshape(1, 2, 7, 7)
    theirs["head.fc.weight"] = np.zeros((10, 1), np.float32)
    found = filling.canonical(theirs, {})
    assert found.metadata["architecture"] == "vgg16"
    assert found.tensors.keys() == tensors.keys() | {"classifier.6.weight"}
    np.testing.assert_array_equal(found.tensors["classifier.0.weight"], first)


def test_unknown_networks():
    tensors = dict.fromkeys(("features.0.weight", "head.weight"), np.zeros((1, 1)))
    with pytest.raises(ValueError, match="such as features.0.weight, head.*; this ver"):
        filling.canonical(tensors, {})


@pytest.mark.parametrize(
    "metadata, arguments, message",
    [
        ({}, {"architecture": "resnet50"}, "a resnet18 by .* asks for resnet50"),
        ({}, {"preprocessing": "caffe"}, "the weights' preprocessing is 'caffe'"),
        ({"stride": "2"}, {}, "the weights' stride is '2'; this version knows 3x3"),
    ],
)
def test_contradictions(resnet, metadata, arguments, message):
    with pytest.raises(ValueError, match=message):
        filling.canonical(resnet.tensors, metadata, **arguments)


@pytest.mark.parametrize("number", [1e300, -np.inf, np.nan])
def test_numbers_that_are_infinite_in_float32_are_refused(resnet, number):
    kernel = resnet.tensors["conv1.weight"].astype(np.float64)
    kernel.flat[5] = number
    tensors = resnet.tensors | {"conv1.weight": kernel}
    with pytest.raises(ValueError, match="conv1.weight holds .* too large for float32"):
        filling.canonical(tensors, {})


def build():
    return encoders.Backbone("resnet18", channels=3, rngs=nnx.Rngs(0))


def test_all_that_does_not_fit_is_said_at_once(resnet):
    tensors = dict(resnet.tensors)
    del tensors["layer3.1.bn2.running_var"]
    tensors["layer1.0.conv1.weight"] = np.zeros((64, 64, 1, 1), np.float32)
    tensors["layer2.0.se.fc1.weight"] = np.zeros((4, 4), np.float32)
    with pytest.raises(ValueError) as caught:
        filling.filled(build, resnet._replace(tensors=tensors))
    assert str(caught.value).splitlines()[1:] == [
        "  layer1.0.conv1.weight is (64, 64, 1, 1), not (64, 64, 3, 3)",
        "  layer3.1.bn2.running_var is missing, not (256,)",
        "  layer2.0.se.fc1.weight (4, 4) has no place",
    ]


def test_classifiers_and_counts_are_ignored(resnet):
    extra = {
        "fc.weight": np.zeros((1000, 512), np.float16),
        "fc.bias": np.zeros(1000, np.float32),
        "bn1.num_batches_tracked": np.array(7),
    }
    half = {k: v.astype(np.float16) for k, v in resnet.tensors.items()}
    model = encoder(resnet._replace(tensors=half | extra), channels=1)
    kernel = model.layer2.layers[0].conv2.kernel[...]
    assert kernel.dtype == jnp.float32
    expected = half["layer2.0.conv2.weight"].transpose(2, 3, 1, 0)
    np.testing.assert_array_equal(kernel, expected.astype(np.float32))


def test_vgg_without_its_fully_connected_layers():
    weights = random_weights("vgg16", hidden=4)
    full = encoder(weights, hidden=4)
    short = encoder(weights, pooling="average")  # ignores them
    np.testing.assert_array_equal(
        full.layer4.convs[2].kernel[...], short.layer4.convs[2].kernel[...]
    )
    fewer = {k: v for k, v in weights.tensors.items() if "classifier" not in k}
    encoder(weights._replace(tensors=fewer), pooling="average")
    with pytest.raises(ValueError, match=r"classifier.3.weight is missing, not \(4, 4"):
        encoder(weights._replace(tensors=fewer), hidden=4)
