"""What every loss must do, for the tests of each: oracles, padding, devices."""

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding
from jax.sharding import PartitionSpec as P

DEGENERATE = (
    "one rank",
    "lone ranks",
    "identical",
    "zero",
    "large",
    "one sample",
    "no sample",
)


# For jax.jit: compiles in half the time, as there are many losses and shapes.
QUICKLY = {"xla_backend_optimization_level": 0}


class Loss:
    """Value and gradients of a loss of named arrays, compiled once for every shape.

    Args:
      function: takes the arrays by name, and where.
      axes: the axis of the batch where it is not 0; None for an array without one.
      constants: names of the arrays without gradients.
    """

    def __init__(self, function, axes=(), constants=("labels",)):
        self.axes, self.constants = dict(axes), constants

        def results(varied, fixed, where):
            return jax.value_and_grad(lambda v: function(v | fixed, where))(varied)

        self.results = jax.jit(results, compiler_options=QUICKLY)

    def __call__(self, batch, where=None):
        varied = {k: v for k, v in batch.items() if k not in self.constants}
        fixed = {k: v for k, v in batch.items() if k in self.constants}
        return self.results(varied, fixed, where)

    def axis(self, name):
        return self.axes.get(name, 0)

    def rows(self, batch):
        """The arrays that have the batch as an axis."""
        return {k: v for k, v in batch.items() if self.axis(k) is not None}

    def size(self, batch):
        name, array = next(iter(self.rows(batch).items()))
        return array.shape[self.axis(name)]


def cast(batch, dtype):
    return {
        k: v.astype(dtype if jnp.issubdtype(v.dtype, jnp.floating) else np.int32)
        for k, v in batch.items()
    }


def assert_close(got, want, tolerance):
    """Trees of arrays, each to a tolerance relative to its largest element."""
    assert jax.tree.structure(got) == jax.tree.structure(want)
    for a, b in zip(*map(jax.tree.leaves, (got, want)), strict=True):
        scale = max(np.abs(b).max(initial=0), 1e-2)
        np.testing.assert_allclose(a, b, rtol=0, atol=tolerance * scale)


def numeric_gradient(function, batch, name, step=1e-5):
    """Central differences of a function of named arrays."""
    gradient = np.zeros(batch[name].shape)
    for index in np.ndindex(*gradient.shape):
        sides = []
        for sign in (1, -1):
            moved = batch[name].copy()
            moved[index] += sign * step
            sides.append(function(batch | {name: moved}))
        gradient[index] = (sides[0] - sides[1]) / (2 * step)
    return gradient


def check_oracle(loss, oracle, batch):
    """A slow form in float64: the same value, and gradients by its differences."""
    with jax.enable_x64():
        value, gradients = loss(batch)
        assert {value.dtype, *(g.dtype for g in gradients.values())} == {
            np.dtype(np.float64)
        }
    np.testing.assert_allclose(value, oracle(batch), rtol=1e-12)
    for name, gradient in gradients.items():
        assert_close(gradient, numeric_gradient(oracle, batch, name), 1e-7)


def check_golden(
    function, batch, value, gradients, constants=("labels",), tolerance=1e-10
):
    """Values and gradients of released code, in float64."""
    loss = Loss(lambda b, _: function(b), constants=constants)
    with jax.enable_x64():
        assert_close(loss(batch), (value, gradients), tolerance)


def degenerate(loss, batch, kind):
    """The batch made degenerate, and its mask."""
    size = loss.size(batch)
    where = np.ones(size, bool)
    batch = dict(batch)
    if kind == "one rank" and "labels" in batch:
        batch["labels"] = np.full_like(batch["labels"], 1)
    elif kind == "lone ranks" and "labels" in batch:
        batch["labels"] = np.arange(size).astype(batch["labels"].dtype)
    elif kind in ("identical", "zero", "large"):
        for name, array in loss.rows(batch).items():
            if name not in loss.constants:
                row = np.take(array, [0], axis=loss.axis(name))
                batch[name] = {
                    "identical": np.broadcast_to(row, array.shape),
                    "zero": np.zeros_like(array),
                    "large": array * np.asarray(1e3, array.dtype),
                }[kind]
    elif kind == "one sample":
        where[1:] = False
    elif kind == "no sample":
        where[:] = False
    return batch, where


def check_degenerate(loss, batch, kind):
    """Finite values and gradients in float32; 0 without samples."""
    results = loss(*degenerate(loss, cast(batch, np.float32), kind))
    for array in jax.tree.leaves(results):
        assert array.dtype == np.float32
        assert np.isfinite(array).all()
        assert kind != "no sample" or not array.any()
    return results


def check_empty(loss, batch):
    """0, and so are the gradients of what has no batch."""
    empty = dict(batch)
    for name, array in loss.rows(batch).items():
        empty[name] = np.take(array, [], axis=loss.axis(name))
    for array in jax.tree.leaves(loss(cast(empty, np.float32))):
        assert not array.any()


def check_padding(loss, batch):
    """Rows that are masked change nothing, and have gradients of 0."""
    batch = cast(batch, np.float32)
    value, gradients = loss(batch)
    size = loss.size(batch)
    places = [0, 2, 2, size]
    where = np.insert(np.ones(size, bool), places, False)
    for garbage in (1e30, -3e4, np.inf, np.nan):
        padded = dict(batch)
        for name, array in loss.rows(batch).items():
            junk = garbage if array.dtype == np.float32 else 10**6
            padded[name] = np.insert(array, places, junk, axis=loss.axis(name))
        got, found = loss(padded, where)
        kept = {}
        for name, gradient in found.items():
            axis = loss.axis(name)
            kept[name] = gradient
            if axis is not None:
                kept[name] = np.compress(where, gradient, axis=axis)
                assert not np.compress(~where, gradient, axis=axis).any()
        assert_close((got, kept), (value, gradients), 2e-6)


def check_devices(loss, batch):
    """A batch over 8 devices gives what it gives on one."""
    batch = cast(batch, np.float32)
    where = np.arange(loss.size(batch)) % 5 != 3
    want = loss(batch, where)
    mesh = jax.make_mesh((8,), ("data",), axis_types=(AxisType.Auto,))
    spread = {
        name: jax.device_put(
            array, NamedSharding(mesh, P(*[None] * loss.axis(name), "data"))
        )
        for name, array in loss.rows(batch).items()
    }
    where = jax.device_put(where, NamedSharding(mesh, P("data")))
    assert all(len(a.sharding.device_set) == 8 for a in spread.values())
    assert_close(loss(batch | spread, where), want, 2e-6)


def check_label_types(loss, batch, kind):
    """The results of whole numbers of a type that wraps around; their value."""
    # Of gol the pairs too, where the type can count them.
    of_kind = {
        name: batch[name].astype(kind)
        for name in loss.constants
        if batch[name].max() <= np.iinfo(kind).max
    }
    with jax.enable_x64():
        want = loss(batch)
        assert_close(loss(batch | of_kind), want, 1e-12)
    return want[0]


def check_bfloat16(loss, batch):
    """Computed in float32: as with the same values in float32."""
    half = cast(batch, jnp.bfloat16)
    value, gradients = loss(half)
    assert value.dtype == np.float32
    assert {g.dtype for g in gradients.values()} == {np.dtype(jnp.bfloat16)}
    full = {k: v.astype(np.float32) for k, v in half.items() if k not in loss.constants}
    np.testing.assert_allclose(value, loss(half | full)[0], rtol=1e-5)
