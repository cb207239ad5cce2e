"""Every method learns; what pretraining leaves to the stage after it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from tiny_runs import SMALL_METHODS, arrays, tiny

from cloc_jax.data import pipeline
from cloc_jax.encoders import Identity
from cloc_jax.methods import METHODS, Context, Labelled
from cloc_jax.runtime import checkpoint, sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import predictions
from cloc_jax.training import assembly, run, run_scores, train_step
from cloc_jax.training.trained_run import TrainedRun

# Methods that augment images in their own way.
PRETRAINED = ("rnc", "simclr", "supcon", "dino")
READOUTS = {
    "cloc": {"margins"},
    "gol": {"reference_angles"},
    "coral": {"thresholds"},
    "clm": {"thresholds"},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def separable(count, seed):
    """Features that tell the rank, with some noise, and the labels."""
    rng = np.random.default_rng(seed)
    labels = (np.arange(count) % 5).astype(np.int32)
    features = np.eye(5)[labels] + 0.5 * np.outer(labels - 2, np.ones(5))
    noise = rng.normal(0, 0.1, features.shape)
    return Labelled((features + noise).astype(np.float32), labels)


def batch_for(stage, data, seed):
    """A batch as the stage's sampler and views would make it."""
    rng = np.random.default_rng(seed)
    if stage.sampler == "triples":
        items = rng.integers(len(data.labels), size=(32, 3))
        items[:, :2].sort(axis=1)  # the labels lie in the order of the items below
        items = np.argsort(data.labels, kind="stable")[items]
        images = [data.embeddings[items[:, n]] for n in range(3)]
    else:
        items = rng.permutation(len(data.labels))[:32]
        shape = (len(stage.views), 32, 5)
        images = data.embeddings[items] + rng.normal(0, 0.1, shape).astype(np.float32)
    images = tuple(map(jnp.asarray, images))
    return {
        "image": images if len(images) > 1 else images[0],
        "label": jnp.asarray(data.labels[items]),
        "mask": jnp.ones(32, bool),
    }


SLOW = ("dino", "mwr", "poe", "simclr", "supcon")  # to compile; others are of a kind


@pytest.mark.parametrize(
    "name",
    [pytest.param(n, marks=[pytest.mark.slow] * (n in SLOW)) for n in METHODS],
)
def test_separable_features_are_learned(name):
    config = tiny(method__name=name, head__projection=6, **SMALL_METHODS)
    method = assembly.build_method(config, 5, sharding.make_mesh(1))
    train, val, test = (separable(100, seed) for seed in range(3))
    model, steps = method.init(Identity(5, is_signed=True), nnx.Rngs(0)), 150
    for stage in method.stages:
        stage.enter(model, Context(lambda: None, steps), nnx.Rngs(1))
        graph, state = checkpoint.split_model(model)
        adam = optax.adam(0.01)
        batch = batch_for(stage, train, 0)
        scalars = train_step.scalar_shapes(graph, stage, state, batch)
        carry = train_step.first_carry(state, adam, scalars)
        step = jax.jit(train_step.step_function(graph, stage, adam, steps))
        for n in range(steps):
            carry = step(carry, batch_for(stage, train, n), jax.random.key(0))
        assert int(carry.bad_step) == -1
        model = checkpoint.merge_model(graph, carry.model)
    model = checkpoint.evaluating(graph, carry.model)
    embedded = [
        Labelled(np.asarray(method.embed(model, jnp.asarray(d.embeddings))), d.labels)
        for d in (train, val)
    ]
    support = method.fit(model, *embedded) if method.fit else None
    support = jax.tree.map(jnp.asarray, support)
    found = method.predict(model, jnp.asarray(test.embeddings), support)
    # By chance 0.2. POE trains on noise, and the others see to far mistakes first.
    accuracy = (np.asarray(found.label) == test.labels).mean()
    assert accuracy > (0.5 if name in ("poe", "cdw_ce", "weighted_kappa") else 0.9)
    probabilities = predictions.rank_probabilities(jax.tree.map(np.asarray, found))
    assert probabilities.sum(1) == pytest.approx(np.ones(100), abs=1e-5)
    assert probabilities[np.arange(100), test.labels].mean() > 0.3
    assert set(method.readouts(model)) == READOUTS.get(name, set())


WEIGHTED = ("cloc", "ce", "corn", "poe", "clm", "rnc", "supcon")


