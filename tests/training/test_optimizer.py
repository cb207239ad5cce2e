"""Optimizer groups: what is listed moves, all else stays to the bit."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny_runs import tiny

from cloc_jax import encoders, methods
from cloc_jax.methods.interface import NETWORK as EVERY_NETWORK
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.training import assembly, encoder, optimizer

# The small encoder has four layers; VGG16 has a fifth.
NETWORK = tuple(group for group in EVERY_NETWORK if group != "layer5")
SETTINGS = {
    "name": "adam",
    "learning_rate": 0.1,
    "weight_decay": 0.0,
    "steps_per_epoch": 5,
    "epochs": 2,
}


@pytest.fixture(scope="module")
def model():
    method = assembly.build_method(tiny(), 4, sharding.make_mesh(1))

    def create():
        rngs = nnx.Rngs(0)
        encoder = encoders.Backbone("small", channels=1, widths=(2, 2, 2, 2), rngs=rngs)
        return method.init(encoder, rngs)

    return checkpoint.split_model(encoder.compiled_model(create)())[1].params


def moved(params, trains, **settings):
    """Groups whose parameters changed in a step where every gradient is 1."""
    rule = optimizer.build(trains, **(SETTINGS | settings))

    @jax.jit
    def step(params):
        ones = jax.tree.map(jnp.ones_like, params)
        updates, _ = rule.update(ones, rule.init(params), params)
        return optax.apply_updates(params, updates)

    before = jax.tree_util.tree_leaves_with_path(params)
    after = jax.tree.leaves(step(params))
    changed, kept = set(), set()
    for (path, old), new in zip(before, after, strict=True):
        group = methods.group_of(tuple(getattr(k, "key", k) for k in path))
        same = np.asarray(old).tobytes() == np.asarray(new).tobytes()
        (kept if same else changed).add(group)
    assert not changed & kept
    return changed


@pytest.mark.parametrize(
    "groups", [(*NETWORK, "margins"), NETWORK, ("layer4",), ()], ids=len
)
def test_groups_that_are_listed_move_and_no_others(model, groups):
    assert moved(model, dict.fromkeys(groups, {})) == set(groups)


def test_no_decay_reaches_margins_in_phase_one():
    params = nnx.State({"margins": {"theta": nnx.Param(jnp.full(3, 2.0, jnp.float32))}})
    for settings, decays in (({"weight_decay": 0.0}, False), ({}, True)):
        rule = optimizer.build(
            {"margins": settings},
            **(SETTINGS | {"weight_decay": 0.5}),
        )
        zeros = jax.tree.map(jnp.zeros_like, params)
        updates, _ = rule.update(zeros, rule.init(params), params)
        assert bool(np.any(jax.tree.leaves(updates)[0])) == decays
