"""The loss against golden values, against plain loops, and by its properties."""

import functools
import itertools

import jax
import jax.numpy as jnp
import loss_checks
import numpy as np
import pytest
from golden_losses import CASES
from hypothesis import given, settings
from hypothesis import strategies as st
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P
from loss_checks import QUICKLY

from cloc_jax.losses import (
    ALGORITHMS,
    REDUCTIONS,
    choose_algorithm,
    kept_triplets,
    mmnp,
    multi_margin,
)
from cloc_jax.runtime import sharding

both = pytest.mark.parametrize("algorithm", ["dense", "sorted"])


def counts(labels):
    same = labels[:, None] == labels[None, :]
    return same.sum(1) - 1, (~same).sum(1)


def reduce_slowly(hinges, labels, reduction):
    """The three reductions as the loss documents them."""
    positives, negatives = counts(labels)
    if reduction == "paper":
        return hinges.mean()
    if reduction == "mean":
        return hinges.sum() / max((positives * negatives).sum(), 1)
    return np.mean(
        [
            h / (p * n**2) if p and n else 0.0
            for h, p, n in zip(hinges, positives, negatives, strict=True)
        ]
    )


def similarities(z, y, margins):
    """s and t = s + margin in float64."""
    z = np.asarray(z, np.float64)
    norms = np.linalg.norm(z, axis=1, keepdims=True)
    unit = np.divide(z, norms, out=np.zeros_like(z), where=norms > 0)
    s = unit @ unit.T
    position = np.concatenate([[0], np.cumsum(np.asarray(margins, np.float64))])
    return s, s + abs(position[y][:, None] - position[y][None, :])


def loop(z, y, margins):
    """H_i by three nested loops."""
    s, t = similarities(z, y, margins)
    hinges = np.zeros(len(y))
    for i, j, k in itertools.product(range(len(y)), repeat=3):
        if i != j and y[i] == y[j] and y[i] != y[k]:
            hinges[i] += max(0.0, t[i, k] - s[i, j])
    return hinges


def anchor_loop(z, y, margins):
    """H_i and the counts dH_i/ds [anchor, column], by a loop over the anchors."""
    s, t = similarities(z, y, margins)
    hinges, counts = np.zeros(len(y)), np.zeros((len(y), len(y)), int)
    for i in range(len(y)):
        (j,) = np.nonzero((y == y[i]) & (np.arange(len(y)) != i))
        if j.size:
            (k,) = np.nonzero((y != y[i]) & (t[i] > s[i, j].min()))  # others: hinge 0
            hinge = np.maximum(0, t[i, k][None, :] - s[i, j][:, None])
            hinges[i] = hinge.sum()
            counts[i, j], counts[i, k] = -(hinge > 0).sum(1), (hinge > 0).sum(0)
    return hinges, counts


def oracle(z, y, m):
    """Value and gradients of the mean over triplets, by a loop in float64."""
    hinges, slopes = anchor_loop(z, y, m)
    triplets = max(np.multiply(*counts(y)).sum(), 1)
    length = np.linalg.norm(z.astype(np.float64), axis=1, keepdims=True)
    unit = z / length
    by_unit = (slopes + slopes.T) @ unit
    along = (by_unit * unit).sum(1, keepdims=True)
    side = y[:, None] <= np.arange(len(m))  # [sample, boundary]
    across = side[:, None] != side[None]
    by_margin = (slopes[..., None] * across).sum((0, 1))
    by_z = (by_unit - along * unit) / length
    return hinges.sum() / triplets, by_z / triplets, by_margin / triplets


def gradients_of(algorithm):
    """Value and both gradients for every reduction."""

    def function(z, y, m, where=None):
        def loss(z, m, reduction):
            return mmnp(z, y, m, where=where, reduction=reduction, algorithm=algorithm)

        return {r: jax.value_and_grad(loss, (0, 1))(z, m, r) for r in REDUCTIONS}

    return function


GRADIENTS = {a: jax.jit(gradients_of(a)) for a in ALGORITHMS}
count_kept = jax.jit(kept_triplets, static_argnames="anchors")


