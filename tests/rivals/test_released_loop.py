"""The rivals' losses compute what ours do."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from golden_losses import CASES

from cloc_jax import losses

torch = pytest.importorskip("torch", reason="the optional extra `parity`")
from rivals import released_loop  # noqa: E402


@pytest.mark.parametrize("case", CASES)
def test_the_released_loop_equals_the_golden_values(case):
    z = torch.tensor(case["z"], dtype=torch.float64, requires_grad=True)
    value = released_loop.mmnp_by_columns(
        z, torch.tensor(case["y"]).long(), torch.tensor(case["margins"])
    )
    value.backward()
    np.testing.assert_allclose(value.item(), case["official"], rtol=1e-10, atol=1e-14)
    np.testing.assert_allclose(z.grad, case["grad_z"], rtol=1e-8, atol=1e-12)


def test_the_loop_of_rnc_equals_the_loss():
    rng = np.random.default_rng(0)
    features, labels = rng.normal(size=(6, 2, 5)), np.asarray([0, 3, 1, 1, 2, 0])
    z = torch.tensor(features, requires_grad=True)
    value = released_loop.rnc_by_columns(z, torch.tensor(labels), 2.0)
    value.backward()
    with jax.enable_x64(True):
        ours, slope = jax.value_and_grad(losses.rnc)(
            jnp.asarray(features), jnp.asarray(labels), temperature=2.0
        )
    np.testing.assert_allclose(value.item(), ours, rtol=1e-12)
    np.testing.assert_allclose(z.grad, slope, rtol=1e-9, atol=1e-14)
