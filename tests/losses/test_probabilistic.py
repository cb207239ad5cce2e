"""The terms of POE against loops and golden values, and by their properties."""

import collections
import functools

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest

from cloc_jax.losses.probabilistic import GAUSSIAN_DISTANCES, poe_terms

MARGIN = 2.0
WEIGHTS = (1.0, 0.5, 2.0)  # so that no term can hide another
NAMES = {
    "JDistance": "j",
    "Wasserstein": "wasserstein",
    "Bhattacharyya": "bhattacharyya",
    "HellingerDistance": "hellinger",
}


@functools.partial(jax.jit, static_argnames=("distance", "margin"))
def terms(b, where=None, distance="j", margin=MARGIN):
    return poe_terms(
        b["logits"],
        b["mean"],
        b["log_variance"],
        b["labels"],
        margin=margin,
        distance=distance,
        where=where,
    )


def weighted(*distances):
    """The sum of all terms with all distances."""

    def function(b, where):
        found = [terms(b, where, distance) for distance in distances]
        return sum(w * t for f in found for w, t in zip(WEIGHTS, f, strict=True))

    return loss_checks.Loss(function, axes={"logits": 1})


LOSSES = {distance: weighted(distance) for distance in GAUSSIAN_DISTANCES}
ALL = weighted(*GAUSSIAN_DISTANCES)
every = pytest.mark.parametrize("distance", GAUSSIAN_DISTANCES)


def batch(size=8, samples=3, ranks=8, dim=2, seed=0):
    rng = np.random.default_rng(seed)
    return {
        "logits": rng.normal(size=(samples, size, ranks)),
        "mean": rng.normal(size=(size, dim)),
        "log_variance": rng.normal(size=(size, dim)),
        "labels": rng.integers(0, ranks, size),
    }


def arrays(**options):
    return jax.tree.map(jnp.asarray, loss_checks.cast(batch(**options), np.float32))


def gaussian_distance(distance, m, v, n, w):
    """As in the released code, in variances."""

    def kl(m, v, n, w):
        return 0.5 * np.sum(np.log(w) - np.log(v) + v / w + (m - n) ** 2 / w - 1)

    if distance == "j":
        return kl(m, v, n, w) + kl(n, w, m, v)
    if distance == "wasserstein":
        return np.sqrt(np.sum((m - n) ** 2) + np.sum((np.sqrt(v) - np.sqrt(w)) ** 2))
    both = (v + w) / 2
    bhattacharyya = np.sum((m - n) ** 2 / both) / 8 + 0.5 * np.sum(
        np.log(both) - (np.log(v) + np.log(w)) / 2
    )
    if distance == "bhattacharyya":
        return bhattacharyya
    return np.sqrt(1 - np.exp(-bhattacharyya))


def oracle(b, distance):
    y, mean, variance = b["labels"], b["mean"], np.exp(b["log_variance"])
    size = len(y)
    entropies = []
    for logits in b["logits"]:
        for i in range(size):
            entropies.append(np.log(np.exp(logits[i]).sum()) - logits[i, y[i]])
    kl = np.mean(np.sum(mean**2 + variance - np.log(variance) - 1, axis=1) / 2)

    def d(i, j):
        return gaussian_distance(distance, mean[i], variance[i], mean[j], variance[j])

    hinges = []
    for i in range(size):
        j = (i + 1) % size
        wanted = abs(y[i] - y[j])
        best = None
        for k in range(size):
            miss = abs(abs(y[i] - y[k]) - wanted)
            if k != i and miss > 0 and (best is None or miss < best[0]):
                best = miss, k
        if best is not None:
            k = best[1]
            sign = np.sign(wanted - abs(y[i] - y[k]))
            hinge = sign * (d(i, k) - d(i, j)) + MARGIN
            if hinge > 0:
                hinges.append(hinge)
    ordinal = np.mean(hinges) if hinges else 0.0
    return np.dot(WEIGHTS, [np.mean(entropies), kl, ordinal])


@every
def test_equals_loops(distance):
    loss_checks.check_oracle(
        LOSSES[distance],
        lambda b: oracle(b, distance),
        batch(size=6, samples=2, ranks=5),
    )


def test_equals_released_code(baselines):
    batches = collections.defaultdict(dict)  # cases that differ in the ordinal term
    for name, case in baselines["poe"].items():
        number, distance, _ = name.split("_")
        batches[number][NAMES[distance], float(case["margin"])] = case
    inputs = "logits", "mean", "log_variance"
    for cases in batches.values():

        @functools.partial(jax.jit, compiler_options=loss_checks.QUICKLY)
        def results(varied, labels, cases=cases):
            def total(varied, chosen):
                found = terms(varied | {"labels": labels}, None, *chosen)
                return sum(found), list(found)

            return {o: jax.grad(total, has_aux=True)(varied, o) for o in cases}

        case = next(iter(cases.values()))
        with jax.enable_x64():
            got = results({k: case[k] for k in inputs}, case["labels"])
        for options, case in cases.items():
            gradients = {k: case["grad_" + k] for k in inputs}
            values = [case[k] for k in ("cross_entropy", "kl", "ordinal")]
            loss_checks.assert_close(got[options], (gradients, values), 1e-10)


@every
def test_ties_are_no_third(distance):
    """One rank, or two samples: no third differs from the second."""
    b = arrays()
    same = terms(b | {"labels": jnp.zeros(8, jnp.int32)}, distance=distance)
    two = terms(b, jnp.arange(8) < 2, distance)
    assert same.ordinal == 0 and two.ordinal == 0


@pytest.mark.parametrize("distance", ["wasserstein", "hellinger", "bhattacharyya"])
def test_gaussians_that_nearly_agree_have_a_distance(distance):
    """Rounding would make the root's argument negative, and so NaN."""
    b = arrays(size=64, ranks=4)
    tiny = 1e-4 * np.random.default_rng(0).normal(size=(2, 64, 2))
    b["mean"] = jnp.asarray(tiny[0], jnp.float32)
    b["log_variance"] = jnp.asarray(1 + tiny[1], jnp.float32)
    ours = LOSSES[distance](b)
    with jax.enable_x64():
        doubles = {k: np.float64(v) for k, v in b.items() if k != "labels"}
        want = LOSSES[distance](b | doubles)
    loss_checks.assert_close(ours, want, 2e-3)
