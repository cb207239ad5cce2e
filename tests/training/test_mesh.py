"""One device, eight devices and split parameters compute the same."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec
from tiny_runs import KEY, SMALL_METHODS, program_of, stage_parts, tiny

from cloc_jax.data import pipeline
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.training import assembly


def three_steps(**mesh):
    # SGD, since Adam makes full steps of the rounding noise in tiny gradients.
    config = tiny(
        optimizer__name="sgd",
        optimizer__learning_rate=0.01,
        encoder__widths=(4, 8, 16, 32),
        head__hidden=128,
        **mesh,
    )
    step, carry, batch, _, _ = stage_parts(config)
    for _ in range(3):
        carry = step(carry, batch, KEY)
    return carry, step


@pytest.fixture(scope="module")
def alone():
    return jax.tree.map(np.asarray, three_steps(mesh__devices=1)[0])


@pytest.mark.slow
@pytest.mark.parametrize(
    "mesh, spec, parts",
    [
        ({"mesh__shape": (1, 8)}, PartitionSpec(None, "shard"), 8),
        # Four parts, and two devices hold the same one.
        ({"mesh__shape": (2, 4)}, PartitionSpec(None, "shard"), 4),
    ],
)
def test_split_parameters_equal_one_device(alone, mesh, spec, parts):
    carry, step = three_steps(mesh__devices=8, **mesh)
    assert step._cache_size() == 1
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(carry), strict=True):
        np.testing.assert_allclose(one, np.asarray(other), rtol=1e-5, atol=1e-5)
    kernel = carry.model.params["head"]["linear1"]["kernel"][...]
    assert kernel.sharding.spec == spec
    assert kernel.addressable_shards[0].data.size * parts == kernel.size


SMALL = SMALL_METHODS | {
    "optimizer__name": "sgd",
    "optimizer__learning_rate": 0.01,
    "encoder__widths": (4, 8, 16, 32),
}


def stepped(name, index, devices):
    """Model, scalars and loss after a step of a stage on its own batch."""
    config = tiny(method__name=name, mesh__devices=devices, **SMALL)
    for stage in ("pretrain", "probe"):
        if stage in config.method[name]:
            config.method[name][stage].name = "sgd"
    parts = assembly.build(config)
    stage = parts.method.stages[index]
    batch = next(
        pipeline.training_batches(
            parts.dataset.splits["train"],
            parts.samplers[index],
            draws=assembly.draws(config, parts.dataset, stage),
            seed=(0, index),
            first_step=0,
            threads=1,
            place=lambda rows: sharding.place_batch(rows, parts.mesh),
        )
    )
    graph, state = checkpoint.split_model(parts.create())
    program = program_of(config, parts, stage, index, graph, state, batch)
    carry = program.first_carry(state)
    before = jax.tree.map(np.asarray, carry.model)
    after = jax.tree.map(np.asarray, program.step(carry, batch, KEY))
    return before, after


# A stage of each kind. Those of orcnn, coral, corn and sord are as that of ce but for
# losses, which tests/losses has over devices; supcon and dino have simclr's probe.
STAGES = [
    *(("cloc", 0), ("cloc", 1), ("ce", 0), ("clm", 0), ("poe", 0), ("gol", 0)),
    *(("mwr", 0), ("rnc", 0), ("rnc", 1), ("simclr", 0), ("simclr", 1)),
    *(("supcon", 0), ("dino", 0)),
]


@pytest.mark.slow
@pytest.mark.parametrize("name, index", STAGES)
def test_a_step_of_every_kind_is_over_the_global_batch(name, index):
    """One row per device: a loss or a batch norm of one device would differ."""
    before, alone = stepped(name, index, 1)
    _, spread = stepped(name, index, 8)
    assert alone.totals["loss"] > 0
    moved = [
        np.abs(a - b).max()
        for a, b in zip(
            jax.tree.leaves(before), jax.tree.leaves(alone.model), strict=True
        )
        if np.issubdtype(a.dtype, np.floating) and a.size
    ]
    assert max(moved) > 1e-4
    for one, other in zip(jax.tree.leaves(alone), jax.tree.leaves(spread), strict=True):
        # Relative to the array: sums in another order differ by its largest terms.
        largest = np.abs(one).max(initial=0.1)
        np.testing.assert_allclose(one, other, rtol=0, atol=2e-4 * largest)


def test_a_mesh_of_two_axes():
    mesh = sharding.make_mesh(8, (2, 4))
    assert dict(mesh.shape) == {"data": 2, "shard": 4}
    batch = sharding.place_batch({"x": np.arange(16)}, mesh)["x"]
    assert batch.addressable_shards[0].data.shape == (2,)
    total = sharding.over_batch(
        lambda z, y, m, where, axis_name: jax.lax.psum(jnp.sum(z), axis_name), mesh
    )
    ones = jnp.ones(16, jnp.float32)
    assert total(ones, ones, ones, ones) == 16


def test_what_is_split_and_what_is_copied():
    mesh = sharding.make_mesh(8, (1, 8))
    state = {
        "large": jnp.zeros((3, 3, 64, 128), jnp.float32),
        "odd": jnp.zeros((99, 101), jnp.float32),
        "small": jnp.zeros(64, jnp.float32),
    }
    split = sharding.state_shardings(state, mesh)
    assert split["large"].spec == PartitionSpec(None, None, None, "shard")
    assert split["odd"].is_fully_replicated and split["small"].is_fully_replicated
    placed = sharding.place_state(state, split)
    assert placed["large"].addressable_shards[0].data.shape == (3, 3, 64, 16)


def test_what_does_not_fit_the_devices():
    for shape in ((2, 3), (8, 2), (2, 2, 2), (0, 8)):
        with pytest.raises(ValueError, match="there are 8 devices; give two numbers"):
            sharding.make_mesh(8, shape)
    with pytest.raises(ValueError, match="mesh.devices is 9, but there are 8"):
        sharding.make_mesh(9)
    sharding.check_batch(64, sharding.make_mesh(8))
    for batch, devices, others in ((100, 8, "96 or 104"), (8, 3, "6 or 12")):
        with pytest.raises(ValueError, match=f"not divide over {devices} .* {others}"):
            sharding.check_batch(batch, sharding.make_mesh(devices))
