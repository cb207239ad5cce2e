"""What every loss must do: finite values, no part for padding, any devices, types."""

import functools

import loss_checks
import numpy as np
import pytest
import test_contrastive
import test_geometry
import test_multi_margin
import test_ordinal_heads
import test_ordinal_softmax
import test_probabilistic
import test_self_distillation


def named(module):
    """The losses of a module whose batch depends on which it is."""
    return {
        name: (loss, functools.partial(module.batch, name))
        for name, loss in module.LOSSES.items()
    }


CASES = {
    **{
        f"mmnp {form}": (loss, test_multi_margin.named_batch)
        for form, loss in test_multi_margin.LOSSES.items()
    },
    **named(test_contrastive),
    **named(test_ordinal_heads),
    **named(test_ordinal_softmax),
    "dino": (test_self_distillation.LOSS, test_self_distillation.batch),
    "poe": (test_probabilistic.ALL, test_probabilistic.batch),
    "rnc": (test_contrastive.RNC, test_contrastive.rnc_batch),
}
every = pytest.mark.parametrize("name", CASES)


def slow(values, *rare):
    """Parameters of which the last ones are for slow runs: each is compiled anew."""
    return [*values, *(pytest.param(value, marks=pytest.mark.slow) for value in rare)]


@every
@pytest.mark.parametrize(
    "kind", slow(loss_checks.DEGENERATE[:-2], *loss_checks.DEGENERATE[-2:])
)
def test_degenerate_batches_are_finite(name, kind):
    loss, batch = CASES[name]
    batch = batch()
    if (name, kind) == ("poe", "large"):  # 1e3 is no logarithm of a variance
        batch["log_variance"] /= 100
    _, gradients = loss_checks.check_degenerate(loss, batch, kind)
    if kind == "zero" and "features" in gradients:  # which have no direction
        assert not gradients["features"].any()


@every
@pytest.mark.parametrize("check", slow(["padding", "empty", "devices"], "bfloat16"))
def test_batches(name, check):
    loss, batch = CASES[name]
    getattr(loss_checks, f"check_{check}")(loss, batch())


LABELLED = {
    name: case for name, case in CASES.items() if name not in ("nt_xent", "dino")
}
LABELLED["gol"] = (
    test_geometry.LOSSES[1],
    functools.partial(test_geometry.batch, pairs=300),
)


# Whose loops in float64 are fast enough for more items than a byte counts.
LOOPS = {
    **{
        name: lambda b: test_multi_margin.oracle(*b.values())[0]
        for name in CASES
        if "mmnp" in name
    },
    "rnc": test_contrastive.rnc_oracle,
    "supcon": test_contrastive.supcon_oracle,
    **{
        name: functools.partial(test_ordinal_heads.binary_oracle, name=name)
        for name in ("ordinal_binary", "coral", "corn")
    },
    **{
        name: functools.partial(test_ordinal_softmax.oracle, name=name)
        for name in test_ordinal_softmax.LOSSES
    },
}


@pytest.mark.parametrize("name", LABELLED)
@pytest.mark.parametrize("kind", slow(["uint8"], "int8"))
def test_labels_of_any_type(name, kind):
    loss, make = LABELLED[name]
    batch = make(size=300)
    value = loss_checks.check_label_types(loss, batch, kind)
    if name in LOOPS:
        np.testing.assert_allclose(value, LOOPS[name](batch), rtol=1e-5)
