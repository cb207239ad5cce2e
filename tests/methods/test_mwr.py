"""MWR: windows, reference pairs, and ranks found by moving the window."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_runs import task

from cloc_jax.encoders import Identity
from cloc_jax.methods import Labelled
from cloc_jax.methods import mwr as module
from cloc_jax.methods.mwr import Comparator, mwr

RANKS = 5


def method(**changes):
    settings = {"hidden": 8, "dropout": 0.0, "references": 3} | changes
    return mwr(task(RANKS), **settings)


def toy(count, *, without=(), seed=0):
    """Labelled features that say the rank, with a little noise."""
    rng = np.random.default_rng(seed)
    ranks = np.setdiff1d(np.arange(RANKS), without)
    labels = rng.choice(ranks, count).astype(np.int32)
    noise = rng.normal(0, 0.1, (count, 2))
    features = np.stack([labels / 2 - 1, np.ones(count)], 1) + noise
    return Labelled(features.astype(np.float32), labels)


class Exact:
    """A comparator that knows: features are the rank itself."""

    def of_pair(self, lower, upper):
        return jnp.concatenate([lower, upper], axis=-1)

    def from_query(self, query):
        return query

    def __call__(self, pair, query):
        return module.relative_rank(query[..., 0], pair[..., 0], pair[..., 1])


def exact_support(labels, num_ranks, references=2):
    """What `fit` would find, if any pair of a window were as good as the others."""
    drawn = module.draw_candidates(labels, num_ranks)
    return {
        "bank": jnp.asarray(labels, jnp.float32)[:, None],
        "labels": jnp.asarray(labels),
        "pairs": jnp.asarray(drawn.pairs[:, :references]),
    }


@pytest.mark.parametrize(
    "rank, lower, upper, rho",
    [
        (2, 2, 4, -1),
        (3, 2, 4, 0),
        (4, 2, 4, 1),
        (0, 2, 4, -1),  # clipped
        (4, 3, 4, 1),  # cut to the range
        (4, 4, 4, 0),  # no width
        (3, 4, 4, -1),
    ],
)
def test_relative_rank(rank, lower, upper, rho):
    window = [jnp.float32(end) for end in (lower, upper)]
    assert float(module.relative_rank(jnp.float32(rank), *window)) == rho


@pytest.mark.parametrize(
    "rank, present, ends",
    [
        (2, [0, 1, 2, 3, 4], (1, 3)),
        (4, [0, 1, 2, 3, 4], (3, 4)),
        (2, [0, 1, 2, 4], (1, 4)),  # 3 has no images
        (4, [0, 1], (1, 1)),  # no guess is ever there
        (1, [1], (1, 1)),
    ],
)
def test_windows_reach_over_ranks_without_images(rank, present, ends):
    assert module.window(rank, np.array(present)) == ends


def test_the_comparator_is_one_layer_on_concatenated_features():
    head = Comparator(3, 6, 0.0, rngs=nnx.Rngs(0))
    rng = np.random.default_rng(0)
    lower, upper, query = jnp.asarray(rng.normal(size=(3, 4, 3)), jnp.float32)
    parts = (head.from_lower, head.from_upper, head.from_query)
    kernel = np.concatenate([part.kernel[...] for part in parts])
    x = np.concatenate([lower, upper, query], axis=1) @ kernel
    x = np.maximum(x + np.asarray(head.from_query.bias[...]), 0)
    x = np.maximum(np.asarray(head.inner(jnp.asarray(x))), 0)
    expected = np.tanh(np.asarray(head.output(jnp.asarray(x))))[:, 0]
    found = head(head.of_pair(lower, upper), head.from_query(query))
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


def triples(data, rows, seed=0):
    """A batch of random triples of the toy, its lower reference below the upper."""
    items = np.random.default_rng(seed).integers(len(data.labels), size=(rows, 3))
    ends = items[:, :2]
    items[:, :2] = np.take_along_axis(ends, np.argsort(data.labels[ends], axis=1), 1)
    return {
        "image": tuple(jnp.asarray(data.embeddings[items[:, n]]) for n in range(3)),
        "label": jnp.asarray(data.labels[items]),
        "mask": jnp.ones(rows, bool),
    }


def test_the_loss_is_the_squared_error_of_real_rows():
    made = method()
    model = made.init(Identity(2, is_signed=True), nnx.Rngs(0))
    batch = triples(toy(20), 6) | {"mask": jnp.array([True] * 4 + [False] * 2)}
    value, _ = made.stages[0].loss(model, batch, nnx.Rngs(1))
    lower, upper, query = (image[:4] for image in batch["image"])
    rho = model.head(model.head.of_pair(lower, upper), model.head.from_query(query))
    low, high, rank = batch["label"][:4].T.astype(jnp.float32)
    wanted = module.relative_rank(rank, low, high)
    assert float(value) == pytest.approx(float(jnp.mean((rho - wanted) ** 2)), rel=1e-5)


def predicted(made, model, data, support):
    support = jax.tree.map(jnp.asarray, support)
    return made.predict(model, jnp.asarray(data.embeddings), support)


@pytest.mark.parametrize("without", [(), (2,), (0,), (4,), (1, 2, 3)])
def test_candidates_lie_at_the_ends_of_the_window(without):
    labels = toy(40, without=without).labels
    drawn, again = (module.draw_candidates(labels, RANKS) for _ in range(2))
    for one, other in zip(drawn, again, strict=True):
        np.testing.assert_array_equal(one, other)
    for rank in range(RANKS):
        ends = module.window(rank, np.unique(labels))
        assert (labels[drawn.pairs[rank]] == ends).all()
        count = drawn.counts[rank]
        assert len(np.unique(drawn.pairs[rank, :count], axis=0)) == count
        assert count == min((labels == ends[0]).sum() * (labels == ends[1]).sum(), 64)
        queries = drawn.queries[rank][drawn.is_query[rank]]
        near = np.flatnonzero(np.abs(labels - rank) <= 2)
        np.testing.assert_array_equal(np.sort(queries), near)


def test_few_pairs_are_repeated():
    data = Labelled(np.eye(3, 2, dtype=np.float32), np.array([0, 1, 4], np.int32))
    head = Comparator(2, 4, 0.0, rngs=nnx.Rngs(0))
    found = module.fit_references(*nnx.split(head), data, 3, RANKS)["pairs"]
    assert found.shape == (RANKS, 3, 2)
    assert (found[1] == [0, 2]).all()  # the only ones of ranks 0 and 4


def test_windows_move_until_nothing_changes():
    labels = np.repeat(np.arange(10), 3).astype(np.int32)
    support = exact_support(labels, 10)
    ranks = np.array([0, 9, 4, 3.3, 6.8, 9], np.float32)
    guess = jnp.array([9, 0, 4, 4, 1, 9])
    found = module.move_windows(
        Exact(), jnp.asarray(ranks)[:, None], guess, support, 10
    )
    np.testing.assert_allclose(found, ranks, rtol=1e-6)
    # Ten times at most: every window reaches one rank to either side.
    labels = np.repeat(np.arange(30), 2).astype(np.int32)
    far, near = jnp.array([[29.0], [1.0]]), jnp.array([0, 0])
    found = module.move_windows(Exact(), far, near, exact_support(labels, 30), 30)
    np.testing.assert_allclose(found, [10, 1])


def test_values_are_averaged_and_not_rho():
    labels = np.array([0, 2, 4], np.int32)
    support = exact_support(labels, 5)
    # Windows [0, 4] and [2, 4] at every rank; rho of 3 is 0.5 and 0.
    support["pairs"] = jnp.tile(jnp.array([[0, 2], [1, 2]]), (5, 1, 1))
    found = module.move_windows(Exact(), jnp.array([[3.0]]), jnp.array([3]), support, 5)
    assert float(found[0]) == 3  # by the mean rho, 0.25, it would be 2.5 or 3.25


@pytest.mark.parametrize("without", [(2,), (0,), (1, 2, 3)])
def test_ranks_without_images_break_nothing(without):
    labels = toy(30, without=without).labels
    support = exact_support(labels, RANKS)
    present = np.unique(labels).astype(np.float32)
    between = present[:-1] + np.diff(present) / 3
    ranks = np.concatenate([present, between])
    found = module.estimate(Exact(), jnp.asarray(ranks)[:, None], support, RANKS)
    np.testing.assert_allclose(found, ranks, rtol=1e-5, atol=1e-6)
    # The whole of `fit` as well, with fewer images than neighbours.
    data, made = toy(4, without=without), method()
    model = made.init(Identity(2, is_signed=True), nnx.Rngs(0))
    model = nnx.view(model, deterministic=True)
    fitted = made.fit(model, data, toy(10, seed=1))
    prediction = predicted(made, model, toy(10), fitted)
    assert np.isfinite(prediction.value).all() and np.isfinite(prediction.above).all()
    assert (np.diff(np.asarray(prediction.above), axis=1) <= 0).all()
