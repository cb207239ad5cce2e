"""Many runs on kept features as one compiled program.

Runs that differ in their seed and the values of their margins only are the same program
on other numbers: their states are stacked, and one compiled program trains all of them
an epoch further. Runs are assigned to devices round-robin. An accelerator trains them
side by side (`vmap`); on a CPU one run follows the other, where its state stays in the
cache and ended runs are skipped. Batches, stop rules and what is written are those of a
run trained alone; results agree to rounding.
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
from ml_collections import ConfigDict

from cloc_jax import methods
from cloc_jax.data import pipeline
from cloc_jax.data.datasets import Dataset
from cloc_jax.data.samplers import Sampler
from cloc_jax.data.source import KeptFeatures, Source
from cloc_jax.methods import Context, Prediction, Support, Verdict
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.checkpoint import ModelState
from cloc_jax.runtime.console import console, track
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import inference, metrics, predictions
from cloc_jax.training import assembly, encoder, epoch_end, stacked_runs, train_step
from cloc_jax.training.dataset import permuted
from cloc_jax.training.loop import enter


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
      configs: resolved configurations that are equal except for `one_program.FREE`.
      parts: of one of them, with labels as they came; its dataset holds features.
    """
    members: list[Member] = []
    creators: dict[str, encoder.Creator] = {}  # compiled once per setting
    for config, folder in zip(configs, folders, strict=True):
        # A batch stays on one device: the runs are spread, not their batches.
        method = assembly.build_method(
            config, len(parts.dataset.ranks), sharding.make_mesh(1)
        )
        setting = repr((config.method.cloc.margins, config.method.cloc.rho))
        creator = creators.setdefault(setting, encoder.Creator(config, method))
        create = functools.partial(creator, config.seed)
        dataset = permuted(parts.dataset, config.data.permute)
        members.append(Member(config, folder, dataset, method, create))
        folder.create(config.to_dict(), parts._replace(dataset=dataset).describe())
        encoder.keep_trunk(parts.trunk, folder)
    devices = configs[0].mesh.devices or jax.device_count()
    mesh = sharding.make_mesh(min(devices, len(members)))
    # Round-robin: settings whose runs end early would idle a device.
    members = [m for first in range(mesh.size) for m in members[first :: mesh.size]]
    graph, first = checkpoint.split_model(members[0].create())
    states = [first, *(checkpoint.split_model(m.create())[1] for m in members[1:])]
    for index in range(len(members[0].method.stages)):
        stage = StageTogether(members, states, graph, index, mesh)
        members, states = stage.train()
        if not members:
            break
    return [member.folder for member in members]


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
        # In the stacks, as many per device; those left over repeat the last run.
        self.places = -(-len(members) // mesh.size) * mesh.size
        self.index, self.method = index, members[0].method
        self.stage = self.method.stages[index]
        self.samplers = [
            assembly.sampler(m.config, m.dataset, self.stage, index) for m in members
        ]
        steps = self.samplers[0].steps_per_epoch
        num_steps = steps * self.stage.stop.max_epochs
        splits = members[0].dataset.splits
        self.inputs = {s: self._copied(splits[s]) for s in ("train", "val")}
        self.functions = stacked_runs.Functions(graph, self.method, mesh)
        states = [
            self._entered(member, state, num_steps)
            for member, state in zip(members, states, strict=True)
        ]
        labels = [m.dataset.splits["train"].labels for m in members]
        self.labels = self._spread(np.asarray(labels, np.int32))
        optimizer = assembly.build_optimizer(
            members[0].config, self.stage, self.samplers[0]
        )
        some = self._batch(
            self.inputs["train"],
            self.labels[0],
            jnp.asarray(self._rows(0, 0)[0][:, :4]),
        )
        names = train_step.scalar_names(graph, self.stage, states[0], some)
        stacked = jax.tree.map(lambda *leaves: jnp.stack(leaves), *states)
        self.carry = self._spread(
            jax.vmap(lambda state: train_step.first_carry(state, optimizer, names))(
                stacked
            )
        )
        self.best = jax.tree.map(jnp.copy, self.carry.model)
        self.stops = [self.stage.stop.init() for _ in members]
        # The model that each run handed over; None where its loss was not finite.
        self.ended: dict[int, ModelState | None] = {}
        self.keys = self._spread(
            jnp.stack([train_step.stage_key(m.config.seed, index) for m in members])
        )
        self._run_epoch = stacked_runs.epoch_function(
            train_step.step_function(graph, self.stage, optimizer, num_steps),
            self._batch,
            mesh,
        )

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
            state = self.ended[i]
            if state is not None:
                members.append(member)
                states.append(state)
        return members, states

    def _train_epoch(self, epoch: int, started: float) -> None:
        steps = self.samplers[0].steps_per_epoch
        rows = np.stack([self._rows(i, epoch - 1) for i in range(len(self.members))])
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
        found = self._evaluate(goes_on)
        readouts = self.functions.readouts(self.carry.model)
        bad, totals = jax.device_get((self.carry.bad_step, self.carry.totals))
        seconds = time.monotonic() - started
        verdicts: dict[int, Verdict] = {}
        for i, member in enumerate(self.members):
            if i in self.ended:
                continue
            if bad[i] >= 0:
                console.print(
                    f"{member.folder.path}: the loss or a gradient was not finite at "
                    f"step {bad[i]} of stage {self.stage.name}; the run is given up"
                )
                self.ended[i] = None
                continue
            ranks = member.dataset.ranks
            verdicts[i], row = epoch_end.end_epoch(
                self.stage,
                self.stops[i],
                epoch=epoch,
                step=epoch * steps,
                means={k: float(v[i]) / steps for k, v in totals.items()},
                scores={
                    split: predictions.score(
                        jax.tree.map(lambda leaf, i=i: leaf[i], prediction),
                        member.dataset.splits[split].labels,
                        ranks,
                    )
                    for split, prediction in found.items()
                },
                readouts={
                    name: metrics.named_values(values[i], per, ranks)
                    for name, (values, per) in readouts.items()
                },
                seconds=seconds,
            )
            self.stops[i] = verdicts[i].state
            member.folder.append_history(row)
        improved = np.zeros(self.places, bool)
        for i, verdict in verdicts.items():
            improved[i] = verdict.improved
        self.best = stacked_runs.choose(improved, self.carry.model, self.best)
        for i, verdict in verdicts.items():
            if verdict.rule:
                self._hand_over(i, verdict, epoch, epoch * steps, seconds)

    def _evaluate(self, goes_on: np.ndarray) -> dict[str, Prediction]:
        """Predictions [run, item, …] of the splits that the stop rule reads."""
        if not self.stage.is_scored:
            return {}
        models, support = self.carry.model, None
        if self.method.fit:
            embeddings = {
                split: self.functions.embed(models, inputs[0], goes_on)
                for split, inputs in self.inputs.items()
            }
            fitted = [
                self._fit(
                    i, stacked_runs.one_of(models, i), lambda s, i=i: embeddings[s][i]
                )
                if goes_on[i]
                else None
                for i in range(len(self.members))
            ]
            any_one = next(f for f in fitted if f is not None)
            filled = [f if f is not None else any_one for f in fitted]
            support = self._spread(jax.tree.map(lambda *x: np.stack(x), *filled))
        return {
            split: self.functions.predict(
                models, self.inputs[split][0], goes_on, support
            )
            for split in self.stage.stop.reads
        }

    def _fit(self, i: int, state: ModelState, embed: Callable) -> Support | None:
        splits = self.members[i].dataset.splits
        labels = {split: splits[split].labels for split in ("train", "val")}
        return inference.fit_support(self.method, self.graph, state, embed, labels)

    def _hand_over(
        self, i: int, verdict: Verdict, epochs: int, steps: int, seconds: float
    ) -> None:
        is_best = self.stage.hand_over == "best"
        state = stacked_runs.one_of(self.best if is_best else self.carry.model, i)
        support = None
        if self.stage.is_scored:
            support = self._fit(i, state, lambda split: self._embed(state, split))
        epoch_end.hand_over(
            self.members[i].folder,
            self.stage,
            state,
            support,
            epochs=epochs,
            steps=steps,
            rule=verdict.rule,
            reason=verdict.reason,
            seconds=seconds,
        )
        self.ended[i] = state

    def _embed(self, state: ModelState, split: str) -> np.ndarray:
        """Embeddings of one run's clean items."""
        stacked = jax.tree.map(lambda leaf: jnp.stack([leaf] * self.places), state)
        only = np.arange(self.places) == 0
        placed = jax.device_put(stacked, sharding.split_batch(self.mesh))
        return self.functions.embed(placed, self.inputs[split][0], only)[0]

    def _entered(self, member: Member, state: ModelState, num_steps: int) -> ModelState:
        labels = np.asarray(member.dataset.splits["train"].labels)
        context = Context(
            member.create, lambda: self._embed(state, "train"), labels, num_steps
        )
        stage = member.method.stages[self.index]
        seed = member.config.seed
        return enter(stage, self.index, self.graph, state, context, seed)

    def _rows(self, run: int, epoch: int) -> np.ndarray:
        """Views and items of an epoch's batches, [step, 2, row, picture], as if alone.

        A row has one picture per item and view, in the order of `training_batches`.
        """
        sampler: Sampler = self.samplers[run]
        first = epoch * sampler.steps_per_epoch
        steps = range(first, first + sampler.steps_per_epoch)
        items = np.stack([sampler.batch(step) for step in steps]).astype(np.int32)
        items = items.reshape(*items.shape[:2], -1)  # [step, row, item of the row]
        views = self.stage.views
        pictures = np.repeat(items, len(views), axis=2)
        chosen = np.zeros_like(pictures)
        count = len(self.inputs["train"])
        drawn = [n for n, v in enumerate(views) if v.augment != "none"]
        seed = self.members[run].config.seed
        for step, row in np.ndindex(*items.shape[:2]) if count > 1 and drawn else ():
            place = steps[step] * sampler.batch_size + row
            rng = pipeline.generator((seed, self.index, place))
            for item in range(items.shape[2]):
                for view in drawn:
                    place = item * len(views) + view
                    chosen[step, row, place] = rng.integers(count)
        return np.stack([chosen, pictures], axis=1)

    def _batch(
        self, inputs: jax.Array, labels: jax.Array, rows: jax.Array
    ) -> pipeline.Batch:
        """A training batch of the rows [2, row, picture]: view and item."""
        views, pictures = rows
        images = tuple(
            inputs[views[:, n], pictures[:, n]] for n in range(pictures.shape[1])
        )
        items = pictures[:, :: len(self.stage.views)]
        items = items[:, 0] if items.shape[1] == 1 else items
        return {
            "id": items,
            "image": images[0] if len(images) == 1 else images,
            "label": labels[items],
            "mask": jnp.ones(len(pictures), bool),
        }

    def _spread(self, stacked: Any) -> Any:
        """Arrays of all runs over the devices; the last run fills places left over."""
        runs = np.minimum(np.arange(self.places), len(self.members) - 1)
        filled = jax.tree.map(lambda leaf: leaf[runs], stacked)
        return jax.device_put(filled, sharding.split_batch(self.mesh))

    def _copied(self, source: Source) -> jax.Array:
        """All views of a split's items on every device, [view, item, …]."""
        assert isinstance(source, KeptFeatures)
        views = np.stack([view.all() for view in source.views])
        return jax.device_put(views, sharding.copied(self.mesh))
