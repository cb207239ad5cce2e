"""Many runs on kept features as one compiled program.

Runs that differ in their seed and the values of their margins only are the same program
on other numbers: their states are stacked, and one compiled program trains all of them
an epoch further. Each device has its share of the runs. An accelerator trains them side
by side (`vmap`); on a CPU one run follows the other, where its state stays in the cache
and ended runs are skipped. Batches, stop rules and what is written are those of a run
trained alone; results agree to rounding.
"""

import functools
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jax.sharding import Mesh
from jax.sharding import PartitionSpec as P
from ml_collections import ConfigDict

from cloc_jax import methods
from cloc_jax.build import assembly, kept_features
from cloc_jax.data import pipeline
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.samplers import BatchPlan
from cloc_jax.runtime import checkpoint, model_state, sharding
from cloc_jax.runtime.console import console, track
from cloc_jax.runtime.model_state import ModelState
from cloc_jax.runtime.run_folder import RunFolder, history_row
from cloc_jax.scoring import metrics
from cloc_jax.training import loop, train_step
from cloc_jax.training.train_step import Carry

# Settings in which runs of one program may differ.
FREE = ("seed", "method.margins", "method.rho", "data.permute")
CHUNK = 1024  # items evaluated at a time


class Member(NamedTuple):
    """One of the runs."""

    config: ConfigDict
    folder: RunFolder
    dataset: Dataset  # the same items for all, training labels may differ
    method: methods.Method
    create: Any  # () -> the model as it starts


def train_together(
    configs: Sequence[ConfigDict], folders: Sequence[RunFolder], parts: assembly.Parts
) -> list[RunFolder]:
    """Trains all stages of all runs; returns the folders of those that finished.

    Args:
      configs: resolved configurations that are equal but for the settings in FREE.
      parts: of one of them, with labels as they came; its dataset holds features.
    """
    members: list[Member] = []
    creators: dict[str, assembly.encoder.Creator] = {}  # compiled once a setting
    for config, folder in zip(configs, folders, strict=True):
        # A batch stays on one device: the runs are spread, not their batches.
        method = assembly.build_method(
            config, len(parts.dataset.ranks), sharding.make_mesh(1)
        )
        setting = repr((config.method.margins, config.method.rho))
        creator = creators.setdefault(setting, assembly.encoder.Creator(config, method))
        create = functools.partial(creator, config.seed)
        dataset = assembly.permuted(parts.dataset, config.data.permute)
        members.append(Member(config, folder, dataset, method, create))
        description = assembly.describe(parts._replace(dataset=dataset))
        folder.create(config.to_dict(), description)
        assembly.encoder.keep_trunk(parts.trunk, folder)
    devices = configs[0].mesh.devices or jax.device_count()
    mesh = sharding.make_mesh(min(devices, len(members)))
    # Dealt out like cards: settings whose runs end early would idle a device.
    members = [m for first in range(mesh.size) for m in members[first :: mesh.size]]
    graph, first = model_state.split(members[0].create())
    states = [first, *(model_state.split(m.create())[1] for m in members[1:])]
    for index in range(len(members[0].method.stages)):
        if index:
            pairs = zip(members, states, strict=True)
            states = [_entered(member, graph, state, index) for member, state in pairs]
        stage = StageTogether(members, states, graph, index, mesh)
        members, states = stage.train()
        if not members:
            break
    return [member.folder for member in members]


class Ended(NamedTuple):
    """How a run's stage ended; `state` is None where its loss was not finite."""

    state: ModelState | None


