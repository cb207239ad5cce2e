"""Every method, killed in every stage and resumed, gives what an undisturbed run gives.

The kill is an exception right after a step, from which nothing is saved: what is left
is what a process that was killed there leaves, the newest checkpoint.
"""

import numpy as np
import pytest
from tiny_runs import SMALL_METHODS, arrays, history, tiny

from cloc_jax.methods import METHODS
from cloc_jax.runtime import sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly
from cloc_jax.training import run as training

# Five or six steps per epoch, two epochs per stage, a checkpoint every four steps.
SIZES = SMALL_METHODS | {
    "train__max_epochs": 2,
    "train__patience": 2,
    "train__checkpoint_steps": 4,
    "train__log_steps": 3,
    "method__gol__neighbours": (2, 4),
}
# Inside the first epoch, and between a checkpoint and the next one. Where a run begins,
# all methods of one stage are alike.
EARLY, LATE = 3, 9


class Killed(Exception):
    """The process is gone."""


def small(name):
    pretrained = ("rnc", "simclr", "supcon", "dino")
    short = {
        f"method__{name}__{stage}__epochs": 2
        for stage in ("pretrain", "probe")
        if name in pretrained
    }
    return tiny(method__name=name, **SIZES, **short)


def stages_of(name):
    method = assembly.build_method(small(name), 5, sharding.make_mesh(1))
    return [stage.name for stage in method.stages]


def killed_at(stage, step):
    """Callbacks that are gone after that step of that stage."""

    class KilledRun(training.RunCallbacks):
        def after_steps(self, at, began):
            super().after_steps(at, began)
            if (at.stage.name, at.step) == (stage, step):
                raise Killed

    return KilledRun


@pytest.fixture
def train(monkeypatch):
    def run(config, folder, *, resume, kill=None):
        with monkeypatch.context() as patched:
            if kill is not None:
                patched.setattr(training, "RunCallbacks", killed_at(*kill))
            training.train(config, folder, resume=resume)

    return run


@pytest.mark.slow
@pytest.mark.parametrize("name", METHODS)
def test_killed_in_every_stage_and_resumed_to_the_bit(name, tmp_path, train):
    config, stages = small(name), stages_of(name)
    whole, parts = RunFolder(tmp_path / "whole"), RunFolder(tmp_path / "parts")
    train(config, whole, resume=False)
    is_begun = False
    for stage in stages:
        for step in (LATE,) if len(stages) == 1 and name != "ce" else (EARLY, LATE):
            with pytest.raises(Killed):
                train(config, parts, resume=is_begun, kill=(stage, step))
            is_begun = True
    train(config, parts, resume=True)
    for stage in stages:
        ours, theirs = (arrays(run.path, stage) for run in (whole, parts))
        assert list(ours) == list(theirs)
        assert all(ours[k].tobytes() == theirs[k].tobytes() for k in ours)
    last = stages[-1]
    ours, theirs = (run.read_support(last) or {} for run in (whole, parts))
    assert list(ours) == list(theirs)
    assert all(np.array_equal(ours[k], theirs[k]) for k in ours)
    rows = [history(run.path) for run in (whole, parts)]
    assert rows[0] == rows[1] and len(rows[0]) == 2 * len(stages)
