"""DINO: a teacher that follows, is never trained, and is what ranks are learned on."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_runs import task

from cloc_jax import methods
from cloc_jax.methods import Context
from cloc_jax.methods import dino as module
from cloc_jax.methods.dino import dino
from cloc_jax.runtime import checkpoint
from cloc_jax.training import optimizer, train_step

OUTPUT, LOCAL_CROPS, BATCH = 6, 2, 4
PRETRAIN = {
    "name": "adamw",
    "learning_rate": 0.01,
    "weight_decay": 0.04,
    "final_weight_decay": 0.4,
    "decay_vectors": False,
    "clip_norm": 3.0,
    "clip_per_tensor": True,
    "rate_batch": 0,
    "epochs": 3,
}
SETTINGS = {
    "output": OUTPUT,
    "hidden": 8,
    "bottleneck": 4,
    "has_norms": False,
    "student_temperature": 0.1,
    "teacher_temperature": 0.04,
    "momentum": 0.9,
    "center_momentum": 0.9,
    "frozen_epochs": 1,
    "local_crops": LOCAL_CROPS,
    "local_size": (16, 16),
    "downstream": "probe",
    "pretrain": PRETRAIN,
    "probe": {"epochs": 1, "rate_batch": 0},
}


def method(**changes):
    given = SETTINGS | changes
    return dino(task(5), **given)


class Tiny(nnx.Module):
    """An encoder with two parts that compiles in no time: quarters, then two layers."""

    is_signed = False

    def __init__(self, features, rngs):
        self.features = features
        self.stem, self.layer1 = (
            nnx.Sequential(
                nnx.Linear(inputs, features, use_bias=False, rngs=rngs),
                nnx.BatchNorm(features, momentum=0.9, rngs=rngs),
                jax.nn.relu,
            )
            for inputs in (4, features)
        )

    def __call__(self, images):
        rows, side = images.shape[0], images.shape[1] // 2
        parts = images.reshape(rows, 2, side, 2, side) / 127.5 - 1
        quarters = parts.mean((2, 4)).reshape(rows, 4)
        return self.layer1(self.stem(10 * quarters))


def create(made):
    rngs = nnx.Rngs(0)
    return made.init(Tiny(4, rngs), rngs)


def batch(seed=0):
    rng = np.random.default_rng(seed)
    sizes = [24] * 2 + [16] * LOCAL_CROPS
    images = [rng.integers(256, size=(BATCH, s, s, 1), dtype=np.uint8) for s in sizes]
    return {
        "image": tuple(map(jnp.asarray, images)),
        "label": jnp.zeros(BATCH, jnp.int32),
        "mask": jnp.ones(BATCH, bool),
    }


def context(num_steps):
    return Context(lambda: None, num_steps)


class Steps:
    """The pretraining of a method, step by step."""

    def __init__(self, made, num_steps, epochs, *, trains=None):
        self.stage = made.stages[0]
        if trains is not None:
            self.stage = self.stage._replace(trains=trains)
        model = create(made)
        self.stage.enter(model, context(num_steps), nnx.Rngs(1))
        self.graph, state = checkpoint.split_model(model)
        built = optimizer.build(
            self.stage.trains,
            steps_per_epoch=num_steps // epochs,
            epochs=epochs,
            **self.stage.optimizer,
        )
        self.step = jax.jit(
            train_step.step_function(self.graph, self.stage, built, num_steps)
        )
        self.carry = train_step.first_carry(state, built, {"loss": jnp.zeros(())})

    def advance(self, given) -> float:
        """Takes a step and returns its loss."""
        before = float(self.carry.totals["loss"])
        self.carry = self.step(self.carry, given, jax.random.key(0))
        assert int(self.carry.bad_step) == -1
        return float(self.carry.totals["loss"]) - before

    @property
    def model(self):
        return checkpoint.merge_model(self.graph, self.carry.model)


def values(part, *kinds):
    """Copies of a module's arrays by path, of some kinds of variables."""
    flat = nnx.to_flat_state(nnx.state(part, *kinds))
    return {path: np.array(variable[...]) for path, variable in flat}


@pytest.fixture(scope="module")
def followed():
    """Models of the start and after each of six steps of a run of three epochs."""
    steps = Steps(method(), 6, 3)
    models = [steps.model]
    for seed in range(6):
        steps.advance(batch(seed))
        models.append(steps.model)
    return models


def test_the_teacher_starts_as_the_student_and_has_no_parameters():
    made = method()
    model = create(made)
    # As weights from a file would, after `init`.
    model.encoder.stem.layers[0].kernel[...] += 1
    made.stages[0].enter(model, context(6), nnx.Rngs(1))
    for name in module.AVERAGED:
        ours, theirs = (
            values(getattr(model, name)),
            values(getattr(model.teacher, name)),
        )
        assert ours.keys() == theirs.keys()
        assert all((ours[path] == theirs[path]).all() for path in ours)
    params, rest = checkpoint.split_model(model)[1]
    assert set(params) == {"encoder", "head", "last_layer", "projection"}
    assert {"teacher", "center", "frozen_steps"} <= set(rest)
    assert not values(model.teacher, nnx.Param)