class StageTogether:
    """One stage of all runs, side by side."""

    def __init__(
        self,
        members: Sequence[Member],
        states: Sequence[ModelState],
        graph: nnx.GraphDef,
        index: int,
        mesh: Mesh,
    ):
        self.members, self.graph, self.mesh = members, graph, mesh
        # In the stacks, as many a device; those left over repeat the last run.
        self.places = -(-len(members) // mesh.size) * mesh.size
        self.index, self.stage = index, members[0].method.stages[index]
        self.plans = [
            assembly.plan(m.config, m.dataset, self.stage, index) for m in members
        ]
        splits = members[0].dataset.splits
        self.inputs = {s: self._copied(splits[s]) for s in ("train", "val")}
        labels = [m.dataset.splits["train"].labels for m in members]
        self.labels = self._spread(np.asarray(labels, np.int32))
        optimizer = assembly.build_optimizer(members[0].config, self.stage)
        rows = jnp.zeros((2, 4), jnp.int32)
        some = _batch(self.inputs["train"], self.labels[0], rows)
        names = train_step.scalar_names(graph, self.stage, states[0], some)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        self.carry = self._spread(
            jax.vmap(lambda state: train_step.first_carry(state, optimizer, names))(
                stacked
            )
        )
        self.best = jax.tree.map(jnp.copy, self.carry.model)
        self.stops = [self.stage.stop.init() for _ in members]
        self.ended: dict[int, Ended] = {}
        self.keys = self._spread(
            jnp.stack([train_step.stage_key(m.config.seed, index) for m in members])
        )
        self._run_epoch = _epoch_function(
            train_step.step_function(graph, self.stage, optimizer), mesh
        )
        self._predict = _predict_function(graph, members[0].method, mesh)
        self._margins = _margins_function(graph, members[0].method)

    def train(self) -> tuple[list[Member], list[ModelState]]:
        """Trains to the end of every run; those that got there, with their models."""
        what = f"{self.stage.name} of {len(self.members)} runs"
        started = time.monotonic()
        with track(what, len(self.members), note=what) as advance:
            epoch = 0
            while len(self.ended) < len(self.members):
                epoch, before = epoch + 1, len(self.ended)
                self._train_epoch(epoch, started)
                advance(len(self.ended) - before, f"epoch {epoch}")
        members, states = [], []
        for i, member in enumerate(self.members):
            state = self.ended[i].state
            if state is not None:
                members.append(member)
                states.append(state)
        return members, states

    def _train_epoch(self, epoch: int, started: float) -> None:
        steps = self.plans[0].steps_per_epoch
        pairs = zip(self.members, self.plans, strict=True)
        rows = np.stack([self._rows(m, plan, epoch - 1) for m, plan in pairs])
        goes_on = np.zeros(self.places, bool)
        goes_on[: len(self.members)] = True
        goes_on[list(self.ended)] = False
        self.carry = self._run_epoch(
            self.carry,
            self.inputs["train"],
            self.labels,
            self._spread(rows),
            self.keys,
            goes_on,
        )
        outputs = {
            split: self._predict(self.carry.model, self.inputs[split], goes_on)
            for split in self.stage.stop.reads
        }
        margins = np.asarray(self._margins(self.carry.model))
        bad, totals = jax.device_get((self.carry.bad_step, self.carry.totals))
        seconds = time.monotonic() - started
        verdicts = {}
        for i, member in enumerate(self.members):
            if i in self.ended:
                continue
            if bad[i] >= 0:
                console.print(
                    f"{member.folder.path}: the loss or a gradient was not finite at "
                    f"step {bad[i]} of stage {self.stage.name}; the run is given up"
                )
                self.ended[i] = Ended(None)
                continue
            scores = {s: self._score(s, o, i) for s, o in outputs.items()}
            verdicts[i] = self.stage.stop.update(self.stops[i], epoch, scores)
            self.stops[i] = verdicts[i].state
            names = metrics.boundary_names(member.dataset.ranks)
            row = history_row(
                self.stage.name,
                epoch=epoch,
                step=epoch * steps,
                means={k: float(v[i]) / steps for k, v in totals.items()},
                scores=scores,
                # Without margins there are no columns.
                margins=dict(zip(names, map(float, margins[i]), strict=False)),
                seconds=seconds,
            )
            member.folder.append_history(row)
        improved = np.zeros(self.places, bool)
        for i, verdict in verdicts.items():
            improved[i] = verdict.improved
        self.best = _choose(improved, self.carry.model, self.best)
        for i, verdict in verdicts.items():
            if verdict.rule:
                self._hand_over(i, verdict, epoch, epoch * steps, seconds)

    def _score(self, split: str, outputs: dict[str, np.ndarray], i: int):
        dataset = self.members[i].dataset
        return metrics.ordinal_metrics(
            dataset.splits[split].labels,
            outputs["label"][i],
            dataset.ranks,
            outputs["probabilities"][i] if "probabilities" in outputs else None,
        )

    def _hand_over(self, i, verdict, epochs: int, steps: int, seconds: float) -> None:
        is_best = self.stage.hand_over == "best"
        models = self.best if is_best else self.carry.model
        state = jax.tree.map(lambda leaf: leaf[i], models)
        state = jax.device_put(state, jax.local_devices()[0])
        folder = self.members[i].folder
        checkpoint.save_model(folder.stage(self.stage.name), state)
        folder.write_stage(
            self.stage.name,
            epochs=epochs,
            steps=steps,
            rule=verdict.rule,
            reason=verdict.reason,
            seconds=seconds,
        )
        self.ended[i] = Ended(state)

    def _rows(self, member: Member, plan: BatchPlan, epoch: int) -> np.ndarray:
        """Views and items of an epoch's batches, [step, 2, item], as if alone."""
        steps = range(epoch * plan.steps_per_epoch, (epoch + 1) * plan.steps_per_epoch)
        items = np.stack([plan.batch(step) for step in steps]).astype(np.int32)
        views = np.zeros_like(items)
        count = len(self.inputs["train"])
        if count > 1:
            for step, row in np.ndindex(*items.shape):
                place = steps[step] * plan.batch_size + row
                seed = (member.config.seed, self.index, place)
                views[step, row] = pipeline.generator(seed).integers(count)
        return np.stack([views, items], axis=1)

    def _spread(self, stacked: Any) -> Any:
        """Arrays of all runs over the devices; the last run fills places left over."""
        runs = np.minimum(np.arange(self.places), len(self.members) - 1)
        filled = jax.tree.map(lambda leaf: leaf[runs], stacked)
        return jax.device_put(filled, sharding.split_batch(self.mesh))

    def _copied(self, source: Any) -> jax.Array:
        """All views of a split's items on every device, [view, item, …]."""
        assert isinstance(source, kept_features.Activations)
        views = np.stack([view.all() for view in source.views])
        return jax.device_put(views, sharding.copied(self.mesh))


def over_runs(
    function: Callable, mesh: Mesh, goes_on: jax.Array, shared: Any, *stacked: Any
) -> Any:
    """`function(shared, *arguments)` of every run that goes on, each device its share.

    Zeros, or anything, for the others.
    """

    def one(shared, alive, arguments):
        def going_on(arguments):
            return function(shared, *arguments)

        shapes = jax.eval_shape(going_on, arguments)
        ended = jax.tree.map(lambda s: jnp.zeros(s.shape, s.dtype), shapes)
        return jax.lax.cond(alive, going_on, lambda _: ended, arguments)

    def of_device(shared, goes_on, stacked):
        if jax.default_backend() == "cpu":
            return jax.lax.map(lambda runs: one(shared, *runs), (goes_on, stacked))
        return jax.vmap(lambda arguments: function(shared, *arguments))(stacked)

    split = P(sharding.AXIS)
    return jax.shard_map(
        of_device,
        mesh=mesh,
        in_specs=(P(), split, split),
        out_specs=split,
        check_vma=False,  # runs have nothing to say to each other
    )(shared, goes_on, stacked)


def _epoch_function(step: Callable, mesh: Mesh) -> Callable:
    """Compiled epoch of all runs.

    (carry, inputs [view, item, …], labels [run, item], rows [run, step, 2, item], keys,
    goes_on [run]) -> carry
    """

    def run_epoch(carry: Carry, inputs, labels, rows, keys, goes_on) -> Carry:
        def one_run(inputs, carry: Carry, labels, rows, key) -> Carry:
            def one_step(carry, rows):
                return step(carry, _batch(inputs, labels, rows), key), None

            zeros = jax.tree.map(jnp.zeros_like, carry.totals)
            return jax.lax.scan(one_step, carry._replace(totals=zeros), rows)[0]

        return over_runs(one_run, mesh, goes_on, inputs, carry, labels, rows, keys)

    return jax.jit(run_epoch, donate_argnums=0)


def _predict_function(
    graph: nnx.GraphDef, method: methods.Method, mesh: Mesh
) -> Callable:
    """(states, inputs, goes_on) -> what `method.predict` returns, [run, item, …]."""

    def one(inputs: jax.Array, state: ModelState) -> dict[str, Any]:
        model = model_state.evaluating(graph, state)
        outputs = method.predict(model, inputs, None)
        return {k: v for k, v in outputs.items() if v is not None}

    @jax.jit
    def compiled(states: ModelState, inputs: jax.Array, goes_on: jax.Array):
        return over_runs(one, mesh, goes_on, inputs, states)

    def predict(states: ModelState, inputs, goes_on) -> dict[str, np.ndarray]:
        clean = inputs[0]
        parts = [
            jax.device_get(compiled(states, clean[start : start + CHUNK], goes_on))
            for start in range(0, len(clean), CHUNK)
        ]
        return {k: np.concatenate([p[k] for p in parts], axis=1) for k in parts[0]}

    return predict


def _margins_function(graph: nnx.GraphDef, method: methods.Method) -> Callable:
    """states -> margins [run, boundary], no columns without margins."""

    def one(state: ModelState) -> jax.Array:
        view = method.margins(model_state.merge(graph, state))
        return jnp.zeros(0) if view is None else view.values

    return jax.jit(jax.vmap(one))


def _batch(inputs: jax.Array, labels: jax.Array, rows: jax.Array) -> pipeline.Batch:
    """A training batch of the rows [2, item]: view and item."""
    views, items = rows
    return {
        "id": items,
        "image": inputs[views, items],
        "label": labels[items],
        "mask": jnp.ones(items.shape, bool),
    }


@jax.jit
def _choose(which: jax.Array, new: Any, old: Any) -> Any:
    """`new` for the runs that `which` marks, `old` for the others."""

    def one(a, b):
        return jnp.where(which.reshape(-1, *[1] * (a.ndim - 1)), a, b)

    return jax.tree.map(one, new, old)


def _entered(
    member: Member, graph: nnx.GraphDef, state: ModelState, index: int
) -> ModelState:
    model = model_state.merge(graph, state)
    stage = member.method.stages[index]
    loop.enter(stage, index, model, member.create, member.config.seed)
    return model_state.split(model)[1]
