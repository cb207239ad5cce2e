"""What the loop offers to methods, shown by one made for the test; stop rules."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_runs import arrays, clean

from cloc_jax.methods import registry
from cloc_jax.methods.heads import cross_entropy
from cloc_jax.methods.interface import (
    START,
    Limits,
    Method,
    Prediction,
    Readout,
    Stage,
    View,
    after_epochs,
    by_validation,
    freeze,
)
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly, batches, run, run_scores
from cloc_jax.training.trained_run import TrainedRun


class Counter(nnx.Variable):
    """A number that a stage changes."""


class Toy(nnx.Module):
    """A linear classifier behind a dropout that has random numbers of its own."""

    def __init__(self, encoder, num_ranks, *, rngs):
        self.encoder = encoder
        self.head = nnx.Linear(encoder.features, num_ranks, rngs=rngs)
        self.dropout = nnx.Dropout(0.5, rngs=rngs)
        self.entered = Counter(jnp.zeros((), jnp.int32))
        self.steps = Counter(jnp.zeros((), jnp.float32))

    def __call__(self, images):
        return self.head(self.dropout(self.encoder(images)))


def toy(*, num_ranks, limits, views=1, num_steps_seen=None):
    def loss(model, batch, rngs):
        images = batch["image"] if views > 1 else (batch["image"],)
        pairs = [cross_entropy(model(image), batch) for image in images]
        return sum(value for value, _ in pairs) / views, pairs[0][1]

    def enter(model, context, rngs):
        model.entered[...] += 1

    def after_step(model, step, num_steps):
        if num_steps_seen is not None:
            num_steps_seen.append(num_steps)
        model.steps[...] += 1.0

    def predict(model, images, support):
        # The support moves every prediction, so one that is lost shows.
        logits = model(images) + support["shift"][None, :]
        return Prediction(logits.argmax(1), value=support["value"] + 0.0 * logits[:, 0])

    def fit(model, train, val):
        rare = int(np.argmin(np.bincount(train.labels, minlength=num_ranks)))
        shift = np.where(np.arange(num_ranks) == rare, 1e6, 0.0).astype(np.float32)
        return {"shift": shift, "value": np.float32(train.embeddings.shape[0] / 100)}

    def embed(model, images):
        return model.encoder(images)

    joint = Stage(
        name="warm",
        loss=loss,
        trains={"head": {}},
        stop=after_epochs(limits.max_epochs),
        views=(View(),) * views,
        sampler="shuffled",
        enter=enter,
        after_step=after_step,
        is_scored=False,
    )
    final = joint._replace(
        name="final",
        stop=by_validation(limits),
        is_scored=True,
        hand_over="best",
    )
    return Method(
        lambda encoder, rngs: Toy(encoder, num_ranks, rngs=rngs),
        (joint, final),
        embed,
        predict,
        fit,
        lambda model: {"entries": Readout(model.head.bias[...], "rank")},
    )


@pytest.fixture(autouse=True)
def keys_may_be_folded_again():
    """NNX keeps one key per stream and folds a counter into it, which is sound but
    which JAX's check for reused keys cannot tell from reuse."""
    with jax.debug_key_reuse(False):
        yield


@pytest.fixture
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


@pytest.fixture
def frozen(cache, monkeypatch):
    """A configuration of the toy on kept features, and changes to it."""

    def make(views=1, **changes):
        monkeypatch.setitem(
            registry.METHODS,
            "ce",
            lambda task: toy(num_ranks=task.num_ranks, limits=task.limits, views=views),
        )
        return clean(
            method__name="ce", encoder__frozen=True, train__max_epochs=2, **changes
        )

    return make


def check_stages(folder, results):
    """Stages that cannot be scored are not, and all have their names."""
    assert not results.earlier
    assert set(results.seconds) == {"warm", "final", "total"}
    rows = folder.read_history()
    assert [bool(row["val"]) for row in rows] == [False, False, True, True]
    assert set(rows[0]["readouts"]["entries"]) == set("01234")
    assert results.margins == {}


def check_entries(folder):
    """Every stage is entered once and counts its steps."""
    warm, final = (arrays(folder.path, stage) for stage in ("warm", "final"))
    entered = [k for k in warm if "entered" in k]
    steps = [k for k in warm if "'steps'" in k]
    assert (int(warm[entered[0]]), int(final[entered[0]])) == (1, 2)
    assert float(warm[steps[0]]) == 2 * 6  # two epochs of six batches


def test_a_run_of_stages_of_its_own(frozen, tmp_path):
    config, folder = frozen(), RunFolder(tmp_path / "run")
    run.train(config, folder, resume=False)
    parts = assembly.build(config, folder)
    found = run_scores.score(TrainedRun(config, folder, parts), parts)
    check_stages(folder, found.results)
    check_entries(folder)
    # Its support is fitted, saved and used everywhere.
    rare = int(np.argmin(np.bincount(parts.dataset.splits["train"].labels)))
    assert set(found.test.predicted.tolist()) == {rare}
    saved = folder.read_support("final")
    assert saved["value"] == np.float32(0.48) and saved["shift"][rare] == 1e6
    assert folder.read_support("warm") is None  # nothing can be predicted there
    # MAE is that of the value, not of the label.
    true = parts.dataset.splits["test"].labels
    mae = found.results.final["test"].mae
    assert mae == pytest.approx(np.abs(0.48 - true).mean(), abs=1e-6)
    low, high = found.results.final["test"].intervals.mae
    assert low < mae < high
    # A run that is loaded without its dataset predicts the same.
    again = TrainedRun(config, folder).predict(parts.dataset.splits["test"])
    assert np.array_equal(again.label, found.test.predicted)
    folder.stage("final").with_suffix(".npz").unlink()
    with pytest.raises(ValueError, match="final.npz is damaged: it is missing"):
        TrainedRun(config, folder)