def test_the_teacher_is_the_average_of_the_student(followed):
    """And of nothing else: no optimizer moves it."""
    for name in module.AVERAGED:
        expected = values(getattr(followed[0], name), nnx.Param)
        for step, model in enumerate(followed[1:]):
            momentum = 1 - (1 - 0.9) * (np.cos(np.pi * step / 6) + 1) / 2
            student = values(getattr(model, name), nnx.Param)
            for path, value in student.items():
                expected[path] = momentum * expected[path] + (1 - momentum) * value
            found = values(getattr(model.teacher, name), module.Untrained)
            assert found.keys() == expected.keys()
            for path in found:
                np.testing.assert_allclose(
                    found[path], expected[path], rtol=1e-4, atol=1e-6
                )


def test_the_teacher_has_batch_statistics_of_its_own(followed):
    first, second = followed[:2]
    large = jnp.concatenate(batch(0)["image"][:2])
    # The first step again, by hand: the teacher sees large crops only, in training.
    teacher = nnx.clone(first.teacher)
    module._outputs(teacher, [large])
    expected = values(teacher.encoder, nnx.BatchStat)
    found = values(second.teacher.encoder, nnx.BatchStat)
    student = values(second.encoder, nnx.BatchStat)
    for path in expected:
        np.testing.assert_allclose(found[path], expected[path], rtol=1e-4, atol=1e-5)
        assert (found[path] != student[path]).any()


def test_the_center_follows_the_teachers_outputs(followed):
    center = np.zeros((1, OUTPUT))
    for step in range(3):
        teacher = nnx.clone(followed[step].teacher)  # in training mode
        large = jnp.concatenate(batch(step)["image"][:2])
        rows = np.asarray(module._outputs(teacher, [large]))
        center = 0.9 * center + 0.1 * rows.mean(0, keepdims=True)
        found = followed[step + 1].center[...]
        np.testing.assert_allclose(found, center, rtol=1e-3, atol=1e-5)


def test_the_last_layer_waits_for_an_epoch(followed):
    kernels = [np.array(model.last_layer.kernel[...]) for model in followed]
    # Two steps per epoch: no gradient and no decay in either.
    assert kernels[0].tobytes() == kernels[1].tobytes() == kernels[2].tobytes()
    for before, after in zip(kernels[2:], kernels[3:], strict=False):
        assert (before != after).all()
    assert [int(model.frozen_steps[...]) for model in followed[:4]] == [2, 1, 0, 0]
    inner = [np.array(m.projection.layers[0].kernel[...]) for m in followed[:2]]
    assert (inner[0] != inner[1]).any()


def test_frozen_parts_evaluate_in_the_teacher_too():
    made = method()
    trains = {g: s for g, s in made.stages[0].trains.items() if g != "stem"}
    steps = Steps(made, 6, 3, trains=trains)
    model = steps.model
    methods.freeze(model, trains)  # as a step does
    assert not model.teacher.encoder.layer1.layers[1].use_running_average
    assert model.teacher.encoder.stem.layers[1].use_running_average
    before = values(model.teacher.encoder.stem)
    steps.advance(batch())
    after = values(steps.model.teacher.encoder.stem)
    assert all(before[path].tobytes() == after[path].tobytes() for path in before)


def test_padding_plays_no_part():
    made = method()
    some = batch() | {"mask": jnp.array([True, True, True, False])}
    model = create(made)
    methods.freeze(model, ())  # as batch statistics know of no padding
    graph, state = nnx.split(model)

    @jax.jit
    def results(given):
        model = nnx.merge(graph, state, copy=True)
        value, _ = made.stages[0].loss(model, given, nnx.Rngs(0))
        return value, model.center[...]

    found = []
    for fill in (0, 255):
        images = tuple(image.at[3].set(fill) for image in some["image"])
        found.append(results(some | {"image": images}))
    assert float(found[0][0]) == pytest.approx(float(found[1][0]), rel=1e-6)
    np.testing.assert_allclose(found[0][1], found[1][1], rtol=1e-5, atol=1e-7)


def test_ranks_are_learned_on_the_teacher(followed):
    made = method()
    assert set(made.stages[1].trains) == {"head"}
    assert set(method(downstream="full").stages[1].trains) > {"head", "layer4"}
    model = nnx.clone(followed[-1])
    made.stages[1].enter(model, context(6), nnx.Rngs(1))
    ours, teacher = values(model.encoder), values(followed[-1].teacher.encoder)
    assert ours.keys() == teacher.keys()
    assert all(ours[path].tobytes() == teacher[path].tobytes() for path in ours)
    student = values(followed[-1].encoder)
    assert all((ours[path] != student[path]).any() for path in ours)
    assert isinstance(model.encoder.stem.layers[0].kernel, nnx.Param)
