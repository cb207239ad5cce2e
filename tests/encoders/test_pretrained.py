"""Weight tables: namings, what is fixed by them, and filling an encoder strictly."""

import re

import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from references import abstract, encoder, random_weights
from safetensors import safe_open

from cloc_jax import encoders
from cloc_jax.encoders import preprocessing
from cloc_jax.encoders.weights import filling, names

TORCH = {
    "preprocessing": "imagenet_rgb",
    "bn_eps": "1e-5",
    "names": "torchvision",
    "source": "unknown",
    "licence": "unknown",
    "sha256": "unknown",
}


@pytest.fixture(scope="module")
def resnet():
    return random_weights("resnet18")


def tiny(name):
    """Tensors of an architecture by torchvision's names, each of four numbers or less.

    `canonical` reads names and dimensions; sizes are for `fill`.
    """
    rng = np.random.default_rng(0)
    _, state = abstract(name, channels=3)
    tensors = {}
    for path, variable in nnx.to_flat_state(state):
        shape = {4: (2, 2, 1, 1), 2: (2, 1), 1: (2,)}[variable.ndim]
        if name == "vgg16" and path[-2:] == ("fc6", "kernel"):
            shape = (1, 98)
        key = names.torchvision_name(name, path)
        drawn = rng.normal(size=shape).astype(np.float32)
        tensors[key] = abs(drawn) if key.endswith("running_var") else drawn
    return tensors


# -------------------------------------------------------------------- namings


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
    tensors = tiny(name)
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
    found = filling.canonical(tiny("resnet50"), said)
    assert found.metadata == TORCH | said
    assert filling.options(found) == {
        "preprocessing": "caffe_bgr",
        "epsilon": 1.001e-5,
        "stride": "1x1",
    }


def test_timm_vgg():
    tensors = tiny("vgg16")
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


@pytest.mark.slow
def test_old_densenet_of_torchvision():
    tensors = tiny("densenet121")
    theirs = {
        re.sub(r"(layer\d+\.(?:norm|conv))(\d)", r"\1.\2", key): value
        for key, value in tensors.items()
    }
    assert "features.denseblock1.denselayer1.norm.1.weight" in theirs
    found = filling.canonical(theirs, {})
    assert found.metadata["architecture"] == "densenet121"
    assert found.tensors.keys() == tensors.keys()


# What Keras calls the layers of ResNet50, now and until 2019, of one block each.
NEW = ["conv1_conv", "conv1_bn"], "conv{s}_block{b}_{i}_conv", "conv{s}_block{b}_{i}_bn"
OLD = ["conv1", "bn_conv1"], "res{s}{l}_branch{j}", "bn{s}{l}_branch{j}"
LEAVES = ("kernel", "bias", "gamma", "beta", "moving_mean", "moving_variance")
SPELLINGS = {
    "keras 3": (NEW, lambda layer, leaf: f"{layer}/{leaf}"),
    "keras 2": (NEW, lambda layer, leaf: f"{layer}/{layer}/{leaf}:0"),
    "keras 2 until 2019": (OLD, lambda layer, leaf: f"{layer}/{leaf}"),
    "keras 1": (
        OLD,
        lambda layer, leaf: (
            f"{layer}/{layer}_"
            + {
                "kernel": "W",
                "bias": "b",
                "moving_mean": "running_mean",
                "moving_variance": "running_std",
            }.get(leaf, leaf)
            + "_1:0"
        ),
    ),
}


@pytest.mark.parametrize("spelling", SPELLINGS)
def test_keras_resnet(spelling):
    (first, conv_name, norm_name), variable = SPELLINGS[spelling]
    ours = tiny("resnet50")
    rng = np.random.default_rng(1)
    theirs = {}

    def add(conv, norm, conv_layer, norm_layer):
        bias = rng.normal(size=2).astype(np.float32)
        values = (
            ours[f"{conv}.weight"].transpose(2, 3, 1, 0),
            bias,
            ours[f"{norm}.weight"],
            ours[f"{norm}.bias"],
            # A bias shifts what the norm sees, and with it the mean of that.
            ours[f"{norm}.running_mean"] + bias,
            ours[f"{norm}.running_var"],
        )
        for leaf, value in zip(LEAVES, values, strict=True):
            layer = conv_layer if leaf in ("kernel", "bias") else norm_layer
            theirs[variable(layer, leaf)] = value

    add("conv1", "bn1", *first)
    for stage, count in enumerate((3, 4, 6, 3), 1):
        for block in range(count):
            for place in range(1 if block else 0, 4):
                which = {
                    "s": stage + 1,
                    "b": block + 1,
                    "l": "abcdef"[block],
                    "i": place,
                    "j": ("1", "2a", "2b", "2c")[place],
                }
                path = f"layer{stage}.{block}."
                conv = path + (f"conv{place}" if place else "downsample.0")
                norm = path + (f"bn{place}" if place else "downsample.1")
                add(conv, norm, conv_name.format(**which), norm_name.format(**which))
    theirs[variable("fc1000", "kernel")] = np.ones((2, 5), np.float32)

    found = filling.canonical(theirs, {"source": "somewhere"})
    assert found.metadata == TORCH | {
        "architecture": "resnet50",
        "stride": "1x1",
        "preprocessing": "caffe_bgr",
        "bn_eps": "1.001e-5",
        "source": "somewhere",
    }
    assert found.tensors.keys() == ours.keys() | {"fc.weight"}
    assert found.tensors["fc.weight"].shape == (5, 2)
    for key, value in ours.items():
        np.testing.assert_allclose(found.tensors[key], value, rtol=0, atol=1e-6)


