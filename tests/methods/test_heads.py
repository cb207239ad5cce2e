"""The head: projection, classifier, and what margins ask of it."""

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from flax import nnx
from scipy import stats
from tiny_runs import clean

from cloc_jax import losses
from cloc_jax.encoders import Identity
from cloc_jax.methods.heads import Head, HeadOptions, Unimodal
from cloc_jax.runtime import sharding
from cloc_jax.training import assembly
from cloc_jax.training.assembly import build_dataset


def head(**changes):
    options = {
        "projection": 7,
        "projection_relu": False,
        "classifier": "layers",
        "hidden": 5,
        "shape": "free",
    } | changes
    return Head(6, 4, HeadOptions(**options), rngs=nnx.Rngs(0))


FEATURES = jnp.asarray(np.random.default_rng(0).normal(size=(9, 6)), jnp.float32)


@pytest.mark.parametrize("is_relu", [False, True])
def test_a_relu_keeps_cosines_above_zero(is_relu):
    found = head(projection_relu=is_relu)(FEATURES).embedding
    assert bool((found >= 0).all()) == is_relu


def test_cosine_logits_are_scaled_cosines():
    made = head(classifier="cosine")
    out = made(FEATURES)
    vectors = np.asarray(made.prototypes.vectors[...])
    for row, logits in zip(np.asarray(out.embedding), out.logits, strict=True):
        norms = np.linalg.norm(vectors, axis=1) * np.linalg.norm(row)
        np.testing.assert_allclose(logits, 10 * vectors @ row / norms, rtol=1e-5)


def shaped(shape, outputs, num_ranks=5):
    made = Unimodal(shape, num_ranks)
    return np.asarray(jax.jit(made)(jnp.asarray(outputs, jnp.float32)))


def test_unimodal_heads_are_their_distributions():
    x = np.array([[-2.0], [0.3], [4.0]])
    ranks = np.arange(5)
    binomial = stats.binom.pmf(ranks, 4, 1 / (1 + np.exp(-x)))
    found = jax.nn.softmax(shaped("binomial", x))
    np.testing.assert_allclose(found, binomial, rtol=1e-4)
    poisson = stats.poisson.pmf(ranks, np.log1p(np.exp(x)))
    want = poisson / poisson.sum(1, keepdims=True)
    np.testing.assert_allclose(jax.nn.softmax(shaped("poisson", x)), want, rtol=1e-4)
    copoc = shaped("copoc", [[-1.5, 1.0, -1.0, 0.0, 2.0]])
    np.testing.assert_allclose(copoc, [[-1.5, -0.5, -0.5, -0.5, -2.5]])


@pytest.mark.parametrize("shape", ["binomial", "poisson", "copoc"])
def test_unimodal_heads_have_one_peak_and_finite_gradients(shape):
    made = Unimodal(shape, 7)
    x = 10.0 ** np.arange(-2, 5)[:, None] * np.array([[-1.0], [1.0]])[:, None]
    x = np.tile(x.reshape(-1, 1), (1, made.outputs)).astype(np.float32)
    steps = np.sign(np.diff(shaped(shape, x, 7)))
    assert (np.diff(steps) <= 0).all()  # up, then down
    slopes = jax.jit(jax.grad(lambda x: jax.nn.log_softmax(made(x))[:, 2].sum()))(x)
    assert np.isfinite(slopes).all() and slopes.any()
    method, model = method_and_model(head__shape=shape)
    found = method.predict(model, FEATURES, None).probabilities
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-5)


@pytest.mark.parametrize(
    "changes, message",
    [
        ({"head__classifier": "cosine"}, "head.shape is 'poisson', which computes"),
        ({"method__name": "corn"}, "head.shape is 'poisson', which gives one number"),
        ({"head__shape": "gaussian"}, "use one of free, binomial, poisson, copoc"),
    ],
)
def test_shapes_that_make_no_sense(changes, message):
    with pytest.raises(ValueError, match=message):
        method_and_model(**({"head__shape": "poisson"} | changes))


def method_and_model(**changes):
    config = clean(**({"head__projection": 7} | changes))
    method = assembly.build_method(config, 4, sharding.make_mesh(1))
    return method, method.init(Identity(6, is_signed=True), nnx.Rngs(0))


@pytest.mark.parametrize(
    "changes, limit",
    [
        ({}, 2.0),
        ({"head__projection_relu": True}, 1.0),
        ({"method__cloc__contrast": "hidden"}, 1.0),
        ({"method__cloc__contrast": "logits"}, 2.0),
        ({"head__projection_relu": True, "method__cloc__contrast": "logits"}, 2.0),
    ],
)
def test_the_limit_is_what_the_range_of_cosines_allows(changes, limit):
    method, model = method_and_model(**changes)
    assert method.readouts(model)["margins"].limit == limit


def test_a_cosine_classifier_is_asked_for_the_margins():
    values = [0.1, 0.4, 0.2]
    changes = {"head__classifier": "cosine", "method__cloc__margins": values}
    method, model = method_and_model(**changes)
    labels = np.array([0, 0, 1, 1, 2, 2, 3, 3, 3])
    batch = {
        "image": FEATURES,
        "label": jnp.asarray(labels),
        "mask": jnp.ones(9, bool),
    }
    loss = jax.jit(lambda batch: method.stages[0].loss(model, batch, None))
    total, scalars = loss(batch)
    out = jax.jit(lambda x: model(x))(FEATURES)
    place = np.array([0.0, 0.1, 0.5, 0.7])
    asked = np.asarray(out.logits) + 10 * np.abs(place[labels][:, None] - place)
    entropy = optax.softmax_cross_entropy_with_integer_labels(asked, labels).mean()
    mmnp = losses.mmnp(out.embedding, batch["label"], jnp.asarray(values))
    assert float(total) == pytest.approx(float(entropy + mmnp), rel=1e-5)
    assert float(scalars["cross_entropy"]) == pytest.approx(float(entropy), rel=1e-5)
    # Prediction knows no label, so no margin either.
    chance = method.predict(model, FEATURES, None).probabilities
    np.testing.assert_allclose(chance, jax.nn.softmax(out.logits), rtol=1e-6)


def test_one_phase_and_an_optimizer_of_their_own_for_margins():
    config = clean(
        method__cloc__phases=1,
        method__cloc__margin_optimizer="sgd",
        method__cloc__margin_learning_rate=0.05,
    )
    method = assembly.build_method(config, 4, sharding.make_mesh(1))
    (joint,) = method.stages
    assert joint.name == "joint"
    assert joint.trains["margins"] == {
        "weight_decay": 0.0,
        "final_weight_decay": None,
        "learning_rate": 0.05,
        "name": "sgd",
    }
    assert joint.trains["head"] == {}


def test_permuted_labels_are_the_same_ones_elsewhere():
    original = build_dataset(clean())
    first, again, second = (
        build_dataset(clean(data__permute=n)).splits for n in (1, 1, 2)
    )
    labels = [np.asarray(s["train"].labels) for s in (first, again, second)]
    as_came = np.asarray(original.splits["train"].labels)
    assert (labels[0] == labels[1]).all() and (labels[0] != labels[2]).any()
    for found in labels:
        assert (found != as_came).any() and sorted(found) == sorted(as_came)
    for split in ("val", "test"):
        assert (first[split].labels == original.splits[split].labels).all()
    assert (first["train"][3] == original.splits["train"][3]).all()  # images stay
