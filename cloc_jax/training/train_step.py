"""One training step of a stage: loss, gradients, optimizer, and what is counted.

What a step changes lives on the device in a `Carry`.
"""

from collections.abc import Callable
from typing import NamedTuple

import jax
import jax.numpy as jnp
import optax
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, Float, Int

from cloc_jax import methods
from cloc_jax.data import pipeline
from cloc_jax.methods import Stage
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.training import optimizer as optimizers


class Carry(NamedTuple):
    """All that a training step changes, on the device."""

    model: ModelState
    optimizer: optax.OptState
    step: Int[Array, ""]  # of the stage
    bad_step: Int[Array, ""]  # the first with a non-finite loss or gradient, or -1
    totals: dict[str, Float[Array, ""]]  # sums of scalars since the epoch began


def stage_key(seed: int, index: int) -> Array:
    """The random key of a stage's steps."""
    return jax.random.fold_in(jax.random.key(seed), index)


def make_step(
    graph: nnx.GraphDef,
    stage: Stage,
    optimizer: optax.GradientTransformation,
    key: Array,
    shardings: Carry,
    num_steps: int,
) -> Callable[[Carry, pipeline.Batch], Carry]:
    """The compiled training step of a stage; `shardings` as the carry's arrays lie."""
    step = step_function(graph, stage, optimizer, num_steps)
    return jax.jit(
        lambda carry, batch: step(carry, batch, key),
        donate_argnums=0,
        out_shardings=shardings,
    )


def step_function(
    graph: nnx.GraphDef,
    stage: Stage,
    optimizer: optax.GradientTransformation,
    num_steps: int,
) -> Callable[[Carry, pipeline.Batch, Array], Carry]:
    """A stage's training step, of carry, batch and the stage's key.

    `num_steps` is how many the stage has at most.

    A step whose loss or gradient is not finite changes nothing, and no step after it
    does: the carry stays at its last good state until the host notices.
    """

    def step(carry: Carry, batch: pipeline.Batch, key: Array) -> Carry:
        def loss(params, rest):
            return _loss(graph, stage, ModelState(params, rest), batch, key, carry.step)

        (_, (rest, scalars)), gradients = jax.value_and_grad(loss, has_aux=True)(
            *carry.model
        )
        # Of what is trained only: XLA then leaves out the rest of the backward pass.
        moving = optimizers.trained(gradients, stage.trains, methods.group_of)
        finite = jnp.isfinite(scalars["loss"] + optax.tree.norm(moving))
        is_first = (carry.bad_step < 0) & ~finite
        bad_step = jnp.where(is_first, carry.step, carry.bad_step)
        params = carry.model.params
        updates, state = optimizer.update(gradients, carry.optimizer, params)
        updated = ModelState(optax.apply_updates(params, updates), rest)
        model = checkpoint.merge_model(graph, updated)
        stage.after_step(model, carry.step, num_steps)
        totals = jax.tree.map(jnp.add, carry.totals, scalars)
        new = Carry(
            checkpoint.split_model(model)[1], state, carry.step + 1, bad_step, totals
        )
        good = jax.tree.map(lambda a, b: jnp.where(bad_step < 0, a, b), new, carry)
        return good._replace(bad_step=bad_step)

    return step


def first_carry(
    model: ModelState, optimizer: optax.GradientTransformation, names: list[str]
) -> Carry:
    """The carry before the first step of a stage whose scalars have these names."""
    return Carry(
        model,
        jax.jit(optimizer.init)(model.params),
        jnp.zeros((), jnp.int32),
        jnp.full((), -1, jnp.int32),
        {name: jnp.zeros((), jnp.float32) for name in names},
    )


def place_carry(carry: Carry, mesh: Mesh, *, shard_params: bool) -> Carry:
    """The carry laid out over the mesh."""
    shardings = sharding.state_shardings(carry, mesh, shard_params=shard_params)
    return sharding.place_state(carry, shardings)


def scalar_names(graph, stage: Stage, model: ModelState, batch) -> list[str]:
    """Names of the scalars that a stage's loss reports."""
    shapes = jax.eval_shape(
        lambda model, batch: _loss(graph, stage, model, batch, jax.random.key(0), 0),
        model,
        batch,
    )
    return list(shapes[1][1])


def _loss(graph, stage: Stage, state: ModelState, batch, key, step):
    model = checkpoint.merge_model(graph, state)
    methods.freeze(model, stage.trains, stage.evaluates)
    rngs = nnx.Rngs(jax.random.fold_in(key, step))
    value, scalars = stage.loss(model, batch, rngs)
    return value, (checkpoint.split_model(model)[1].rest, scalars | {"loss": value})