def test_keras_densenet_by_its_older_names():
    names = {
        "conv1/conv/conv1/conv/kernel:0": "features.conv0.weight",
        "conv1/bn/conv1/bn/moving_mean:0": "features.norm0.running_mean",
        "conv3_block12_0_bn/gamma": "features.denseblock2.denselayer12.norm1.weight",
        "conv3_block12_1_conv/kernel": "features.denseblock2.denselayer12.conv1.weight",
        "conv3_block12_1_bn/beta": "features.denseblock2.denselayer12.norm2.bias",
        "conv3_block12_2_conv/kernel": "features.denseblock2.denselayer12.conv2.weight",
        "pool2_conv/pool2_conv/kernel:0": "features.transition1.conv.weight",
        "pool4_bn/pool4_bn/moving_variance:0": "features.transition3.norm.running_var",
        "bn/bn/beta:0": "features.norm5.bias",
        "fc1000/fc1000/bias:0": "classifier.bias",
    }
    for block, count in enumerate((6, 12, 24, 16), 1):  # by which it is recognised
        for layer in range(1, count + 1):
            names[f"conv{block + 1}_block{layer}_1_conv/kernel"] = (
                f"features.denseblock{block}.denselayer{layer}.conv1.weight"
            )
    kernel, vector = np.zeros((1, 1, 2, 2), np.float32), np.zeros(2, np.float32)
    theirs = {
        k: kernel if k.split(":")[0].endswith("kernel") else vector for k in names
    }
    found = filling.canonical(theirs, {})
    assert found.tensors.keys() == set(names.values())
    assert found.metadata["architecture"] == "densenet121"
    assert found.metadata["preprocessing"] == "imagenet_rgb"
    assert found.metadata["bn_eps"] == "1.001e-5"


def test_keras_vgg_reads_positions_first():
    theirs = {
        f"block{block}_conv{place}/block{block}_conv{place}_{leaf}_1:0": np.zeros(
            (3, 3, 2, 2) if leaf == "W" else 2, np.float32
        )
        for block, count in enumerate((2, 2, 3, 3, 3), 1)
        for place in range(1, count + 1)
        for leaf in "Wb"
    }
    # What fc1 does with one position and channel of a 7x7x3 image.
    matrix = np.arange(7 * 7 * 3 * 2, dtype=np.float32).reshape(-1, 2)
    theirs["fc1/kernel"] = matrix
    found = filling.canonical(theirs, {})
    assert found.metadata["preprocessing"] == "caffe_bgr"
    assert found.tensors["features.28.bias"].shape == (2,)
    theirs_at = matrix.reshape(7, 7, 3, 2)[4, 6, 1]
    ours_at = found.tensors["classifier.0.weight"].reshape(2, 3, 7, 7)[:, 1, 4, 6]
    np.testing.assert_array_equal(ours_at, theirs_at)


