"""Encoders against keras.applications, on Keras' JAX backend."""

import contextlib
import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from references import (
    FLOAT32,
    check_features,
    check_step,
    encoder,
    error,
    features,
    images,
    random_like,
)
from safetensors import safe_open

from cloc_jax.encoders.weights import filling

keras = pytest.importorskip("keras", reason="the optional extra `parity`")
APPLICATIONS = {
    "resnet50": (keras.applications.ResNet50, keras.applications.resnet50),
    "vgg16": (keras.applications.VGG16, keras.applications.vgg16),
    "densenet121": (keras.applications.DenseNet121, keras.applications.densenet),
}


@contextlib.contextmanager
def keras_rules(dtype="float32"):
    """Keras in a floating-point type, without our tests' rules for JAX."""
    with (
        jax.numpy_rank_promotion("allow"),
        jax.debug_key_reuse(False),
        jax.enable_x64(dtype == "float64"),
        pytest.MonkeyPatch.context() as patch,
    ):
        if dtype == "float64":
            # On JAX it says float32, and batch norms compute in it.
            patch.setattr(keras.src.backend, "result_type", lambda *types: dtype)
        # Drawing each kernel would compile a function for each shape.
        patch.setattr(
            keras.initializers.GlorotUniform,
            "__call__",
            lambda _, shape, dtype=None: np.zeros(shape, dtype),
        )
        try:
            keras.config.set_floatx(dtype)
            keras.config.set_dtype_policy(dtype)
            yield
        finally:
            keras.config.set_floatx("float32")
            keras.config.set_dtype_policy("float32")


def build(name, dtype="float32", **options):
    """A network of Keras without classifier, updating its statistics as we do."""
    make, _ = APPLICATIONS[name]
    options = {"include_top": False, "pooling": "avg"} | options
    with keras_rules(dtype):
        net = make(weights=None, **options)
    for layer in net.layers:
        if isinstance(layer, keras.layers.BatchNormalization):
            layer.momentum = 0.9
    return net


def randomised(net):
    """Random weights in a Keras model, and the same for ours."""
    rng = np.random.default_rng(1)
    names = {"gamma": "weight", "moving_variance": "running_var"}
    for variable in net.variables:
        leaf = variable.path.split("/")[-1]
        # Keras' kernels have their outputs last.
        shape = tuple(variable.shape)[::-1]
        variable.assign(random_like(names.get(leaf, leaf), shape, rng).T)
    return filling.canonical(tensors_of(net), {})


def tensors_of(net):
    return {v.path: np.asarray(v.value) for v in net.variables}


def preprocessed(name, pictures):
    return APPLICATIONS[name][1].preprocess_input(pictures.astype(np.float32))


def feature_reference(name, net):
    """What `check_features` compares with."""

    def reference(pictures, train):
        def run(trained, rest, x):
            return net.stateless_call(trained, rest, x, training=train)

        with keras_rules():
            x = jnp.asarray(preprocessed(name, pictures))
            trained, rest = state_of(net)
            output, after = jax.jit(run)(trained, rest, x)
        tensors = tensors_of(net) | named(net.non_trainable_variables, after)
        return np.asarray(output), filling.canonical(tensors, {}).tensors

    return reference


def step_reference(name):
    """What `check_step` compares with."""

    def reference(x, direction, train):
        net = build(name, "float64")

        def loss(trained, rest, x):
            output, after = net.stateless_call(trained, rest, x, training=train)
            return (output * direction).sum(), (output, after)

        with keras_rules("float64"):
            randomised(net)
            run = jax.jit(jax.grad(loss, has_aux=True))
            gradients, (output, after) = run(*state_of(net), jnp.asarray(x))
        # Biases before a batch norm stay as they are: `canonical` takes them into the
        # statistics, and ours has no parameter for them.
        is_bias = {v.path: v.path.endswith("_conv/bias") for v in net.variables}
        tensors = tensors_of(net) | named(net.non_trainable_variables, after)
        for path, gradient in named(net.trainable_variables, gradients).items():
            if not is_bias[path]:
                tensors[path] = gradient
        return np.asarray(output), filling.canonical(tensors, {}).tensors

    return reference