def test_views_are_gathered_as_they_are_streamed(frozen, tmp_path, monkeypatch):
    """Several views per item, of which two are kept."""
    config = frozen(
        views=2,
        encoder__views=2,
        encoder__weights="random",
        augment__brightness=0.2,
    )
    gathered, streamed = (RunFolder(tmp_path / n) for n in ("gathered", "streamed"))
    run.train(config, gathered, resume=False)
    monkeypatch.setattr(batches, "MOST_BYTES", 0)
    run.train(config, streamed, resume=False)
    for row, other in zip(
        gathered.read_history(), streamed.read_history(), strict=True
    ):
        assert row["train"]["loss"] == pytest.approx(other["train"]["loss"], rel=1e-4)
        assert row["val"].pop("gmsec", None) == other["val"].pop("gmsec", None)
        assert row["val"] == pytest.approx(other["val"], rel=1e-4)
    one, other = (each.read_support("final") for each in (gathered, streamed))
    for name, leaf in one.items():
        assert np.array_equal(leaf, other[name])


def test_evaluation_switches_dropout_and_frozen_groups():
    class Two(nnx.Module):
        def __init__(self, rngs):
            self.first = nnx.Sequential(
                nnx.BatchNorm(3, rngs=rngs), nnx.Dropout(0.5, rngs=rngs)
            )
            self.second = nnx.Dropout(0.5, rngs=rngs)

        def __call__(self, x):
            return self.second(self.first(x))

    model = Two(nnx.Rngs(0))
    graph, state = checkpoint.split_model(model)
    x = jnp.ones((400, 3))
    out = checkpoint.evaluating(graph, state)(x)
    assert float((out == 0).mean()) == 0
    both = checkpoint.merge_model(graph, state)
    freeze(both, trains=("second",))
    assert both.first.layers[0].use_running_average
    assert both.first.layers[1].deterministic and not both.second.deterministic


def follow(rule, accuracies, maes):
    """Verdicts epoch by epoch, with the state saved and read in between."""
    state, verdicts = dict(START), []
    for epoch, (accuracy, mae) in enumerate(zip(accuracies, maes, strict=True), 1):
        found = {"mae": mae, "accuracy": accuracy, "qwk": None}
        scores = {split: found for split in rule.reads}
        verdict = rule.update(state, epoch, scores)
        state = json.loads(json.dumps(verdict.state))
        verdicts.append(verdict)
    return verdicts


@pytest.mark.parametrize(
    "limits, accuracies, maes, rule, improved, reason",
    [
        (Limits(9, 1, "mae"), [0.5, 0.95], [1, 2], "train_accuracy", "10", "0.950 rea"),
        (Limits(9, 2, "mae"), [0.1] * 3, [0.5, 0.5, 0.6], "patience", "100", "mae"),
        (Limits(9, 2, "mae"), [0.1] * 5, [9, 5, 5, 4, 4.1], "", "11010", ""),
        (Limits(9, 9, "accuracy"), [0.5, 0.4, 0.6], [1.0, 0.5, 2.0], "", "101", ""),
        # An undefined score still leaves something to hand over.
        (Limits(9, 2, "qwk"), [0.5] * 3, [1.0] * 3, "patience", "100", "qwk"),
        (Limits(2, 9, "mae"), [0.1] * 2, [1, 1], "max_epochs", "10", "cap of 2"),
    ],
)
def test_the_rule_that_fires_and_the_epochs_that_improve(
    limits, accuracies, maes, rule, improved, reason
):
    stop = by_validation(limits, train_accuracy=0.95)
    assert stop.max_epochs == limits.max_epochs
    *before, last = follow(stop, accuracies, maes)
    assert {verdict.rule for verdict in before} == {""}
    assert last.rule == rule and reason in last.reason
    assert "".join(str(int(v.improved)) for v in (*before, last)) == improved


def test_data_are_not_looked_at_without_need():
    limits = Limits(2, 9, "mae")
    for rule, reads in (
        (by_validation(limits, train_accuracy=None), ("val",)),
        (by_validation(limits, train_accuracy=1.5), ("val",)),
        (after_epochs(2), ()),
    ):
        assert rule.reads == reads and rule.max_epochs == 2
        verdicts = follow(rule, [1.0] * 2, [1.0] * 2)
        assert [v.rule for v in verdicts] == ["", "max_epochs"]
    assert by_validation(limits, train_accuracy=1.0).reads == ("train", "val")


def test_random_keys_lie_on_every_device():
    mesh = sharding.make_mesh(4, (1, 4))
    state = {"key": jax.random.key(3), "keys": jax.random.split(jax.random.key(4), 3)}
    shardings = sharding.state_shardings(state, mesh)
    placed = sharding.place_state(state, shardings)
    assert len(placed["key"].sharding.device_set) == 4
    for name, key in state.items():
        same = jax.random.key_data(placed[name]) == jax.random.key_data(key)
        assert bool(same.all())