def test_the_real_file(shared):
    path = shared / "weights" / "resnet50_imagenet_keras_v1.safetensors"
    with safe_open(path, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        weights = filling.canonical(tensors, file.metadata())
    assert filling.options(weights) == {
        "preprocessing": "caffe_bgr",
        "epsilon": 1.001e-5,
        "stride": "1x1",
    }
    model = encoder(weights)
    for path, variable in nnx.to_flat_state(nnx.state(model)):
        assert variable.dtype == jnp.float32, path
    kernel = model.layer4.blocks[0].shortcut.conv.kernel[...]
    expected = tensors["layer4.0.downsample.0.weight"].astype(np.float32)
    np.testing.assert_array_equal(kernel[0, 0], expected[:, :, 0, 0].T)


# --------------------------------------------------------------- what is refused


def named(*names, ndim=4):
    return {name: np.zeros((1,) * ndim, np.float32) for name in names}


@pytest.mark.parametrize(
    "tensors, message",
    [
        (
            named("layer1.0.conv1.weight", "layer1.0.conv3.weight"),
            r"a ResNet with \(1, 0, 0, 0\) blocks of 3 convolutions; this version",
        ),
        (
            named("features.denseblock1.denselayer1.conv1.weight"),
            r"a DenseNet with \(1, 0, 0, 0\) layers",
        ),
        (named("features.0.weight", "features.3.weight"), "such as features.0.weight"),
        (named("layers/conv2d/vars/0"), "such as layers/conv2d/vars/0"),
        (
            named("conv1_conv/kernel", "conv2_block1_preact_bn/gamma"),
            "Keras' ResNet50, but have conv2_block1_preact_bn, which it has not",
        ),
        (
            named("block1_conv1/kernel", "block3_conv4/kernel"),
            "Keras' VGG16, but have block3_conv4",
        ),
        ({}, "these weights have no tensors; this version knows resnet18"),
    ],
)
def test_unknown_networks(tensors, message):
    with pytest.raises(ValueError, match=message):
        filling.canonical(tensors, {})


@pytest.mark.parametrize(
    "metadata, arguments, message",
    [
        ({}, {"architecture": "resnet50"}, "a resnet18 by .* asks for resnet50"),
        ({"architecture": "vgg16"}, {}, "a resnet18 by .* metadata says vgg16"),
        (
            {"preprocessing": "caffe_bgr"},
            {"preprocessing": "imagenet_rgb"},
            "encoder.preprocessing is 'imagenet_rgb', but .* 'caffe_bgr'; leave it out",
        ),
        ({}, {"preprocessing": "caffe"}, "the weights' preprocessing is 'caffe'"),
        ({"stride": "2"}, {}, "the weights' stride is '2'; this version knows 3x3"),
        ({"bn_eps": "small"}, {}, "the weights' bn_eps is 'small'"),
        ({"bn_eps": "-1"}, {}, "the weights' bn_eps is '-1'"),
    ],
)
def test_contradictions(resnet, metadata, arguments, message):
    with pytest.raises(ValueError, match=message):
        filling.canonical(resnet.tensors, metadata, **arguments)


# -------------------------------------------------------------------- filling


def test_filling_without_initialising(resnet):
    fixed = filling.options(resnet)

    def make(**changes):
        options = fixed | {"channels": 1, "rngs": nnx.Rngs(0)} | changes
        return encoders.build("resnet18", **options)

    model = filling.filled(make, resnet)
    for (path, ours), (_, expected) in zip(
        nnx.to_flat_state(nnx.state(model)),
        nnx.to_flat_state(nnx.state(encoder(resnet, channels=1))),
        strict=True,
    ):
        np.testing.assert_array_equal(ours[...], expected[...], err_msg=str(path))
    with pytest.raises(ValueError, match="has preprocessing signed, the weights want"):
        filling.filled(lambda: make(preprocessing="signed"), resnet)


def test_all_that_does_not_fit_is_said_at_once(resnet):
    tensors = dict(resnet.tensors)
    del tensors["layer3.1.bn2.running_var"]
    tensors["layer1.0.conv1.weight"] = np.zeros((64, 64, 1, 1), np.float32)
    tensors["layer2.0.se.fc1.weight"] = np.zeros((4, 4), np.float32)
    model = nnx.merge(*abstract("resnet18", channels=3, epsilon=1e-3))
    with pytest.raises(ValueError) as caught:
        filling.fill(model, resnet._replace(tensors=tensors))
    assert str(caught.value).splitlines()[1:] == [
        "  the encoder has epsilon 0.001, the weights want 1e-05",
        "  layer1.0.conv1.weight is (64, 64, 1, 1), not (64, 64, 3, 3)",
        "  layer3.1.bn2.running_var (256,) is missing",
        "  layer2.0.se.fc1.weight (4, 4) has no place",
    ]


def test_another_architecture(resnet):
    for name in ("resnet34", "small"):
        model = nnx.merge(*abstract(name, channels=3))
        with pytest.raises(ValueError, match=f"are a resnet18, but .* is a {name}"):
            filling.fill(model, resnet)


def test_a_failed_filling_changes_nothing(resnet):
    model = encoder(resnet)
    before = model.stem.conv.kernel[...]
    tensors = {k: v + 1 for k, v in resnet.tensors.items() if k != "bn1.bias"}
    with pytest.raises(ValueError, match="bn1.bias .* is missing"):
        filling.fill(model, resnet._replace(tensors=tensors))
    np.testing.assert_array_equal(model.stem.conv.kernel[...], before)


def test_classifiers_and_counts_are_ignored(resnet):
    extra = {
        "fc.weight": np.zeros((1000, 512), np.float16),
        "fc.bias": np.zeros(1000, np.float32),
        "bn1.num_batches_tracked": np.array(7),
    }
    half = {k: v.astype(np.float16) for k, v in resnet.tensors.items()}
    model = encoder(resnet._replace(tensors=half | extra))
    kernel = model.layer2.blocks[0].conv2.kernel[...]
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
    with pytest.raises(ValueError, match=r"classifier.3.weight \(4, 4\) is missing"):
        encoder(weights._replace(tensors=fewer), hidden=4)


def test_a_kernel_summed_over_colours(resnet):
    model = encoder(resnet, channels=1, grey="sum")
    kernel = jnp.asarray(resnet.tensors["conv1.weight"].transpose(2, 3, 1, 0))
    expected = preprocessing.sum_over_colours(kernel, "imagenet_rgb")
    np.testing.assert_allclose(model.stem.conv.kernel[...], expected, rtol=1e-6)
    wrong = resnet.tensors | {"conv1.weight": np.zeros((64, 1, 7, 7), np.float32)}
    with pytest.raises(ValueError, match=r"conv1.weight is .*, not \(64, 3, 7, 7\)"):
        encoder(resnet._replace(tensors=wrong), channels=1, grey="sum")
