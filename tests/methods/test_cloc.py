"""Margins: what is asked for, what it becomes, and what is refused."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from flax import nnx

from cloc_jax.methods import heads
from cloc_jax.methods.cloc import Margin, Margins, parse


def made(spec, seed=0, **options):
    return Margins(parse(spec, 4), 4, rngs=nnx.Rngs(seed), **options)


def test_learned_margins_start_uniform_between_a_half_and_one():
    values = np.concatenate([np.asarray(made("learn", seed=s)()) for s in range(200)])
    assert 0.5 <= values.min() < 0.51 and 0.99 < values.max() < 1 + 1e-6
    assert abs(values.mean() - 0.75) < 0.02


def test_mixed_list():
    spec = ["learn", 0.8, "learn=0.7", "learn=0.9>=0.2"]
    module = made(spec)
    values = module()
    assert values[1] == jnp.float32(0.8)  # to the bit
    np.testing.assert_allclose(values[2:], [0.7, 0.9], rtol=1e-6)
    assert [m.kind for m in parse(spec, 4)] == [
        "learned",
        "fixed",
        "learned",
        "floored",
    ]
    gradient = nnx.grad(lambda m: m().sum())(module)
    theta = gradient["theta"][...]
    assert theta[1] == 0 and (np.asarray(theta)[[0, 2, 3]] > 0).all()


def test_shared_is_one_parameter_for_all_boundaries():
    module = made("shared=0.6")
    assert module.theta[...].shape == (1,)
    np.testing.assert_allclose(module(), np.full(4, 0.6), rtol=1e-6)


def test_a_number_fixes_all():
    assert parse(0.5, 3) == [Margin("fixed", 0.5)] * 3
    assert (made(0.5)() == jnp.float32(0.5)).all()


def test_floor_is_never_passed():
    module = made("learn>=0.4", seed=3)
    assert (module() > 0.4).all()
    module.theta[...] = jnp.full(4, -30.0, jnp.float32)
    np.testing.assert_allclose(module(), np.full(4, 0.4), atol=1e-6)


def test_rho_is_the_floor_of_those_that_name_none():
    kinds = parse(["learn", "learn>=0.3", 0.1, "learn>=0"], 4, floor=0.2)
    assert [m.floor for m in kinds] == [0.2, 0.3, 0.0, 0.0]


@pytest.mark.parametrize("value", [1e-6, 1e-3, 0.5, 1.0, 20.0, 90.0])
def test_inverse_softplus_is_exact(value):
    theta = heads.inverse_softplus(jnp.asarray([value], jnp.float32))
    np.testing.assert_allclose(jax.nn.softplus(theta), [value], rtol=1e-6)


@pytest.mark.parametrize(
    "spec, message",
    [
        (0, "positive, finite"),
        (float("nan"), "has nan"),
        (["learn", 0.0, "learn", "learn"], r"method.cloc.margins\[1\] has 0"),
        (["learn"] * 3, "3 entries, but 5 ranks have 4 boundaries"),
        ("learnt", "'learnt', not a margin"),
        ("learn=0.1>=0.2", "start 0.1 is not above the floor 0.2"),
        ("learn>=1.0", "cannot start in"),
        (["shared", 0.2, 0.2, 0.2], r"margins\[0\] has 'shared', not"),
        ({"start": (1.0, 0.5)}, "method.cloc.margin_start"),
        ({"floor": -0.1}, "method.cloc.rho is -0.1"),
    ],
)
def test_refused(spec, message):
    options = spec if isinstance(spec, dict) else {}
    with pytest.raises(ValueError, match=message):
        parse("learn" if options else spec, 4, **options)


def test_a_budget_scales_learned_margins_and_no_others():
    module = made([1.0, 3.0, "learn=2", "learn=6"], budget=2.0)
    # Two of four are learned: half of the budget is theirs.
    np.testing.assert_allclose(module(), [1.0, 3.0, 0.25, 0.75], rtol=1e-6)
    module.theta[...] = jnp.array([0, 0, -20, -21], jnp.float32)  # what one loses …
    assert float(module()[2:].sum()) == pytest.approx(1)
    np.testing.assert_array_equal(module()[:2], [1, 3])
    gradient = nnx.grad(lambda m: m().sum())(made("learn", budget=2.0))
    np.testing.assert_allclose(gradient["theta"][...], 0, atol=1e-6)
    np.testing.assert_allclose(made("shared", budget=2.0)(), [0.5] * 4)
    np.testing.assert_array_equal(made(0.3, budget=2.0)(), np.float32([0.3] * 4))


def test_relu_margins_reach_zero_and_stay_there():
    module = made("learn=0.3", form="relu")
    np.testing.assert_allclose(module(), np.full(4, 0.3), rtol=1e-6)
    module.theta[...] = jnp.full(4, -0.1, jnp.float32)
    assert (module() == 0).all()
    gradient = nnx.grad(lambda m: m().sum())(module)
    assert (gradient["theta"][...] == 0).all()
