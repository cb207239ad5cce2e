"""Encoders: input, parts, precision. test_parity_torch.py compares their numbers."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from references import (
    FLOAT32,
    abstract,
    encoder,
    error,
    features,
    images,
    random_like,
    random_weights,
    viewed,
)

from cloc_jax import encoders
from cloc_jax.encoders import backbone, layers


def shapes(name, **options):
    """An encoder without arrays."""
    options = {"channels": 3} | options
    return nnx.eval_shape(lambda: encoders.Backbone(name, rngs=nnx.Rngs(0), **options))


def run(model, function, *arguments):
    """function(model, *arguments), compiled, with the running statistics."""
    graph, state = nnx.split(viewed(model, train=False))
    compiled = jax.jit(lambda state, *rest: function(nnx.merge(graph, state), *rest))
    return compiled(state, *arguments)


def tiny(**options):
    """The small encoder at its smallest, without compiling its initialisation."""
    graph, state = abstract("small", channels=3, widths=(2, 2, 4, 4), **options)
    rng = np.random.default_rng(0)

    def draw(path, leaf):
        name = "running_var" if "var" in str(path) else "weight"
        return jnp.asarray(random_like(name, leaf.shape[::-1], rng).T)

    return nnx.merge(graph, jax.tree_util.tree_map_with_path(draw, state))


# ------------------------------------------------------------------- building


@pytest.mark.parametrize(
    "name, options, message",
    [
        ("resnet", {}, "encoder.name is 'resnet'; use one of small, resnet18"),
        ("resnet18", {"stride": "1x1"}, "encoder.stride is '1x1'; use one of 3x3"),
        ("resnet18", {"dtype": "float16"}, "encoder.dtype is 'float16'"),
        ("small", {"widths": (1, 2)}, "encoder.widths is"),
        ("vgg16", {"pooling": "max"}, "encoder.pooling is 'max'"),
    ],
)
def test_refused(name, options, message):
    with pytest.raises(ValueError, match=message):
        shapes(name, **options)


@pytest.mark.parametrize(
    "name, width",
    [
        ("small", 128),
        ("resnet18", 512),
        ("resnet34", 512),
        ("resnet50", 2048),
        ("vgg16", 4096),
        ("vgg16_bn", 4096),
        pytest.param("densenet121", 1024, marks=pytest.mark.slow),
    ],
)
def test_sizes(name, width):
    graph, state = abstract(name, channels=3)
    pictures = jax.ShapeDtypeStruct((2, 32, 57, 3), jnp.uint8)
    output = jax.eval_shape(lambda s, x: nnx.merge(graph, s)(x), state, pictures)
    assert output.shape == (2, width)
    assert output.dtype == jnp.float32
    model = nnx.merge(graph, state)
    assert model.features == width
    groups = {path[0] for path, _ in nnx.to_flat_state(state)}
    assert groups == set(model.parts)  # every parameter belongs to a part


# ---------------------------------------------------------------------- parts


@pytest.mark.parametrize("name", ["small", "resnet18"])
def test_leaving_and_entering_between_parts(name):
    model = tiny() if name == "small" else encoder(random_weights(name))

    def halves(model, pictures):
        parts = [model.before(pictures, part) for part in model.parts]
        pairs = zip(parts, model.parts, strict=True)
        features = [model.after(x, part) for x, part in pairs]
        return parts[0], features, model.before(pictures, None), model(pictures)

    pictures = jnp.asarray(images((40, 32)))
    first, features, last, whole = run(model, halves, pictures)
    np.testing.assert_array_equal(
        first, run(model, lambda m, x: m.prepare(x), pictures)
    )
    for each in (*features, last):
        np.testing.assert_allclose(each, whole, rtol=1e-5, atol=1e-6)
    assert whole.min() >= 0 and whole.max() > 0 and not model.is_signed


# ---------------------------------------------------------------------- input


def test_preprocessing():
    pixels = np.random.default_rng(0).integers(0, 256, (2, 5, 4, 3), dtype=np.uint8)
    expected = {
        "imagenet_rgb": (pixels / 255 - [[[[0.485, 0.456, 0.406]]]])
        / [[[[0.229, 0.224, 0.225]]]],
        "caffe_bgr": pixels[..., ::-1] - [[[[103.939, 116.779, 123.68]]]],
        "signed": pixels / 127.5 - 1,
    }
    assert expected.keys() == backbone.PREPROCESSINGS.keys()
    for name, values in expected.items():
        ours = backbone.normalise(jnp.asarray(pixels), name)
        np.testing.assert_allclose(ours, values, rtol=1e-5, atol=1e-5)
        grey = np.repeat(pixels[..., :1], 3, -1)  # a grey image is so in all colours
        np.testing.assert_array_equal(
            backbone.normalise(jnp.asarray(pixels[..., :1]), name),
            backbone.normalise(jnp.asarray(grey), name),
        )


# ------------------------------------------------------------------ precision


def test_bfloat16():
    pictures = jnp.asarray(images((48, 40), batch=4))
    model = tiny(dtype="bfloat16")
    graph, state = nnx.split(model)

    def inside(state, pictures):
        model = nnx.merge(graph, state)
        return [model.before(pictures, part) for part in model.parts[1:]]

    for entering in jax.eval_shape(inside, state, pictures):
        assert entering.dtype == jnp.bfloat16
    output, after = features(model, pictures, train=True)
    assert output.dtype == np.float32
    for path, variable in nnx.to_flat_state(nnx.state(after)):
        assert variable.dtype == jnp.float32, path
    mean = after.layer3.norm1.mean[...]
    assert (mean != mean.astype(jnp.bfloat16).astype(jnp.float32)).any()
    expected, _ = features(tiny(), pictures, train=True)
    assert FLOAT32 < error(output, expected) < 0.1


def test_batch_norm_computes_in_float32():
    norm = layers.BatchNorm(3, momentum=0.9, rngs=nnx.Rngs(0))
    norm.mean[...] = jnp.array([100.1, 0.3, -7.7], jnp.float32)
    norm.var[...] = jnp.array([1e-3, 2.0, 0.7], jnp.float32)
    x = jnp.asarray(norm.mean[...].reshape(1, 1, 1, 3) + 1, jnp.bfloat16)
    found = norm(x, use_running_average=True)
    exact = norm(x.astype(jnp.float32), use_running_average=True)
    assert found.dtype == jnp.bfloat16
    np.testing.assert_array_equal(found, exact.astype(jnp.bfloat16))
