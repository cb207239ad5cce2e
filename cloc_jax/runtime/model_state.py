"""A model as plain arrays: objects inside compiled functions, arrays outside them."""

from collections.abc import Callable
from typing import Any, NamedTuple

import jax
from flax import nnx


class ModelState(NamedTuple):
    """All arrays of a model."""

    params: nnx.State  # what optimizers train
    rest: nnx.State  # batch statistics and other variables


def split(model: nnx.Module) -> tuple[nnx.GraphDef, ModelState]:
    """A model's structure and its arrays."""
    parts: Any = nnx.split(model, nnx.Param, ...)
    graph, params, rest = parts
    return graph, ModelState(params, rest)


def evaluating(graph: nnx.GraphDef, state: ModelState) -> Any:
    """The model with its batch norms and dropouts in evaluation mode."""
    return nnx.view(
        merge(graph, state),
        use_running_average=True,
        deterministic=True,
        raise_if_not_found=False,
    )


def merge(graph: nnx.GraphDef, state: ModelState) -> Any:
    """The model again, with variables of its own.

    A copy, since batch statistics may change within the trace of a gradient.
    """
    return nnx.merge(graph, *state, copy=True)


def compiled(make: Callable[..., nnx.Module]) -> Callable[..., Any]:
    """A function that makes a model, compiled as a whole but with little care.

    It runs once, so compiling it matters more than its speed: drawing each layer's
    weights is long code. The numbers are the same to the bit.
    """
    on_cpu = jax.default_backend() == "cpu"
    options: dict[str, Any] = {"xla_backend_optimization_level": 1} if on_cpu else {}
    arrays = jax.jit(lambda *given: split(make(*given)), compiler_options=options)
    return lambda *given: merge(*arrays(*given))