@pytest.mark.parametrize("name", [*WEIGHTED, "gol", "mwr"])
def test_weights_of_ranks_reach_the_loss_or_are_refused(name):
    config = tiny(method__name=name, head__projection=6, **SMALL_METHODS)
    config.train.rank_weights = (1, 1, 0, 2, 1)
    method = assembly.build_method(config, 5, sharding.make_mesh(1))
    data = separable(100, 0)
    if name not in WEIGHTED:
        with pytest.raises(ValueError, match=f"method {name} has no mean over images"):
            assembly.item_weights(config, method, data.labels, 5)
        return
    weights = assembly.item_weights(config, method, data.labels, 5)
    assert weights.tolist() == [(1, 1, 0, 2, 1)[label] for label in data.labels]
    model, stage = method.init(Identity(5, is_signed=True), nnx.Rngs(0)), -1
    graph, state = nnx.split(model)
    loss = jax.jit(
        lambda batch: method.stages[stage].loss(
            nnx.merge(graph, state, copy=True), batch, nnx.Rngs(1)
        )[0]
    )
    batch = batch_for(method.stages[stage], data, 0)
    by_rank = jnp.asarray(config.train.rank_weights, jnp.float32)
    weighted = batch | {"weight": by_rank[batch["label"]]}
    ones = batch | {"weight": jnp.ones(32)}
    assert float(loss(ones)) == pytest.approx(float(loss(batch)), rel=1e-6)
    assert abs(float(loss(weighted)) - float(loss(batch))) > 1e-4
    # A row without weight is as one that is not there.
    absent = weighted | {"weight": weighted["weight"].at[0].set(0)}
    masked = weighted | {"mask": batch["mask"].at[0].set(False)}
    if name not in ("cloc", "poe"):  # which have terms without weights
        assert float(loss(absent)) == pytest.approx(float(loss(masked)), rel=1e-5)


def test_balanced_weights_give_ranks_the_same_sum():
    config = tiny(method__name="ce", train__rank_weights="balanced")
    train = assembly.build(config).dataset.splits["train"]
    sums = np.bincount(train.labels, train.weights)
    np.testing.assert_allclose(sums, len(train) / len(sums), rtol=1e-6)
    (batch, *_) = pipeline.evaluation_batches(train, 8, threads=1)
    np.testing.assert_array_equal(batch["weight"], train.weights[:8])


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"rank_weights": "balancd"}, "is 'balancd'; give one number"),
        ({"rank_weights": (1, 2)}, "one number for each rank, 5 here"),
        ({"rank_weights": (1, 2, 3, -1, 0)}, "0 or more and not all 0"),
        ({"boundary_weights": (1.0, 2.0)}, "method ce has no term per boundary"),
        ({"boundary_weights": (1.0, 2.0), "name": "corn"}, "each boundary, 4 here"),
    ],
)
def test_weights_that_make_no_sense(changes, message):
    name = changes.pop("name", "ce")
    given = {f"train__{field}": value for field, value in changes.items()}
    with pytest.raises(ValueError, match=message):
        assembly.build(tiny(method__name=name, **given))


def pretrained(name, **changes):
    short = {f"method__{name}__{stage}__epochs": 2 for stage in ("pretrain", "probe")}
    return tiny(method__name=name, train__max_epochs=2, **(short | changes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simclr", "rnc"])
def test_a_probe_leaves_the_pretrained_encoder_as_it_is(name, tmp_path):
    config, folder = pretrained(name), RunFolder(tmp_path / "run")
    run.train(config, folder, resume=False)
    before, after = (arrays(folder.path, stage) for stage in ("pretrain", "probe"))
    moved = {key for key in before if not np.array_equal(before[key], after[key])}
    assert moved and all("head" in key for key in moved)
    parts = assembly.build(config, folder)
    results = run_scores.score(TrainedRun(config, folder, parts), parts).results
    assert not results.earlier and results.final["test"].nll > 0
    stages = [(row["stage"], bool(row["val"])) for row in folder.read_history()]
    assert stages == [("pretrain", False)] * 2 + [("probe", True)] * 2


@pytest.mark.parametrize("name", PRETRAINED)
def test_rates_of_stages_follow_the_batch(name):
    def rates(size, **changes):
        config = tiny(method__name=name, train__batch_size=size, **changes)
        made = assembly.build_method(config, 5, sharding.make_mesh(1))
        return [stage.optimizer["learning_rate"] for stage in made.stages]

    given = tiny().method[name]
    at_64 = [given.pretrain.learning_rate, given.probe.learning_rate]
    assert rates(64) == at_64
    assert rates(16) == [rate / 4 for rate in at_64]
    fixed = {f"method__{name}__pretrain__rate_batch": 0}
    assert rates(16, **fixed) == [at_64[0], at_64[1] / 4]


def test_thresholds_may_have_a_rate_of_their_own():
    def settings(**changes):
        config = tiny(method__name="clm", **changes)
        made = assembly.build_method(config, 5, sharding.make_mesh(1))
        return made.stages[0].trains["thresholds"]

    assert "learning_rate" not in settings()
    own = settings(method__clm__threshold_learning_rate=0.03)
    assert own["learning_rate"] == 0.03 and own["weight_decay"] == 0
