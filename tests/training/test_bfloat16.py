"""An encoder in bfloat16: the loss stays exact."""

import pytest
from jax.extend import core
from tiny_runs import KEY, stage_parts, tiny


def equations(jaxpr, is_inside=False):
    """All equations with whether they are within the scope of the loss."""
    for equation in jaxpr.eqns:
        inside = is_inside or "mmnp" in str(equation.source_info.name_stack)
        yield equation, inside
        for value in equation.params.values():
            for inner in value if isinstance(value, tuple | list) else [value]:
                if isinstance(inner, core.ClosedJaxpr):
                    yield from equations(inner.jaxpr, inside)
                elif isinstance(inner, core.Jaxpr):
                    yield from equations(inner, inside)


def dtypes(equation):
    return {str(v.aval.dtype) for v in (*equation.invars, *equation.outvars)}


@pytest.mark.parametrize(
    "algorithm", ["sorted", pytest.param("dense", marks=pytest.mark.slow)]
)
def test_the_encoder_is_in_bfloat16_and_the_loss_is_not(algorithm):
    config = tiny(
        encoder__dtype="bfloat16",
        method__cloc__algorithm=algorithm,
        mesh__devices=2,
    )
    step, carry, batch, _, _ = stage_parts(config)
    found = list(equations(step.trace(carry, batch, KEY).jaxpr.jaxpr))
    convolutions = [e for e, _ in found if e.primitive.name == "conv_general_dilated"]
    assert len(convolutions) >= 3 * 9 - 1  # forward, and two gradients of all but one
    assert all(dtypes(e) == {"bfloat16"} for e in convolutions)
    of_loss = [e for e, inside in found if inside]
    products = [e for e in of_loss if e.primitive.name == "dot_general"]
    assert len(products) >= 3  # similarities and the gradients of both sides
    assert all(dtypes(e) == {"float32"} for e in products)
    assert not [e for e in of_loss if "bfloat16" in dtypes(e)]
