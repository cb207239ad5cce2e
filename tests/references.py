"""How the encoders are compared with other implementations of them.

Features are compared in float32, from uint8 images on; training steps in float64, from
the first convolution on, because one ReLU on its other side moves a gradient by 5%.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx

from cloc_jax import encoders
from cloc_jax.encoders.weights import filling, names

FLOAT32, FLOAT64 = 1e-4, 1e-6  # relative errors allowed


def images(size, *, batch=2, channels=3, seed=0):
    """Random images that are not noise alone."""
    rng = np.random.default_rng(seed)
    height, width = size
    coarse = rng.uniform(0, 255, (batch, height // 8 + 1, width // 8 + 1, channels))
    fine = coarse.repeat(8, 1).repeat(8, 2)[:, :height, :width]
    return np.clip(fine + rng.normal(0, 20, fine.shape), 0, 255).astype(np.uint8)


def random_like(name, shape, rng):
    """Values of a tensor of torchvision that keep a deep network's activations sane."""
    if name.endswith("running_var") or (name.endswith("weight") and len(shape) == 1):
        return rng.uniform(0.5, 1.5, shape).astype(np.float32)
    if len(shape) == 1:
        # Whole multiples: the difference of a mean and a bias is then exact.
        return (np.round(rng.normal(0, 400, shape)) / 4096).astype(np.float32)
    fan_in = np.prod(shape[1:])
    return rng.normal(0, np.sqrt(2 / fan_in), shape).astype(np.float32)


def random_weights(name, **options):
    """Random weights for an encoder without a reference at hand."""
    rng = np.random.default_rng(2)
    _, state = abstract(name, channels=3, **options)
    tensors = {}
    for path, variable in nnx.to_flat_state(state):
        key = names.torchvision_name(name, path)
        shape = variable.shape
        shape = (*shape[:1:-1], *shape[:2]) if len(shape) == 4 else shape[::-1]
        tensors[key] = random_like(key, shape, rng)
    return filling.canonical(tensors, {})


def few_numbers(name):
    """Tensors of an architecture by torchvision's names, each of four numbers or less.

    `canonical` reads names and dimensions; sizes are for `filled`.
    """
    rng = np.random.default_rng(0)
    _, state = abstract(name, channels=3)
    tensors = {}
    for path, variable in nnx.to_flat_state(state):
        shape = {4: (2, 2, 1, 1), 2: (2, 1), 1: (2,)}[variable.ndim]
        if name == "vgg16" and path[-2:] == ("fc6", "kernel"):
            shape = (1, 98)
        key = names.torchvision_name(name, path)
        tensors[key] = rng.normal(size=shape).astype(np.float32)
    return tensors


def encoder(weights, *, channels=3, **options):
    """Ours with these weights; nothing is initialised before."""
    options = filling.options(weights) | options
    name = weights.metadata["architecture"]
    return filling.filled(
        lambda: encoders.Backbone(name, channels=channels, rngs=nnx.Rngs(0), **options),
        weights,
    )


@functools.cache
def abstract(name, *, channels, **options):
    """Structure and shapes of an encoder."""
    return nnx.split(
        nnx.eval_shape(
            lambda: encoders.Backbone(
                name, channels=channels, rngs=nnx.Rngs(0), **options
            )
        )
    )


def viewed(model, *, train):
    """The model in one mode; some have no batch norm to be told."""
    return nnx.view(model, use_running_average=not train, raise_if_not_found=False)


def features(model, pictures, *, train=False):
    """Features, and the encoder with the statistics after it."""
    graph, state = nnx.split(viewed(model, train=train))

    @jax.jit
    def run(state, pictures):
        ours = nnx.merge(graph, state, copy=True)
        return ours(pictures), nnx.state(ours)

    output, state = run(state, jnp.asarray(pictures))
    return np.asarray(output), nnx.merge(graph, state)


def step(model, x, direction, *, train):
    """In float64: features, the gradients of direction . features, and the statistics.

    x is what enters the stem, so that both sides start from the same numbers.
    """
    for _, node in nnx.iter_graph(model):
        if isinstance(node, nnx.Conv | nnx.Linear):
            node.dtype = None  # that of its parameters
    graph, *states = nnx.split(viewed(model, train=train), nnx.Param, ...)
    with jax.enable_x64(True):
        states = jax.tree.map(lambda a: a.astype(jnp.float64), states)

        def loss(params, rest, x):
            ours = nnx.merge(graph, params, rest, copy=True)
            output = ours.after(x, "stem")
            return (output * direction).sum(), (output, nnx.state(ours, nnx.BatchStat))

        run = jax.jit(jax.grad(loss, has_aux=True))
        found, (output, statistics) = run(*states, jnp.asarray(x, jnp.float64))
    return output, found, statistics


def error(ours, theirs, floor=0.0):
    """Largest difference, relative to the largest value."""
    ours, theirs = np.asarray(ours, np.float64), np.asarray(theirs, np.float64)
    assert ours.shape == theirs.shape
    scale = max(np.abs(theirs).max(), floor)
    assert scale > 0
    return np.abs(ours - theirs).max() / scale


def errors(ours, weights, **options):
    """By path, errors of a state's arrays against tensors of torchvision's names."""
    theirs = dict(nnx.to_flat_state(nnx.state(encoder(weights, **options))))
    flat = dict(nnx.to_flat_state(ours))
    # Some gradients are zero but for rounding, as a bias' before a batch norm.
    largest = max((float(jnp.abs(theirs[k][...]).max()) for k in flat), default=0.0)
    return {k: error(v[...], theirs[k][...], 1e-6 * largest) for k, v in flat.items()}


def check_features(weights, pictures, reference, *, train=False, **options):
    """Asserts that features and the statistics after the batch are the reference's.

    reference(pictures, train) -> features, and the statistics as tensors by
    torchvision's names.
    """
    output, after = features(encoder(weights, **options), pictures, train=train)
    expected, statistics = reference(pictures, train)
    assert error(output, expected) < FLOAT32
    found = errors(
        nnx.state(after, nnx.BatchStat),
        weights._replace(tensors=weights.tensors | statistics),
        **options,
    )
    assert {k: e for k, e in found.items() if e > FLOAT32} == {}


def check_step(weights, size, reference, *, train, **options):
    """Asserts that a training step's features, gradients and statistics are the same.

    reference(x, direction, train) -> features, and as tensors by torchvision's names
    the gradients of all parameters and the statistics after the step.
    """
    model = encoder(weights, **options)
    rng = np.random.default_rng(5)
    x = rng.normal(size=(3, *size, 3))
    direction = rng.normal(size=(3, model.features)).astype(np.float32)
    output, *ours = step(model, x, direction, train=train)
    expected, tensors = reference(x, direction, train)
    assert error(output, expected) < FLOAT64
    for state in ours:
        found = errors(state, weights._replace(tensors=tensors), **options)
        assert {k: e for k, e in found.items() if e > FLOAT64} == {}
