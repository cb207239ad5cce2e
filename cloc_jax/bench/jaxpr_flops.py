"""Operations of the matrix products and convolutions of a program, before compiling.

For compilers that do not say how many there are, as those for GPUs.
"""

import math
from typing import Any

from jax.extend import core


def count(jaxpr: Any, platform: str) -> float:
    """Operations of all devices together, where the program is lowered for `platform`.

    Loops whose number of rounds is not known count once, of branches the largest one.
    Convolutions count zeros that padding and strides put in.
    """
    return math.fsum(_of_equation(e, platform) for e in _open(jaxpr).eqns)


def _open(jaxpr: Any) -> Any:
    return jaxpr.jaxpr if isinstance(jaxpr, core.ClosedJaxpr) else jaxpr


def _of_equation(equation: Any, platform: str) -> float:
    name, settings = equation.primitive.name, equation.params
    if name == "dot_general":
        (contracted, _), _ = settings["dimension_numbers"]
        shape = equation.invars[0].aval.shape
        inner = math.prod(shape[axis] for axis in contracted)
        return 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
    if name == "conv_general_dilated":
        kernel = equation.invars[1].aval.shape
        outputs, *others = settings["dimension_numbers"].rhs_spec
        inner = math.prod(kernel[axis] for axis in others)
        return 2.0 * inner * math.prod(equation.outvars[0].aval.shape)
    if name == "cond":
        branches = [count(b, platform) for b in settings["branches"]]
        for platforms, found in zip(
            settings.get("branches_platforms") or (), branches, strict=False
        ):
            if platforms is None or platform in platforms:
                return found
        return max(branches)
    inside = [
        inner
        for value in settings.values()
        for inner in (value if isinstance(value, tuple | list) else [value])
        if isinstance(inner, core.ClosedJaxpr | core.Jaxpr)
    ]
    times = settings.get("length", 1) if name == "scan" else 1
    if name == "shard_map":
        times = settings["mesh"].size  # its shapes are those of a device
    return float(times * sum(count(inner, platform) for inner in inside))