@pytest.fixture(scope="module", params=["dense", "sorted"])
def golden_results(request):
    """All cases, padded to one shape, in float64 and float32."""
    size = max(len(c["y"]) for c in CASES)
    dim = max(c["z"].shape[1] for c in CASES)
    boundaries = max(len(c["margins"]) for c in CASES)

    def padded(x, *shape):
        return np.pad(x, [(0, n - k) for n, k in zip(shape, x.shape, strict=True)])

    z = np.stack([padded(c["z"], size, dim) for c in CASES])
    y = np.stack([padded(c["y"].astype(np.int32), size) for c in CASES])
    m = np.stack([padded(c["margins"], boundaries) for c in CASES])
    where = np.stack([padded(np.ones(len(c["y"]), bool), size) for c in CASES])

    def losses(z, y, m, where):
        def loss(z, m, reduction="official"):
            options = {"reduction": reduction, "algorithm": request.param}
            return mmnp(z, y, m, where=where, **options)

        return jax.grad(loss, (0, 1))(z, m), {r: loss(z, m, r) for r in REDUCTIONS}

    function = jax.jit(jax.vmap(losses))
    results = {}
    for dtype in (np.float64, np.float32):
        with jax.enable_x64(dtype == np.float64):
            out = function(z.astype(dtype), y, m.astype(dtype), where)
            assert all(x.dtype == dtype for x in jax.tree.leaves(out))
            results[dtype] = jax.tree.map(np.asarray, out)
    return results


@pytest.mark.parametrize("number", range(len(CASES)))
@pytest.mark.parametrize("dtype, tolerance", [(np.float64, 1e-10), (np.float32, 1e-5)])
def test_equals_released_loss(golden_results, number, dtype, tolerance):
    case = CASES[number]
    results = jax.tree.map(lambda x: x[number], golden_results[dtype])
    (grad_z, grad_m), values = results
    np.testing.assert_allclose(
        values["official"], case["official"], rtol=tolerance, atol=1e-14
    )

    size, dim = case["z"].shape
    scale = abs(case["grad_z"]).max()
    np.testing.assert_allclose(
        grad_z[:size, :dim], case["grad_z"], rtol=tolerance, atol=tolerance * scale
    )
    assert not grad_z[size:].any() and not grad_z[:, dim:].any()
    # d softplus(theta) / d theta = 1 - exp(-softplus(theta)).
    raw = grad_m[: len(case["margins"])] * -np.expm1(-case["margins"])
    raw = np.where(case["fixed"], 0, raw)
    if case["kind"] == "shared":
        raw = raw.sum(keepdims=True)
    np.testing.assert_allclose(
        raw, case["grad_raw_margin"].reshape(raw.shape), rtol=tolerance, atol=1e-13
    )
    for reduction, got in values.items():
        want = reduce_slowly(case["hinge_sum"], case["y"], reduction)
        np.testing.assert_allclose(got, want, rtol=tolerance, atol=1e-14)


def hinge_sums(z, y, m, algorithm):
    """Of every sample of a batch."""
    unit = multi_margin.unit_vectors(z)
    index, where = jnp.arange(len(y), dtype=jnp.int32), jnp.ones(len(y), bool)
    return multi_margin.hinge_sums(unit, y, index, unit, y, m, where, algorithm)


@jax.jit
def sums_and_gradients(z, y, m, weights):
    """H_i and the gradients of their weighted sum, by both algorithms."""

    def weighted(z, m, algorithm):
        sums = hinge_sums(z, y, m, algorithm)
        return jnp.sum(weights * sums.hinges), sums

    return {
        a: jax.grad(weighted, (0, 1), has_aux=True)(z, m, a)
        for a in ("dense", "sorted")
    }


KINDS = ["random", "one rank", "one common rank", "singletons", "ends only"]


