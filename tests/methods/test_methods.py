"""Every method through the whole line: trained, resumed, scored, loaded, swept."""

import numpy as np
import pytest
from tiny_runs import arrays, clean, tiny

from cloc_jax.methods import METHODS
from cloc_jax.runtime import sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import predictions
from cloc_jax.training import assembly, batches, run, run_scores
from cloc_jax.training.trained_run import TrainedRun

# Methods that augment images in their own way.
PRETRAINED = ("rnc", "simclr", "supcon", "dino")
ON_FEATURES = [name for name in METHODS if name not in PRETRAINED]
READOUTS = {
    "cloc": {"margins"},
    "gol": {"reference_angles"},
    "coral": {"thresholds"},
    "clm": {"thresholds"},
}


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))


def on_features(name, **changes):
    return clean(
        method__name=name,
        encoder__frozen=True,
        head__projection=6,
        train__max_epochs=2,
        **changes,
    )


def fast(*names):
    """All methods on features; those not named take long and are slow tests."""
    return [
        pytest.param(name, marks=() if name in names else pytest.mark.slow)
        for name in ON_FEATURES
    ]


@pytest.mark.parametrize("name", fast("cloc", "coral"))
def test_on_frozen_features(name, tmp_path):
    config, folder = on_features(name), RunFolder(tmp_path / "run")
    run.train(config, folder, resume=False)
    parts = assembly.build(config, folder)
    found = run_scores.score(TrainedRun(config, folder, parts), parts)
    scores, test = found.metrics["final"]["test"], parts.dataset.splits["test"]
    assert set(found.metrics["readouts"]) == READOUTS.get(name, set())
    assert np.isfinite([scores["accuracy"], scores["mae"], scores["nll"]]).all()
    prediction = TrainedRun(config, folder).predict(test)
    probabilities = predictions.rank_probabilities(prediction)
    assert probabilities.shape == (len(test), 5)
    assert probabilities.sum(1) == pytest.approx(np.ones(len(test)), abs=1e-5)
    assert np.array_equal(prediction.label, found.test.predicted)
    history = folder.read_history()
    assert all(np.isfinite(row["train"]["loss"]) for row in history)


@pytest.mark.parametrize("name", PRETRAINED)
def test_pretraining_needs_a_trainable_encoder(name):
    with pytest.raises(ValueError, match="it needs a trainable encoder"):
        assembly.build(on_features(name))


@pytest.mark.parametrize("name", fast("coral"))
def test_features_are_gathered_as_images_are_streamed(name, tmp_path, monkeypatch):
    config = on_features(name)
    gathered, streamed = (RunFolder(tmp_path / n) for n in ("gathered", "streamed"))
    run.train(config, gathered, resume=False)
    monkeypatch.setattr(batches, "MOST_BYTES", 0)
    run.train(config, streamed, resume=False)
    rows = zip(gathered.read_history(), streamed.read_history(), strict=True)
    for one, other in rows:
        assert one["train"] == pytest.approx(other["train"], rel=2e-4, abs=1e-5)
        assert one["val"] == pytest.approx(other["val"], rel=1e-3, abs=1e-4)


def pretrained(name, **changes):
    short = {f"method__{name}__{stage}__epochs": 2 for stage in ("pretrain", "probe")}
    return tiny(method__name=name, train__max_epochs=2, **(short | changes))


@pytest.mark.slow
@pytest.mark.parametrize("name", ["simclr", "rnc", "supcon"])
def test_a_probe_leaves_the_pretrained_encoder_as_it_is(name, tmp_path):
    config, folder = pretrained(name), RunFolder(tmp_path / "run")
    run.train(config, folder, resume=False)
    before, after = (arrays(folder.path, stage) for stage in ("pretrain", "probe"))
    moved = {key for key in before if not np.array_equal(before[key], after[key])}
    assert moved and all("head" in key for key in moved)
    parts = assembly.build(config, folder)
    results = run_scores.score(TrainedRun(config, folder, parts), parts).metrics
    assert "pretrain" not in results and results["final"]["test"]["nll"] > 0
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
    with pytest.raises(ValueError, match="rate_batch is -1"):
        rates(16, **{f"method__{name}__probe__rate_batch": -1})


def test_thresholds_may_have_a_rate_of_their_own():
    def settings(**changes):
        config = tiny(method__name="clm", **changes)
        made = assembly.build_method(config, 5, sharding.make_mesh(1))
        return made.stages[0].trains["thresholds"]

    assert "learning_rate" not in settings()
    own = settings(method__clm__threshold_learning_rate=0.03)
    assert own["learning_rate"] == 0.03 and own["weight_decay"] == 0


@pytest.mark.slow
def test_full_training_after_pretraining_moves_the_encoder(tmp_path):
    config = pretrained("simclr", method__simclr__downstream="full")
    folder = RunFolder(tmp_path / "run")
    run.train(config, folder, resume=False)
    before, after = (arrays(folder.path, stage) for stage in ("pretrain", "full"))
    moved = {key for key in before if not np.array_equal(before[key], after[key])}
    assert any("layer1" in key for key in moved)
