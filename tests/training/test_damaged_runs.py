"""A run whose files were damaged, removed or cut: said in one sentence, never used."""

import shutil

import jax
import jax.numpy as jnp
import pytest
from damage import biggest, flip
from tiny_runs import clean

from cloc_jax.runtime import checkpoint, errors
from cloc_jax.runtime.files import Damaged
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import predictions
from cloc_jax.training import assembly, run_scores
from cloc_jax.training import run as training
from cloc_jax.training.trained_run import TrainedRun

pytestmark = pytest.mark.slow  # launch's own tests of damage are not
CONFIG = {"method__name": "ce", "train__max_epochs": 2, "train__checkpoint_steps": 2}


@pytest.fixture(scope="module")
def config():
    return clean(**CONFIG)


@pytest.fixture(scope="module")
def parts(config):
    return assembly.build(config)


@pytest.fixture(scope="module")
def whole(tmp_path_factory, config, parts):
    """A finished run."""
    folder = RunFolder(tmp_path_factory.mktemp("runs") / "whole")
    assert training.train(config, folder, resume=False)
    run_scores.score(TrainedRun(config, folder, parts), parts)
    return folder


@pytest.fixture
def run(whole, tmp_path):
    return RunFolder(shutil.copytree(whole.path, tmp_path / "run"))


def content(folder):
    return {p: p.read_bytes() for p in folder.path.rglob("*") if p.is_file()}


def test_without_checkpoints_a_run_does_not_start_anew(config, run):
    run.metrics.unlink()
    shutil.rmtree(run.checkpoints)
    before = content(run)
    with pytest.raises(FileNotFoundError, match="no checkpoint to go on from"):
        training.train(config, run, resume=True)
    assert {p: d for p, d in content(run).items() if p in before} == before


def test_a_damaged_checkpoint_costs_an_epoch_and_no_result(config, parts, run):
    newest = max(run.checkpoints.iterdir(), key=lambda path: int(path.name))
    flip(biggest(newest), -2)
    scores, table = run.read_metrics(), (run.path / predictions.NAME).read_bytes()
    run.metrics.unlink()
    shutil.rmtree(run.path / "stages")
    with pytest.raises(Damaged, match=f"{newest}.*Move it away"):
        training.train(config, run, resume=True)
    shutil.rmtree(newest)
    assert training.train(config, run, resume=True)
    run_scores.score(TrainedRun(config, run, parts), parts)
    assert run.read_metrics()["final"] == scores["final"]
    assert (run.path / predictions.NAME).read_bytes() == table


def test_a_request_during_the_last_hand_over_is_answered(config, run, monkeypatch):
    run.metrics.unlink()
    original = training.RunCallbacks.after_stage

    def after_stage(callbacks, *arguments):
        callbacks._requests.number = 2
        return original(callbacks, *arguments)

    monkeypatch.setattr(training.RunCallbacks, "after_stage", after_stage)
    with pytest.raises(errors.Interrupted, match="after stage fit.*--resume"):
        training.train(config, run, resume=True)
    monkeypatch.undo()
    assert training.train(config, run, resume=True)


def test_what_is_not_finite_is_no_result(config, parts, run):
    state = TrainedRun(config, run, parts).state
    bad = jax.tree.map(lambda leaf: jnp.full_like(leaf, jnp.nan), state.params)
    checkpoint.save_model(run.stage("fit"), state._replace(params=bad))
    run.write_stage("fit", {"seconds": 1.0})
    found = TrainedRun(config, run, parts)
    for use in (found.predict, found.embed):
        with pytest.raises(ValueError, match="stages/fit gives numbers that are not"):
            use(parts.dataset.splits["test"])
    before = run.metrics.read_bytes()
    with pytest.raises(ValueError, match="not finite"):
        run_scores.score(found, parts)
    assert run.metrics.read_bytes() == before
