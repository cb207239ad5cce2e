"""Losses of a softmax against loops and golden values, and by properties."""

import functools

import jax
import loss_checks
import numpy as np
import pytest
from jax.test_util import check_grads
from loss_checks import QUICKLY

from cloc_jax import losses

RANKS = 8


def soft_loss(kind, **options):
    def loss(logits, labels, **rows):
        soft = losses.soft_labels(logits.shape[1], kind, **options)
        return losses.soft_cross_entropy(logits, labels, soft, **rows)

    return loss


ON_LOGITS = {
    "cdw_ce": functools.partial(losses.cdw_ce, alpha=2.5),
    "cdw_ce margin": functools.partial(losses.cdw_ce, alpha=5.0, margin=0.05),
    "squared_emd": losses.squared_emd,
    "slace": functools.partial(losses.slace, alpha=0.7),
    "weighted_kappa": losses.weighted_kappa,
    "weighted_kappa linear": functools.partial(losses.weighted_kappa, penalty="linear"),
    "weighted_kappa log": functools.partial(losses.weighted_kappa, log=True),
    "orcu": functools.partial(losses.orcu, strength=3.0),
    "soft_cross_entropy": soft_loss("exponential", alpha=0.8, power=2.0),
}
LOSSES = {
    name: loss_checks.Loss(
        lambda b, where, loss=loss: loss(b["logits"], b["labels"], where=where)
    )
    for name, loss in ON_LOGITS.items()
}
every = pytest.mark.parametrize("name", LOSSES)


def batch(name, size=8, ranks=RANKS, seed=0):
    rng = np.random.default_rng(seed)
    labels = rng.integers(0, ranks, size)
    return {"labels": labels, "logits": 2 * rng.normal(size=(size, ranks))}


# --- the slow way ---


def softmax(logits):
    return np.exp(logits) / np.exp(logits).sum(-1, keepdims=True)


def barrier(r, t=3.0):
    if r <= -1 / t**2:
        return -np.log(-r) / t
    return t * r - np.log(1 / t**2) / t + 1 / t


def of_image(name, z, y):
    p, ranks = softmax(z), range(len(z))
    off = [abs(k - y) for k in ranks]
    if name == "cdw_ce":
        return -sum(off[k] ** 2.5 * np.log(1 - p[k]) for k in ranks)
    if name == "cdw_ce margin":
        return -sum(off[k] ** 5 * np.log(min(1.05 - p[k], 1)) for k in ranks)
    if name == "squared_emd":
        return sum((sum(p[: k + 1]) - (y <= k)) ** 2 for k in ranks)
    if name == "slace":
        s = softmax(-0.7 * np.array(off))
        within = [sum(p[j] for j in ranks if off[j] <= off[k]) for k in ranks]
        return -sum(s[k] * np.log(within[k]) for k in ranks)
    alpha = 1.0 if name == "orcu" else 0.8
    total = -softmax(-alpha * np.array(off) ** 2.0) @ np.log(p)
    if name == "orcu":
        for k in range(len(z) - 1):
            total += barrier(z[k] - z[k + 1] if k < y else z[k + 1] - z[k])
    return total


def oracle(b, name):
    z, y = b["logits"], b["labels"]
    if not name.startswith("weighted_kappa"):
        return np.mean([of_image(name, *row) for row in zip(z, y, strict=True)])
    power, p, count = 1 if "linear" in name else 2, softmax(z), len(y)
    pairs = [(i, j) for i in range(count) for j in range(count)]
    cost = np.abs(np.arange(z.shape[1])[:, None] - y) ** power  # [rank, image]
    found = sum(p[i] @ cost[:, i] for i in range(count))
    ratio = found / (sum(p[i] @ cost[:, j] for i, j in pairs) / count)
    return np.log(ratio) if "log" in name else ratio


@pytest.mark.parametrize("ranks", [2, 4])
@every
def test_equals_loops(name, ranks):
    b = batch(name, size=5, ranks=ranks)
    loss_checks.check_oracle(LOSSES[name], functools.partial(oracle, name=name), b)


# --- released code ---


def test_equals_released_code(ordinal_losses):
    made = {
        **{
            f"cdw_ce_a{a}_m{m}": functools.partial(
                losses.cdw_ce, alpha=float(a), margin=float(m)
            )
            for a in (1, 5)
            for m in (0, 0.05)
        },
        **{
            f"slace_a{a}": functools.partial(losses.slace, alpha=float(a))
            for a in (0.5, 2)
        },
        "emd": ON_LOGITS["squared_emd"],
        "qwk": ON_LOGITS["weighted_kappa"],
        "lwk": ON_LOGITS["weighted_kappa linear"],
        "qwk_log": ON_LOGITS["weighted_kappa log"],
    }
    for name, loss in made.items():
        for case in ordinal_losses[name].values():
            with jax.enable_x64():
                results = jax.jit(jax.value_and_grad(loss), compiler_options=QUICKLY)
                got = results(case["logits"], case["labels"])
            for found, field in zip(got, ("value", "grad"), strict=True):
                # Its guards, 1e-8 within logarithms, show in the seventh digit.
                np.testing.assert_allclose(found, case[field], rtol=1e-6, atol=1e-6)