def state_of(net):
    return tuple(
        [variable.value for variable in variables]
        for variables in (net.trainable_variables, net.non_trainable_variables)
    )


def named(variables, values):
    return {v.path: np.asarray(x) for v, x in zip(variables, values, strict=True)}


def keras_name(name):
    """Keras' name of a tensor of torchvision's ResNet-50."""
    module, leaf = name.rsplit(".", 1)
    is_norm = "bn" in module or "downsample.1" in module
    new = {
        "weight": "gamma" if is_norm else "kernel",
        "bias": "beta" if is_norm else "bias",
        "running_mean": "moving_mean",
        "running_var": "moving_variance",
    }[leaf]
    kind = "bn" if is_norm else "conv"
    if not module.startswith("layer"):
        return f"conv1_{kind}/{new}"
    stage, block, place = re.match(r"layer(\d)\.(\d)\.\w+?(\d|\.)", name).groups()
    place = "0" if place == "." else place
    return f"conv{int(stage) + 1}_block{int(block) + 1}_{place}_{kind}/{new}"


OPTIONS = {"resnet50": {}, "vgg16": {"pooling": "average"}, "densenet121": {}}


@pytest.mark.parametrize("name", ["resnet50", "vgg16"])
def test_features(name):
    net = build(name)
    weights, reference = randomised(net), feature_reference(name, net)
    assert weights.metadata["architecture"] == name
    check_features(weights, images((64, 48)), reference, **OPTIONS[name])


@pytest.mark.slow
@pytest.mark.parametrize("name", APPLICATIONS)
def test_features_of_odd_sizes(name):
    net = build(name)
    weights, reference = randomised(net), feature_reference(name, net)
    check_features(weights, images((120, 200)), reference, **OPTIONS[name])


@pytest.mark.slow
@pytest.mark.parametrize("train", [False, True], ids=["eval", "train"])
@pytest.mark.parametrize("name", APPLICATIONS)
def test_a_step(name, train):
    weights = randomised(build(name))
    check_step(weights, (75, 58), step_reference(name), train=train, **OPTIONS[name])


@pytest.mark.slow
def test_the_fully_connected_layers():
    net = build("vgg16", include_top=True)
    weights = randomised(net)
    with keras_rules():
        net = keras.Model(net.inputs, net.get_layer("fc2").output)
    check_features(weights, images((224, 224)), feature_reference("vgg16", net))


@pytest.mark.slow
def test_trained_weights(shared):
    path = shared / "weights" / "resnet50_imagenet_keras_v1.safetensors"
    with safe_open(path, "np") as file:
        tensors = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        weights = filling.canonical(tensors, file.metadata())
    net = build("resnet50")
    variables = {v.path: v for v in net.variables}
    for name, tensor in tensors.items():
        if not name.startswith("fc."):
            values = tensor.astype(np.float32)
            values = values.transpose(2, 3, 1, 0) if values.ndim == 4 else values
            variables.pop(keras_name(name)).assign(values)
    assert all(path.endswith("_conv/bias") for path in variables)  # zero

    pictures = images((120, 200), batch=3)
    expected, _ = feature_reference("resnet50", net)(pictures, False)

    def error_with(weights, pictures):
        return error(features(encoder(weights), pictures)[0], expected)

    assert error_with(weights, pictures) < FLOAT32
    assert error_with(weights, pictures[..., ::-1]) > 100 * FLOAT32
    for wrong in ({"stride": "3x3"}, {"preprocessing": "imagenet_rgb"}):
        said = weights._replace(metadata=weights.metadata | wrong)
        assert error_with(said, pictures) > 100 * FLOAT32