def draw_labels(rng, kind, size, ranks):
    y = rng.integers(0, ranks, size)
    if kind == "one rank":
        y[:] = ranks - 1
    elif kind == "one common rank":
        y = np.where(rng.uniform(size=size) < 0.7, ranks // 2, y)
    elif kind == "singletons":
        y = rng.permutation(size) % ranks
    elif kind == "ends only":
        y = rng.choice([0, ranks - 1], size)
    return y.astype(np.int32)


def draw_embeddings(rng, kind, size, dim=3):
    z = rng.normal(size=(size, dim))
    if kind == "some zero":
        z[rng.integers(size, size=1 + size // 10)] = 0
    elif kind == "one vector":
        z[:] = z[0]
    elif kind == "duplicates":
        z = z[rng.integers(size, size=size)]
    return z


# A few shapes only, since each one is compiled; eighty ranks may share two labels.
@pytest.mark.parametrize(
    "size, ranks",
    [
        (2, 2),
        (13, 13),
        pytest.param(200, 80, marks=pytest.mark.slow),
        pytest.param(130, 5, marks=pytest.mark.slow),
    ],
)
@settings(max_examples=20, deadline=None)
@given(data=st.data())
def test_equals_plain_loops(size, ranks, data):
    rng = np.random.default_rng(data.draw(st.integers(0, 2**32 - 1)))
    y = draw_labels(rng, data.draw(st.sampled_from(KINDS)), size, ranks)
    vectors = st.sampled_from(["normal", "some zero", "one vector", "duplicates"])
    z = draw_embeddings(rng, data.draw(vectors), size)
    m = rng.uniform(0.05, 2 / ranks + 0.1, ranks - 1)
    want, _ = anchor_loop(z, y, m)
    if size < 20:
        np.testing.assert_allclose(loop(z, y, m), want, rtol=1e-10, atol=1e-13)
    with jax.enable_x64():
        results = sums_and_gradients(z, y, m, rng.normal(size=size))
        results = jax.tree.map(np.asarray, results)
    # A gradient adds up to size^3 / 4 terms, which may cancel, over a vector's length.
    lengths = np.linalg.norm(z, axis=1)
    rounding = 1e-15 * size**3 / lengths[lengths > 0].min(initial=1)
    for gradients, sums in results.values():
        np.testing.assert_allclose(sums.hinges, want, rtol=1e-10, atol=1e-12)
        positives, negatives = counts(y)
        np.testing.assert_array_equal(sums.positives, positives)
        np.testing.assert_array_equal(sums.negatives, negatives)
        for got, dense in zip(gradients, results["dense"][0], strict=True):
            np.testing.assert_allclose(got, dense, rtol=1e-10, atol=rounding)


sorted_gradients = jax.jit(
    jax.value_and_grad(lambda z, m, y: mmnp(z, y, m, algorithm="sorted"), (0, 1))
)


@pytest.mark.slow
def test_float32_keeps_its_digits_when_almost_every_margin_is_met():
    rng = np.random.default_rng(0)
    y = rng.permutation(np.arange(2048) % 5).astype(np.int32)
    m = np.full(4, 0.1, np.float32)
    z = np.zeros((2048, 16))
    z[:, 0], z[:, 1] = np.cos(0.5 * y), np.sin(0.5 * y)
    z = (z + rng.normal(size=z.shape) * 0.016).astype(np.float32)
    got, (grad_z, grad_m) = sorted_gradients(z, m, y)
    want, want_z, want_m = oracle(z, y, m)
    random = rng.normal(size=z.shape).astype(np.float32)
    assert 0 < want < 1e-3 * sorted_gradients(random, m, y)[0]
    np.testing.assert_allclose(got, want, rtol=1e-5)
    # A triplet less than a last digit from its margin may count or not.
    np.testing.assert_allclose(grad_z, want_z, atol=1e-4 * abs(want_z).max())
    np.testing.assert_allclose(grad_m, want_m, rtol=1e-4)


def test_float32_keeps_its_digits_when_all_embeddings_are_one():
    # Every hinge is a margin, some 1e-4 of the similarities it is the difference of.
    y = np.random.default_rng(0).permutation(np.arange(2048) % 5).astype(np.int32)
    z = np.eye(1, 16, dtype=np.float32).repeat(2048, 0)
    m = np.array([1, 2, 3, 1], np.float32) * 2**-13
    got, (grad_z, _) = sorted_gradients(z, m, y)
    s, t = similarities(z, y, m)
    positives, negatives = counts(y)
    want = (positives * (t - s).sum(1)).sum() / (positives * negatives).sum()
    np.testing.assert_allclose(got, want, rtol=1e-6)
    np.testing.assert_allclose(grad_z, np.zeros_like(z), atol=1e-8)


def batch(seed=0, size=12, ranks=4, dim=6):
    rng = np.random.default_rng(seed)
    y = jnp.asarray(rng.permutation(np.arange(size) % ranks), jnp.int32)
    m = jnp.asarray(rng.uniform(0.2, 0.8, ranks - 1), jnp.float32)
    return jnp.asarray(rng.normal(size=(size, dim)), jnp.float32), y, m


def value(z, y, m, algorithm):
    return GRADIENTS[algorithm](z, y, m)["mean"][0]


@both
def test_zero_when_every_margin_is_met(algorithm):
    angles = np.repeat([0.0, 1.0, 2.0, 3.0], 3)
    z = np.stack([np.cos(angles), np.sin(angles)] + [np.zeros(12)] * 4, 1)
    z = jnp.asarray(z, jnp.float32)
    y = jnp.asarray(np.repeat([0, 1, 2, 3], 3), jnp.int32)
    m = jnp.full(3, 0.4, jnp.float32)
    for got, gradients in GRADIENTS[algorithm](z, y, m).values():
        assert got == 0 and not any(g.any() for g in gradients)
    assert value(z, y, 4 * m, algorithm) > 0


@both
def test_margins_have_no_influence_while_no_triplet_keeps_them(algorithm):
    # Features as those after a ReLU: all cosines are near 1.
    z = 4 + jax.random.normal(jax.random.key(5), (16, 32))
    y = jnp.arange(16) % 4
    margins = [jnp.full(3, 0.5), jnp.array([0.6, 1.0, 0.5])]
    for m in margins:
        assert not count_kept(z, y, m).kept.any()
    first, second = (GRADIENTS[algorithm](z, y, m)["mean"] for m in margins)
    assert not np.isclose(first[0], second[0])  # the value is another
    np.testing.assert_array_equal(first[1][0], second[1][0])
    # The order of ranks is not used: any relabelling gives the same network.
    shuffled = GRADIENTS[algorithm](z, jnp.array([2, 0, 3, 1])[y], margins[0])["mean"]
    np.testing.assert_allclose(shuffled[1][0], first[1][0], rtol=1e-4, atol=1e-8)


@both
def test_a_triplet_at_its_margin_has_no_gradient(algorithm):
    # s = 0 to the positive and t = -1 + 1 to the negative, without rounding.
    z = jnp.asarray([[1, 0], [0, 1], [-1, 0]], jnp.float32)
    y, m = jnp.asarray([0, 0, 1], jnp.int32), jnp.ones(1, jnp.float32)
    first = jax.jit(
        jax.value_and_grad(
            lambda z, m: hinge_sums(z, y, m, algorithm).hinges[0], (0, 1)
        )
    )
    got, gradients = first(z, m)
    assert got == 0 and not any(g.any() for g in gradients)
    assert first(z, m + 0.5)[1][1] == 1


@both
def test_nan_is_not_hidden(algorithm):
    z, y, m = batch()
    for row in (0, 7):
        assert np.isnan(value(z.at[row, 0].set(jnp.nan), y, m, algorithm))


LOSSES = {
    algorithm: loss_checks.Loss(
        lambda b, where, algorithm=algorithm: mmnp(
            b["embeddings"],
            b["labels"],
            b["margins"],
            where=where,
            algorithm=algorithm,
        ),
        axes={"margins": None},
    )
    for algorithm in ("dense", "sorted", "blockwise")
}


def named_batch(size=8):
    z, y, _ = batch(size=size)
    margins = np.linspace(0.2, 0.8, 7)  # for a rank of each of them too
    return {"embeddings": np.array(z), "labels": np.array(y), "margins": margins}


def mesh_of(shape, names):
    return jax.make_mesh(shape, names, axis_types=(AxisType.Auto,) * len(names))


def sharded_batch():
    z, y, m = batch(size=64, ranks=5)
    where = jnp.arange(64) % 9 != 4
    return z, y, m, where


def close(got, want):
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-5, atol=1e-6)


ONE_AXIS = ((8,), ("data",), "data")
TWO_AXES = ((4, 2), ("a", "b"), ("a", "b"))


@pytest.mark.parametrize(
    "algorithm, shape, names, axis",
    [
        ("dense", *ONE_AXIS),
        ("sorted", *ONE_AXIS),
        pytest.param("dense", *TWO_AXES, marks=pytest.mark.slow),
        pytest.param("sorted", *TWO_AXES, marks=pytest.mark.slow),  # long to compile
    ],
)
def test_shard_map_gives_the_same(algorithm, shape, names, axis):
    z, y, m, where = sharded_batch()
    want = GRADIENTS[algorithm](z, y, m, where)
    mesh, data = mesh_of(shape, names), P(axis)

    def loss(z, m, y, where, reduction):
        return mmnp(
            z,
            y,
            m,
            reduction=reduction,
            where=where,
            algorithm=algorithm,
            axis_name=axis,
        )

    def outside(z, m, y, where, reduction):
        return jax.value_and_grad(
            jax.shard_map(
                lambda *a: loss(*a, reduction),
                mesh=mesh,
                in_specs=(data, P(), data, data),
                out_specs=P(),
            ),
            (0, 1),
        )(z, m, y, where)

    def inside(z, m, y, where, reduction):
        return jax.shard_map(
            lambda *a: jax.value_and_grad(loss, (0, 1))(*a, reduction),
            mesh=mesh,
            in_specs=(data, P(), data, data),
            out_specs=(P(), (data, P())),
        )(z, m, y, where)

    # One reduction for each way: "official" and "paper" differ in a factor an anchor.
    close(jax.jit(outside, static_argnums=4)(z, m, y, where, "mean"), want["mean"])
    close(
        jax.jit(inside, static_argnums=4)(z, m, y, where, "official"), want["official"]
    )


def test_kept_triplets_are_those_whose_hinge_is_0():
    z, y, m = batch(size=40, ranks=4, dim=3)
    z, y = np.array(z), np.where(np.array(y) == 2, 3, y)  # one rank is missing
    y[0] = 2  # and then a single sample
    got = count_kept(z, y, m)
    active = np.maximum(anchor_loop(z, y, m)[1], 0)
    positives, _ = counts(y)
    for boundary in range(3):
        across = (y[:, None] <= boundary) != (y[None, :] <= boundary)
        triplets = (positives[:, None] * across).sum()
        assert got.triplets[boundary] == triplets
        assert got.kept[boundary] == triplets - active[across].sum()
        assert 0 < got.kept[boundary] < triplets


def test_kept_triplets_leave_out_padding_over_devices_too():
    z, y, m = batch(size=40, ranks=4, dim=3)
    where = jnp.arange(40) % 5 > 0
    want = count_kept(z[where], y[where], m)
    assert 0 < want.kept.sum() < want.triplets.sum()
    spread = NamedSharding(mesh_of((4,), ("data",)), P("data"))
    split = jax.device_put((z, y, where), spread)
    for given_z, given_y, given_where in ((z, y, where), split):
        got = count_kept(given_z, given_y, m, where=given_where)
        jax.tree.map(np.testing.assert_array_equal, got, want)


def test_kept_triplets_of_some_anchors_are_a_part_of_all():
    z, y, m = batch(size=24, ranks=4, dim=3)
    turned = jnp.roll(jnp.arange(24), 12)
    halves = [count_kept(z[o], y[o], m, anchors=12) for o in (slice(None), turned)]
    both = jax.tree.map(jnp.add, *halves)
    jax.tree.map(np.testing.assert_array_equal, both, count_kept(z, y, m))


def test_auto_takes_the_form_that_is_fast_and_fits():
    for backend in ("cpu", "gpu"):
        limit = multi_margin.DENSE_UP_TO[backend]
        assert choose_algorithm(limit, backend) == "dense"
        assert choose_algorithm(limit + 1, backend) == "sorted"
    assert choose_algorithm(2, "a backend nobody has measured") == "sorted"
    assert choose_algorithm(2**14, "cpu") == "sorted"
    assert choose_algorithm(2**15, "cpu") == "blockwise"
    assert choose_algorithm(2**15, "tpu", anchors=2**9) == "sorted"
    assert choose_algorithm(2**18, "gpu", anchors=2**11) == "blockwise"


def test_auto_is_that_of_the_platform_a_program_is_for():
    z, y = jnp.ones((8, 4), jnp.float32), jnp.arange(8, dtype=jnp.int32) % 3
    m = jnp.ones(2, jnp.float32)
    traced = jax.jit(jax.value_and_grad(lambda z: mmnp(z, y, m))).trace(z)

    def has_loops(platform):
        text = traced.lower(lowering_platforms=(platform,)).as_text()
        return "stablehlo.while" in text  # of the binary search

    assert not has_loops("cpu") and not has_loops("cuda")
    assert has_loops("tpu")


# --- the form for very large batches ---


def uneven_batch(size):
    rng = np.random.default_rng(0)
    y = rng.choice(5, size, p=[0.5, 0.2, 0.15, 0.1, 0.05]).astype(np.int32)
    z = rng.normal(size=(size, 6)) + y[:, None]
    return z, y, rng.uniform(0.1, 0.4, 5 - 1), rng.uniform(size=size) < 0.9


@pytest.fixture
def small_blocks(monkeypatch):
    """24 anchors at a time."""
    monkeypatch.setattr(multi_margin, "_BLOCK", 0)
    monkeypatch.setattr(multi_margin, "_CPU_BLOCK", 0)
    monkeypatch.setattr(multi_margin, "_FEWEST", 24)


@pytest.mark.slow
def test_equals_the_other_forms_in_float64(small_blocks):
    given = uneven_batch(60)  # 24, 24 and 12 anchors
    with jax.enable_x64():
        found = {a: GRADIENTS[a](*given) for a in ("dense", "sorted", "blockwise")}
    for other in ("dense", "sorted"):
        for a, b in zip(
            jax.tree.leaves(found["blockwise"]),
            jax.tree.leaves(found[other]),
            strict=True,
        ):
            assert a.dtype == np.float64 and np.abs(b).max() > 1e-6
            np.testing.assert_allclose(a, b, rtol=1e-9, atol=1e-13)


def test_over_devices(small_blocks):
    z, y, m, where = uneven_batch(8 * 32)  # 24 and 8 anchors on each device
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


@pytest.mark.parametrize("algorithm, fits", [("blockwise", True), ("sorted", False)])
def test_never_holds_all_anchors_against_all_columns(algorithm, fits):
    size, shape = 2**15, jax.ShapeDtypeStruct
    loss = functools.partial(mmnp, algorithm=algorithm)
    program = jax.jit(jax.value_and_grad(loss, (0, 2)), compiler_options=QUICKLY).lower(
        shape((size, 8), jnp.float32),
        shape((size,), jnp.int32),
        shape((4,), jnp.float32),
    )
    memory = program.compile().memory_analysis()
    assert (memory.temp_size_in_bytes < 4 * size**2 / 8) == fits


def test_rows_are_sorted_alike_on_other_platforms():
    z, y, m, where = map(jnp.asarray, uneven_batch(150))
    unit = multi_margin.unit_vectors(jnp.asarray(z, jnp.float32))
    position = multi_margin.positions(m.astype(jnp.float32))
    index = jnp.arange(len(y), dtype=jnp.int32)
    order, spans = multi_margin._spans(y, index, y, where, 5)

    def counts(sort, sizes):
        return jax.jit(
            functools.partial(multi_margin._sized_counts, sort, 2**10, sizes),
            compiler_options=QUICKLY,
        )(unit, unit[order], position[y], position[y[order]], spans)

    ours = counts(multi_margin._bitonic_sort, 2)
    library = counts(functools.partial(jnp.sort, axis=1), 1)
    np.testing.assert_array_equal(ours[1], library[1])
    np.testing.assert_allclose(ours[0], library[0], rtol=1e-6)
