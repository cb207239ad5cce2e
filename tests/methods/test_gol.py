"""GOL: its pairs, reference points and neighbours; the loss is tested beside it."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx
from tiny_runs import task

from cloc_jax.encoders import Identity
from cloc_jax.methods import Context, Labelled, fitted_predictions
from cloc_jax.methods.gol import draw_pairs, gol

LABELS = jnp.asarray([0, 0, 1, 2, 2, 2, 4, 4])


def make(**changes):
    settings = {
        "width": 6,
        "margin": 0.25,
        "tau": 0,
        "pairs": 0,
        "neighbours": (2, 4, 6),
    }
    return gol(task(5), **(settings | changes))


def test_pairs_have_all_relations_evenly_and_never_pair_an_item_with_itself():
    everyone = jnp.ones(8, bool)
    draw = jax.jit(draw_pairs, static_argnums=3)
    base, reference, where = draw(jax.random.key(0), LABELS, everyone, 24_000)
    assert bool(where.all()) and not bool((base == reference).any())
    relation = np.sign(np.asarray(LABELS[base] - LABELS[reference]))
    shares = [np.mean(relation == r) for r in (-1, 0, 1)]
    assert shares == pytest.approx([1 / 3] * 3, abs=0.03)
    alike = np.asarray(base)[relation == 0]
    assert len(set(alike.tolist())) == 7  # all but the lone image of rank 1
    pairs = np.unique(np.stack([base, reference])[:, relation > 0], axis=1)
    assert pairs.shape[1] == (LABELS[:, None] > LABELS[None, :]).sum()


def test_pairs_leave_padding_out_and_mark_relations_that_do_not_exist():
    real = jnp.asarray([True, False, True, True, False, False, True, False])
    base, reference, where = draw_pairs(jax.random.key(1), LABELS, real, 500)
    used = np.concatenate([base[where], reference[where]])
    assert set(used.tolist()) == {0, 2, 3, 6}
    relation = np.asarray(LABELS[base] == LABELS[reference])
    assert not relation[np.asarray(where)].any()  # no two of them share a rank
    assert 0.55 < float(where.mean()) < 0.78  # a third of the draws found no pair


def test_reference_points_start_on_a_half_circle_when_the_stage_is_entered():
    method = make()
    model = method.init(Identity(3, is_signed=True), nnx.Rngs(0))
    context = Context(lambda: model, 10)
    before = np.asarray(method.readouts(model)["reference_angles"].values)
    method.stages[0].enter(model, context, nnx.Rngs(1))
    after = np.asarray(method.readouts(model)["reference_angles"].values)
    assert after == pytest.approx([45.0] * 4, abs=0.1)
    assert not np.allclose(before, 45, atol=1)


def test_neighbours_predict_as_a_slow_loop_does():
    rng = np.random.default_rng(0)
    bank = rng.normal(size=(30, 4)).astype(np.float32)
    labels = rng.integers(0, 5, 30).astype(np.int32)
    queries = rng.normal(size=(12, 4)).astype(np.float32)
    support = {"bank": bank, "labels": labels, "k": jnp.asarray(4, jnp.int32)}
    found = fitted_predictions.predict_by_neighbours(
        jnp.asarray(queries), support, most=6, num_ranks=5
    )
    for i, query in enumerate(queries):
        order = np.argsort([np.sum((query - row) ** 2) for row in bank])
        near = [labels[j] for j in order[:4]]
        assert int(found.label[i]) == round(sum(near) / 4)  # half to even, as Python's
        shares = [np.mean([y > h for y in near]) for h in range(4)]
        assert np.asarray(found.above[i]) == pytest.approx(shares)
    lost = fitted_predictions.predict_by_neighbours(
        jnp.asarray(queries).at[3, 1].set(jnp.nan), support, most=6, num_ranks=5
    )
    assert np.isnan(lost.above).all(axis=1).tolist() == [i == 3 for i in range(12)]


def test_k_is_the_one_with_the_least_validation_error():
    # Every validation point has two neighbours of its own rank and then others.
    train = Labelled(
        np.array([[0.0], [0.1], [0.5], [0.6], [9.0], [9.1]], np.float32),
        np.array([0, 0, 4, 4, 2, 2]),
    )
    val = Labelled(np.array([[0.04], [9.04]], np.float32), np.array([0, 2]))
    support = fitted_predictions.fit_neighbours(train, val, (2, 4, 6, 50))
    assert int(support["k"]) == 2
    other = Labelled(val.embeddings, np.array([2, 3]))
    assert int(fitted_predictions.fit_neighbours(train, other, (2, 4, 6, 50))["k"]) == 4
