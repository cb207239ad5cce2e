"""One training step of a stage: loss, gradients, optimizer, and what is counted.

What a step changes lives on the device in a `Carry`. Stages that are the same program
on other numbers (seeds, margins, labels) share what was compiled for the first of them.
"""

import json
from collections.abc import Callable, Hashable, Mapping
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax
from flax import nnx
from jax.sharding import Mesh
from jaxtyping import Array, ArrayLike, Int

from cloc_jax import methods
from cloc_jax.data import pipeline
from cloc_jax.methods import Stage, interface
from cloc_jax.methods.interface import Share
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.training import optimizer as optimizers

MOST_PROGRAMS = 32  # kept at a time; those of the longest unused settings go first


class NonFinite(ArithmeticError):
    """The loss or a gradient of a step became infinite or not a number."""

    def __init__(self, text: str, step: int):
        super().__init__(text)
        self.step = step


class Carry(NamedTuple):
    """All that a training step changes, on the device."""

    model: ModelState
    optimizer: optax.OptState
    step: Int[Array, ""]  # of the stage
    bad_step: Int[Array, ""]  # the first with a non-finite loss or gradient, or -1
    totals: dict[str, Any]  # sums of scalars and `Share`s since the epoch began


class Program:
    """The compiled functions of a stage.

    `settings` are as `config.optimizer` has them. Shapes may stand for arrays.
    """

    def __init__(
        self,
        graph: nnx.GraphDef,
        stage: Stage,
        settings: Mapping[str, Any],
        mesh: Mesh,
        steps_per_epoch: int,
        model: ModelState,
        batch: pipeline.Batch,
    ):
        optimizer = optimizers.of_stage(stage, settings, steps_per_epoch)
        scalars = scalar_shapes(graph, stage, model, batch)
        self._first = jax.jit(lambda model: first_carry(model, optimizer, scalars))
        like = jax.eval_shape(self._first, model)
        self._shardings = sharding.state_shardings(like, mesh)
        self.shapes = jax.tree.map(  # of the carry, where its arrays lie included
            lambda x, where: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=where),
            like,
            self._shardings,
        )
        num_steps = steps_per_epoch * stage.stop.max_epochs
        step = step_function(graph, stage, optimizer, num_steps)
        self.step = self._compiled(step)  # (carry, batch, key) -> carry

        def several(carry: Carry, batches: pipeline.Batch, key: Array, count) -> Carry:
            def one(i, carry: Carry) -> Carry:
                return step(carry, jax.tree.map(lambda rows: rows[i], batches), key)

            return jax.lax.fori_loop(0, count, one, carry)

        # (carry, batches [step, row, …], key, how many of them) -> carry. The number
        # is no constant: any part of an epoch is the same program, to the bit.
        self.steps = self._compiled(several)
        self.begin_epoch = self._compiled(
            lambda carry: carry._replace(
                totals=jax.tree.map(jnp.zeros_like, carry.totals)
            )
        )
        self.copy = jax.jit(
            lambda model: jax.tree.map(jnp.copy, model),
            out_shardings=self._shardings.model,
        )

    def _compiled(self, function: Callable) -> Callable:
        return jax.jit(function, donate_argnums=0, out_shardings=self._shardings)

    def first_carry(self, model: ModelState) -> Carry:
        """The carry before the first step, laid out over the devices."""
        return sharding.place_state(self._first(model), self._shardings)


def means(carry: Carry, length: int) -> dict[str, float]:
    """Mean scalars since an epoch of that many steps began; NonFinite where one is not.

    The only look at the device within an epoch.
    """
    step, bad_step, totals = jax.device_get((carry.step, carry.bad_step, carry.totals))
    if bad_step >= 0:
        text = f"the loss or a gradient was not finite at step {int(bad_step)}"
        raise NonFinite(text, int(bad_step))
    done = (int(step) - 1) % length + 1
    return {
        name: float(total) / done
        for name, total in totals.items()
        if not isinstance(total, Share)
    }


def share(part: ArrayLike, whole: ArrayLike) -> list[float | None]:
    """Part over whole; None where there is no whole."""
    counts = zip(np.asarray(part).tolist(), np.asarray(whole).tolist(), strict=True)
    return [some / all_ if all_ else None for some, all_ in counts]


def shares(carry: Carry) -> dict[str, list[float | None]]:
    """The `Share`s since the epoch began; None of a boundary that has no whole."""
    totals = jax.device_get(carry.totals)
    return {
        name: share(total.part, total.whole)
        for name, total in totals.items()
        if isinstance(total, Share)
    }


PROGRAMS: dict[Hashable, Program] = {}


def program(
    graph: nnx.GraphDef,
    stage: Stage,
    settings: Mapping[str, Any],
    mesh: Mesh,
    *,
    steps_per_epoch: int,
    model: ModelState,
    batch: pipeline.Batch,
) -> Program:
    """The program of a stage, compiled anew only where an earlier one differs.

    Where there are no schedules, any number of steps per epoch is the same program.
    """
    merged = dict(settings) | dict(stage.optimizer)
    if stage.after_step is interface.do_nothing and not any(
        optimizers.is_scheduled(merged | dict(own)) for own in stage.trains.values()
    ):
        steps_per_epoch = 1
        stage = stage._replace(stop=stage.stop._replace(max_epochs=1))
    written = json.dumps([merged, {g: dict(s) for g, s in stage.trains.items()}])
    shapes = jax.tree.map(lambda leaf: (leaf.shape, leaf.dtype), (model, batch))
    key = (
        *(graph, stage.loss, stage.after_step, written, mesh),
        *(steps_per_epoch, stage.stop.max_epochs, str(shapes)),
    )
    known = PROGRAMS.pop(key, None)
    if known is None:
        known = Program(graph, stage, settings, mesh, steps_per_epoch, model, batch)
    PROGRAMS[key] = known  # the last one is the one used last
    while len(PROGRAMS) > MOST_PROGRAMS:
        del PROGRAMS[next(iter(PROGRAMS))]
    return known


def stage_key(seed: int, index: int) -> Array:
    """The random key of a stage's steps."""
    return jax.random.fold_in(jax.random.key(seed), index)


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
        moving = optimizers.trained(gradients, stage.trains)
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
    model: ModelState,
    optimizer: optax.GradientTransformation,
    scalars: Mapping[str, Any],
) -> Carry:
    """The carry before the first step of a stage with scalars of these shapes."""
    return Carry(
        model,
        optimizer.init(model.params),
        jnp.zeros((), jnp.int32),
        jnp.full((), -1, jnp.int32),
        jax.tree.map(lambda x: jnp.zeros(x.shape, jnp.float32), dict(scalars)),
    )


def scalar_shapes(graph, stage: Stage, model: ModelState, batch) -> dict[str, Any]:
    """Shapes of the scalars and `Share`s that a stage's loss reports."""
    shapes = jax.eval_shape(
        lambda model, batch: _loss(graph, stage, model, batch, jax.random.key(0), 0),
        model,
        batch,
    )
    return shapes[1][1]


def _loss(graph, stage: Stage, state: ModelState, batch, key, step):
    model = checkpoint.merge_model(graph, state)
    methods.freeze(model, stage.trains)
    rngs = nnx.Rngs(jax.random.fold_in(key, step))
    value, scalars = stage.loss(model, batch, rngs)
    return value, (checkpoint.split_model(model)[1].rest, scalars | {"loss": value})
