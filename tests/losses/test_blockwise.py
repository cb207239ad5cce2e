"""The form of the multi-margin loss for very large batches, against the others."""

import functools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.extend import core
from jax.sharding import PartitionSpec as P
from loss_checks import QUICKLY

from cloc_jax.losses import REDUCTIONS, choose_algorithm, mmnp, multi_margin
from cloc_jax.runtime import sharding

RANKS = 5


def batch(size, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(RANKS, size, p=[0.5, 0.2, 0.15, 0.1, 0.05]).astype(np.int32)
    z = rng.normal(size=(size, 6)) + y[:, None]
    return z, y, rng.uniform(0.1, 0.4, RANKS - 1), rng.uniform(size=size) < 0.9


@pytest.fixture
def small_blocks(monkeypatch):
    """24 anchors at a time."""
    monkeypatch.setattr(multi_margin, "_BLOCK", 0)
    monkeypatch.setattr(multi_margin, "_CPU_BLOCK", 0)
    monkeypatch.setattr(multi_margin, "_FEWEST", 24)


def results(algorithm, z, y, m, where):
    """Values and both gradients of every reduction."""

    def function(z, y, m, where):
        def loss(z, m, reduction):
            options = {"algorithm": algorithm, "where": where}
            return mmnp(z, y, m, reduction=reduction, **options)

        return [jax.value_and_grad(loss, (0, 1))(z, m, r) for r in REDUCTIONS]

    return jax.jit(function, compiler_options=QUICKLY)(z, y, m, where)


def test_equals_the_other_forms_in_float64(small_blocks):
    given = batch(60)  # 24, 24 and 12 anchors
    with jax.enable_x64():
        found = {a: results(a, *given) for a in ("dense", "sorted", "blockwise")}
    for other in ("dense", "sorted"):
        for a, b in zip(
            jax.tree.leaves(found["blockwise"]),
            jax.tree.leaves(found[other]),
            strict=True,
        ):
            assert a.dtype == np.float64 and np.abs(b).max() > 1e-6
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


def test_over_devices(small_blocks):
    z, y, m, where = batch(8 * 32)  # 24 and 8 anchors on each device
    mesh = sharding.make_mesh(8)

    def function(loss):
        gradient = jax.value_and_grad(loss, (0, 2))
        return jax.jit(gradient, compiler_options=QUICKLY)(z, y, m, where)

    form = functools.partial(mmnp, algorithm="blockwise")
    with jax.enable_x64():
        spread = function(sharding.over_batch(form, mesh))
        one = function(lambda z, y, m, w: mmnp(z, y, m, where=w, algorithm="sorted"))
        for a, b in zip(jax.tree.leaves(spread), jax.tree.leaves(one), strict=True):
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


def largest_array(jaxpr, is_whole=True):
    """Elements of the largest array that a program makes on a device.

    Outside the shard_map, where `is_whole`, shapes are those of all devices.
    """
    sizes = [0]
    for equation in jaxpr.eqns:
        if not is_whole:
            sizes += [v.aval.size for v in equation.outvars]
        whole = is_whole and equation.primitive.name != "shard_map"
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                if isinstance(inner, core.ClosedJaxpr):
                    sizes.append(largest_array(inner.jaxpr, whole))
                elif isinstance(inner, core.Jaxpr):
                    sizes.append(largest_array(inner, whole))
    return max(sizes)


@pytest.mark.parametrize("algorithm, fits", [("blockwise", True), ("sorted", False)])
def test_never_holds_all_anchors_against_all_columns(algorithm, fits):
    size, devices = 2**16, 8
    mesh = jax.sharding.AbstractMesh((devices,), ("data",))
    form = functools.partial(mmnp, algorithm=algorithm, axis_name="data")
    loss = jax.shard_map(
        form, mesh=mesh, in_specs=(P("data"), P("data"), P()), out_specs=P()
    )
    shape = jax.ShapeDtypeStruct
    program = jax.make_jaxpr(jax.value_and_grad(loss, (0, 2)))(
        shape((size, 64), jnp.float32),
        shape((size,), jnp.int32),
        shape((RANKS - 1,), jnp.float32),
    )
    largest = largest_array(program.jaxpr)
    assert (largest < size // devices * size // 50) == fits


def test_rows_are_sorted_alike_on_other_platforms():
    z, y, m, where = map(jnp.asarray, batch(150))
    unit = multi_margin.unit_vectors(jnp.asarray(z, jnp.float32))
    position = multi_margin.positions(m.astype(jnp.float32))
    index = jnp.arange(len(y), dtype=jnp.int32)
    order, spans = multi_margin._spans(y, index, y, where, RANKS)

    def counts(sort, sizes):
        return jax.jit(
            functools.partial(multi_margin._sized_counts, sort, 2**10, sizes),
            compiler_options=QUICKLY,
        )(unit, unit[order], position[y], position[y[order]], spans)

    ours = counts(multi_margin._bitonic_sort, 2)
    library = counts(functools.partial(jnp.sort, axis=1), 1)
    np.testing.assert_array_equal(ours[1], library[1])
    np.testing.assert_allclose(ours[0], library[0], rtol=1e-6)


def test_auto_takes_it_where_arrays_would_be_too_large():
    assert choose_algorithm(2**14, "cpu") == "sorted"
    assert choose_algorithm(2**15, "cpu") == "blockwise"
    assert choose_algorithm(2**15, "tpu", anchors=2**9) == "sorted"
    assert choose_algorithm(2**18, "gpu", anchors=2**11) == "blockwise"