SOFT = {
    "exponential_p1_t1": ("exponential", {}),
    "exponential_p2_t0.5": ("exponential", {"alpha": 2.0, "power": 2.0}),
    "binomial": ("binomial", {}),
    "poisson": ("poisson", {}),
    "triangular_a0.05": ("triangular", {"alpha": 0.05}),
    "beta": ("beta", {}),
    "geometric_0.1": ("geometric", {"alpha": 0.1}),
}


@pytest.mark.parametrize("name", SOFT)
def test_soft_labels_equal_released_code(name, ordinal_losses):
    kind, options = SOFT[name]
    # Between intervals it leaves gaps of 1e-9, in which a density is up to 10.
    tolerance = 2e-8 if kind in ("triangular", "beta") else 1e-12
    for case in ordinal_losses[f"soft_{name}"].values():
        want = case["targets"]
        with jax.enable_x64():
            got = losses.soft_labels(len(want), kind, **options)
        np.testing.assert_allclose(got, want, rtol=0, atol=tolerance)


# --- properties ---


@pytest.mark.parametrize("kind", losses.SOFT_LABELS)
@pytest.mark.parametrize("ranks", [2, 7, 40])
def test_soft_labels_are_distributions_around_their_rank(kind, ranks):
    soft = np.asarray(jax.jit(lambda: losses.soft_labels(ranks, kind))())
    assert soft.shape == (ranks, ranks) and soft.min() > -1e-6
    np.testing.assert_allclose(soft.sum(1), 1, rtol=1e-4)
    # A Poisson distribution at rate y + 1 has y and y + 1 for modes; the chances of a
    # binomial one do not reach 0 and 1.
    most = {"poisson": 1, "binomial": ranks // 10}.get(kind, 0)
    assert (np.abs(soft.argmax(1) - np.arange(ranks)) <= most).all()
    steps = np.sign(np.round(np.diff(soft), 4))
    is_past = np.cumsum(steps < 0, axis=1) > 0
    assert not (is_past & (steps > 0)).any()  # a single peak


def test_exponential_labels_go_from_all_ranks_alike_to_plain_ones():
    b = loss_checks.cast(batch(""), np.float32)
    logs = np.log(softmax(b["logits"]))
    alike = soft_loss("exponential", alpha=0.0)(**b)
    np.testing.assert_allclose(alike, -logs.mean(), rtol=1e-5)
    plain = soft_loss("exponential", alpha=1e3)(**b)
    np.testing.assert_allclose(plain, -logs[np.arange(8), b["labels"]].mean(), 1e-5)


@every
def test_weights_are_copies_and_gradients_are_right_also_under_vmap(name):
    weights = np.array([1, 2, 0, 1, 3])
    batches = [batch(name, size=5, ranks=4, seed=seed) for seed in range(2)]
    stacked = {key: np.stack([b[key] for b in batches]) for key in batches[0]}
    loss = jax.jit(ON_LOGITS[name])
    mapped = jax.jit(jax.vmap(ON_LOGITS[name]), compiler_options=QUICKLY)
    with jax.enable_x64():
        b, given = batches[0], weights.astype(np.float64)
        got = mapped(**stacked, weights=np.stack([given, 0 * given]))
        repeated = {key: np.repeat(rows, weights, axis=0) for key, rows in b.items()}
        np.testing.assert_allclose(got, [loss(**repeated), 0], rtol=1e-12)
        one = functools.partial(loss, labels=b["labels"], weights=given)
        check_grads(one, (b["logits"],), 1, modes=("rev",), rtol=1e-5)


@every
@pytest.mark.parametrize("scale", [1e2, 1e4])
def test_certain_and_wrong_is_finite_and_has_a_gradient(name, scale):
    labels = np.arange(RANKS)
    logits = np.float32(scale) * np.eye(RANKS, dtype=np.float32)[::-1]
    value, gradients = LOSSES[name]({"labels": labels, "logits": logits})
    assert np.isfinite(value) and np.isfinite(gradients["logits"]).all()
    right = LOSSES[name]({"labels": labels, "logits": logits[::-1]})
    assert np.isfinite(right[0]) and right[0] < value
    if name in ("cdw_ce", "slace", "orcu", "soft_cross_entropy"):
        assert gradients["logits"].any()  # others are flat there


def test_kappa_of_one_rank_is_that_of_chance():
    b = batch("") | {"labels": np.full(8, 2)}
    for name, want in (("weighted_kappa", 1), ("weighted_kappa log", 0)):
        value, gradients = LOSSES[name](loss_checks.cast(b, np.float32))
        assert float(value) == pytest.approx(want, abs=1e-6)
        np.testing.assert_allclose(gradients["logits"], 0, atol=1e-6)
