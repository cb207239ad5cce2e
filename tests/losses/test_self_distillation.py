"""DINO's loss and center against loops and golden values, and by their properties."""

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest

from cloc_jax.losses.self_distillation import dino, dino_center

CROPS, STUDENT, TEACHER = 4, 0.1, 0.04
CONSTANTS = ("teacher", "center")


@jax.jit
def call(b, where=None):
    """With [crop, sample, out] arrays, which are reshaped to what the loss takes."""
    out = b["student"].shape[-1]
    return dino(
        b["student"].reshape(-1, out),
        b["teacher"].reshape(-1, out),
        b["center"],
        crops=b["student"].shape[0],
        student_temperature=STUDENT,
        teacher_temperature=TEACHER,
        where=where,
    )


AXES = {"student": 1, "teacher": 1, "center": None}
LOSS = loss_checks.Loss(call, axes=AXES, constants=CONSTANTS)


def batch(size=8, out=5, crops=CROPS, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "student": rng.normal(size=(crops, size, out)) / 10,
        "teacher": rng.normal(size=(2, size, out)) / 10,
        "center": rng.normal(size=(1, out)) / 10,
    }


def arrays(**options):
    return jax.tree.map(jnp.asarray, loss_checks.cast(batch(**options), np.float32))


def softmax(x):
    return np.exp(x) / np.exp(x).sum()


def oracle(b):
    crops, size, _ = b["student"].shape
    losses = []
    for u in range(2):
        for v in range(crops):
            for i in range(size):
                if u != v:
                    t = softmax((b["teacher"][u, i] - b["center"][0]) / TEACHER)
                    s = np.log(softmax(b["student"][v, i] / STUDENT))
                    losses.append(-t @ s)
    assert len(losses) == (2 * crops - 2) * size
    return np.mean(losses)


@pytest.mark.parametrize("crops", [2, 3, 4])
def test_equals_loops(crops):
    loss_checks.check_oracle(LOSS, oracle, batch(size=3, crops=crops))


def test_equals_released_code(baselines):
    for case in baselines["dino"].values():
        options = {
            "crops": int(case["crops"]),
            "student_temperature": float(case["student_temperature"]),
            "teacher_temperature": float(case["teacher_temperature"]),
        }
        loss_checks.check_golden(
            lambda b, options=options: dino(
                b["student"], b["teacher"], b["center"], **options
            ),
            {k: case[k] for k in ("student", "teacher", "center")},
            case["value"],
            {"student": case["grad_student"]},
            constants=CONSTANTS,
        )
        with jax.enable_x64():
            teacher, center = jnp.asarray(case["teacher"]), jnp.asarray(case["center"])
            after = dino_center(teacher, center, momentum=0.9)
        loss_checks.assert_close(after, case["center_after"], 1e-12)


def test_teacher_and_center_have_no_gradients():
    b = arrays()
    gradients = jax.grad(call)(b)
    assert gradients["student"].any()
    assert not gradients["teacher"].any() and not gradients["center"].any()


def test_center_leaves_padding_out():
    b = arrays()
    rows = b["teacher"].at[:, 3:].set(jnp.nan).reshape(-1, 5)
    where = jnp.arange(8) < 3
    got = dino_center(rows, b["center"], momentum=0.9, where=where)
    mean = np.float64(b["teacher"][:, :3]).mean((0, 1))[None]
    np.testing.assert_allclose(got, 0.9 * b["center"] + 0.1 * mean, rtol=1e-5)
    none = dino_center(rows, b["center"], momentum=0.9, where=jnp.zeros(8, bool))
    np.testing.assert_allclose(none, b["center"], rtol=1e-6)
