"""The training loop from within: what it refuses, keeps and compiles."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_runs import KEY, stage_parts, tiny

from cloc_jax.methods import Context
from cloc_jax.runtime import checkpoint
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.training import assembly, fit, run, train_step


def of(method, **settings):
    """Changes to the settings of a method."""
    changes = {f"method__{method}__{name}": value for name, value in settings.items()}
    return {"method__name": method} | changes


FROZEN = {"encoder__frozen": True, "head__projection": 6}
RESNET = {"encoder__name": "resnet18", "encoder__weights": "random"}


@pytest.mark.parametrize(
    "change, message",
    [
        ({"train__batch_size": 9}, "train.batch_size is 9"),
        ({"train__batch_size": 64}, "train.batch_size is 64; .* 48 training images"),
        ({"method__cloc__phase_two_init": "x"}, "method.cloc.phase_two_init is 'x'"),
        ({"method__cloc__contrast": "pixels"}, "method.cloc.contrast is 'pixels'"),
        ({"method__cloc__weight": -1.0}, "method.cloc.weight is -1"),
        ({"head__classifier": "tree"}, "head.classifier is 'tree'"),
        (
            {"head__classifier": "cosine", "method__cloc__contrast": "hidden"},
            "a cosine classifier has no hidden layer",
        ),
        ({"method__cloc__margin_optimizer": "lion"}, "optimizer.name is 'lion'"),
        ({"method__name": "svm"}, "method.name is 'svm'; this version has .*cloc"),
        ({"data__critical": ("1|4",)}, r"data.critical names 1\|4"),
        ({"data__name": "mnist"}, "data.name is 'mnist'"),
        ({"optimizer__learning_rate": 0.0}, "optimizer.learning_rate is 0.0"),
        ({"train__monitor": "loss"}, "train.monitor is 'loss'"),
        (of("dino", teacher_temperature=0.0), "teacher_temperature is 0.0"),
        (of("dino", local_size=(96,)), r"local_size is \(96,\)"),
        (of("gol", neighbours=()), "method.gol.neighbours is 0"),
        (of("mwr", dropout=1.0), "method.mwr.dropout is 1.0; use 0 to 0.99"),
        (
            of("rnc", augment="crops"),
            "rnc.augment is 'crops'; use one of default",
        ),
        (of("rnc") | FROZEN, "stage pretrain of rnc trains the encoder, which"),
        (
            of("dino") | {"encoder__trainable_from": "layer4"},
            "stage pretrain of dino augments images",
        ),
        (
            of("dino", local_size=(31, 51)) | RESNET | {"data__size": (72, 120)},
            "pretrain of dino has images of 31x51, but resnet18 needs at least 32x32; "
            "set method.dino.local_size",
        ),
        (
            of("dino", local_size=(32, 51)) | RESNET | {"data__size": (24, 120)},
            "images of 24x120, .* set data.size",
        ),
        ({"encoder__name": "resnet50"}, "timm/resnet50"),
        ({"encoder__name": "resnet50", "encoder__weights": "gone.pth"}, "gone.pth"),
        ({"encoder__trainable_from": "stem"}, "'stem'.*layer1, layer2, layer3, layer4"),
        (FROZEN | {"encoder__cache_gib": 1e-6}, "encoder.cache_gib"),
        ({"encoder__frozen": True}, "set head.projection"),
        ({"encoder__dtype": "float8"}, "encoder.dtype is 'float8'"),
    ],
)
def test_settings_are_checked_before_anything_is_made(change, message, tmp_path):
    folder = RunFolder(tmp_path / "run")
    config = tiny(**change)
    for name in config.augment:  # kept activations are of clean images
        config.augment[name] = 0.0
    with pytest.raises((ValueError, OSError), match=message):
        run.train(config, folder, resume=False)
    assert not folder.path.exists()


@pytest.mark.slow
def test_non_finite_steps_are_named_and_spoil_nothing(tmp_path):
    config = tiny(optimizer__learning_rate=1e37, train__log_steps=2)
    with pytest.raises(train_step.NonFinite) as error:
        run.train(config, RunFolder(tmp_path / "run"), resume=False)
    message = str(error.value)
    step = int(message.split("at step ")[1].split()[0])
    parts = assembly.build(config)
    for item in parts.samplers[0].batch(step):
        assert parts.dataset.splits["train"].ids[item] in message
    assert "Last good checkpoint: none yet" in message
    assert not list((tmp_path / "run" / "checkpoints").glob("[0-9]*"))


@pytest.mark.slow
def test_slow_steps_are_waited_for_so_that_a_signal_is_answered(tmp_path, monkeypatch):
    """Steps that are still queued would all have to end before anything is saved."""
    wait, asked = jax.block_until_ready, []
    monkeypatch.setattr(fit, "LONG_STEP", -1.0)
    monkeypatch.setattr(jax, "block_until_ready", lambda x: asked.append(1) or wait(x))
    folder = RunFolder(tmp_path / "run")
    run.train(tiny(method__name="ce"), folder, resume=False)
    assert len(asked) >= folder.read_stage("fit")["steps"] > 1


@pytest.fixture(scope="module")
def stage_one():
    """A step, its first carry and a batch; steps take what they are given."""
    margins = ["learn", 0.8, "learn>=0.2", 0.3]
    config = tiny(
        optimizer__learning_rate=0.01,
        method__cloc__margins=margins,
        method__cloc__margin_budget=0.0,
    )
    step, carry, batch, parts, graph = stage_parts(config)

    def margins_of(carry):
        model = checkpoint.merge_model(graph, carry.model)
        return parts.method.readouts(model)["margins"]

    return step, lambda: jax.tree.map(jnp.copy, carry), batch, margins_of


def test_a_share_of_nothing_is_none():
    assert train_step.share(np.array([1, 0]), np.array([2, 0])) == [0.5, None]


def test_a_bad_step_leaves_the_state_as_it_was(stage_one):
    step, carry, batch, _ = stage_one
    carry = carry()
    good = step(carry, batch, KEY)
    before = jax.tree.map(np.array, good)
    # A weight of infinity makes this step's loss infinite.
    spoilt = jax.tree.map(jnp.array, good)
    spoilt.model.params["head"]["linear2"]["bias"][...] = jnp.full(5, jnp.inf)
    after = step(spoilt, batch, KEY)
    assert int(after.bad_step) == 1 and int(after.step) == 1
    again = step(after, batch, KEY)
    assert int(again.bad_step) == 1  # the first one is remembered
    kernel = again.model.params["encoder"]["layer1"]["conv1"]["kernel"][...]
    np.testing.assert_array_equal(
        kernel, before.model.params["encoder"]["layer1"]["conv1"]["kernel"][...]
    )


def test_steps_trace_once_and_learn(stage_one):
    step, carry, batch, _ = stage_one
    carry, before = carry(), step._cache_size()
    means = []
    for number in range(40):
        last = {name: float(carry.totals[name]) for name in ("loss", "accuracy")}
        # Neither the order of the rows nor the key is part of the program.
        order = np.random.default_rng(number).permutation(8)
        shuffled = jax.tree.map(lambda rows, order=order: rows[order], batch)
        carry = step(carry, shuffled, jax.random.key(number))
        means.append({name: float(carry.totals[name]) - last[name] for name in last})
    assert step._cache_size() == max(before, 1)
    assert means[-1]["loss"] < 0.7 * means[0]["loss"]
    assert means[0]["accuracy"] < 0.6 and means[-1]["accuracy"] >= 0.75


def test_fixed_margins_keep_their_bits_while_the_network_trains(stage_one):
    step, carry, batch, margins_of = stage_one
    carry = carry()
    kinds, first = margins_of(carry).kinds, np.asarray(margins_of(carry).values)
    kernel = np.array(carry.model.params["encoder"]["stem"]["layers"][0]["kernel"][...])
    for _ in range(3):
        carry = step(carry, batch, KEY)
    last = np.asarray(margins_of(carry).values)
    for kind, a, b in zip(kinds, first, last, strict=True):
        assert (a.tobytes() == b.tobytes()) == (kind == "fixed")
    now = carry.model.params["encoder"]["stem"]["layers"][0]["kernel"][...]
    assert (np.asarray(now) != kernel).all()


@pytest.mark.slow
def test_phase_two_can_start_anew_with_the_learned_margins(tmp_path):
    config = tiny(method__cloc__phase_two_init="pretrained")
    folder = RunFolder(tmp_path / "run")
    run.train(config, folder, resume=False)
    rows = folder.read_history()
    first, second = (row["readouts"]["margins"] for row in rows[:2])
    assert first == second  # learned ones are kept
    fresh = assembly.build(config).create()
    learned = json.loads((folder.path / "stages" / "joint.json").read_text())
    assert learned["stop_rule"] == "max_epochs"
    parts = assembly.build(config)
    graph, state = checkpoint.split_model(parts.create())
    model = checkpoint.merge_model(graph, jax.tree.map(lambda x: x + 1, state))
    parts.method.stages[1].enter(model, Context(parts.create, 6), nnx.Rngs(0))
    np.testing.assert_array_equal(
        model.head.linear1.kernel[...], fresh.head.linear1.kernel[...]
    )
    assert (model.margins.theta[...] != fresh.margins.theta[...]).all()
