"""The rival's loss computes what ours does."""

import numpy as np
import pytest
from golden_losses import CASES

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
