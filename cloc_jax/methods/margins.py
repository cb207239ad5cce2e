"""Margins: one positive value for each boundary between neighbouring ranks.

A margin is learnable, fixed at a value, or learnable above a floor; all boundaries may
share one value. What a person writes (`method.cloc.margins`) becomes a list of
`Margin`, and that list becomes the NNX module which the optimizer sees.
"""

import math
import numbers
import re
from collections.abc import Sequence
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

_LEARN = re.compile(r"\s*(learn|shared)\s*(?:=\s*([^>=\s]+))?\s*(?:>=\s*(\S+))?\s*")
_HOW_TO = (
    'Write "learn" (one learnable value per boundary), "shared" (one for all), a '
    'number (fixed for all), or a list with one entry per boundary, each "learn", '
    '"learn=0.7" (start), "learn>=0.2" (floor), "learn=0.7>=0.2", or a number.'
)


class Margin(NamedTuple):
    """One boundary's margin as asked for."""

    kind: str  # "learned", "floored" or "fixed"
    value: float | None  # fixed: the value; learned: the start, None to draw it
    floor: float = 0.0


class Constant(nnx.Variable):
    """An array that belongs to the model but is never trained."""


FORMS = ("softplus", "relu")


class Margins(nnx.Module):
    """The margins of a model: `where(fixed, value, floor + softplus(theta))`.

    Fixed and learned margins share the leaf `theta`, which the optimizer cannot split,
    so a fixed one ignores its entry and gets gradient 0. With one `Margin` for several
    boundaries the value is shared.

    Args:
      margins: one per boundary, or one for all.
      num_boundaries: between neighbouring ranks.
      start: range of start values.
      form: "softplus" stays above the floor; "relu" can get stuck on it.
      budget: above 0, the sum that all margins are scaled to.
    """

    def __init__(
        self,
        margins: Sequence[Margin],
        num_boundaries: int,
        *,
        start: tuple[float, float] = (0.5, 1.0),
        form: str = "softplus",
        budget: float = 0.0,
        rngs: nnx.Rngs,
    ):
        draws = jax.random.uniform(rngs.params(), (len(margins),), jnp.float32)
        low = np.array([_lowest_start(m, start) for m in margins])
        given = np.array([math.nan if m.value is None else m.value for m in margins])
        floor = np.array([m.floor for m in margins])
        fixed = np.array([m.kind == "fixed" for m in margins])
        drawn = jnp.asarray(low, jnp.float32) + draws * (
            jnp.asarray(start[1] - low, jnp.float32)
        )
        above = jnp.where(
            np.isnan(given), drawn - floor, np.nan_to_num(given) - floor
        ).astype(jnp.float32)
        self.theta = nnx.Param(above if form == "relu" else inverse_softplus(above))
        self.fixed = Constant(jnp.asarray(fixed))
        self.value = Constant(jnp.asarray(np.where(fixed, given, 1), jnp.float32))
        self.floor = Constant(jnp.asarray(floor, jnp.float32))
        self.num_boundaries = num_boundaries
        self.form, self.budget = form, budget

    def __call__(self) -> Float[Array, "boundaries"]:
        above = getattr(jax.nn, self.form)(self.theta[...])
        values = jnp.where(self.fixed[...], self.value[...], self.floor[...] + above)
        values = jnp.broadcast_to(values, (self.num_boundaries,))
        return values * (self.budget / values.sum()) if self.budget else values


def inverse_softplus(value: Float[Array, "..."]) -> Float[Array, "..."]:
    """theta with softplus(theta) = value, exact for small and large values alike."""
    return value + jnp.log(-jnp.expm1(-value))


def parse(
    spec: object,
    num_boundaries: int,
    *,
    floor: float = 0.0,
    start: tuple[float, float] = (0.5, 1.0),
) -> list[Margin]:
    """Margins as a person writes them; one entry when the value is shared, else one
    per boundary.

    Args:
      spec: "learn", "shared", a number, or a list with one entry per boundary.
      floor: the paper's rho, for every learnable margin that names no floor.
      start: range of the drawn start values.
    """
    low, high = start
    if not 0 < low < high < math.inf:
        raise ValueError(
            f"method.cloc.margin_start is {tuple(start)}; it is the range of start "
            "values and needs 0 < low < high, such as (0.5, 1.0)."
        )
    if not 0 <= floor < math.inf:
        raise ValueError(
            f"method.cloc.rho is {floor}; it is a floor and must be 0 or more."
        )
    if isinstance(spec, list | tuple):
        if len(spec) != num_boundaries:
            raise ValueError(
                f"method.cloc.margins has {len(spec)} entries, but "
                f"{num_boundaries + 1} ranks have {num_boundaries} boundaries. "
                f"{_HOW_TO}"
            )
        entries = [_parse_one(e, floor, f"[{i}]") for i, e in enumerate(spec)]
        if any(isinstance(e, str) and e.strip().startswith("shared") for e in spec):
            raise ValueError(
                f'method.cloc.margins is {list(spec)}; "shared" stands alone. {_HOW_TO}'
            )
    else:
        one = _parse_one(spec, floor, "")
        is_shared = isinstance(spec, str) and spec.strip().startswith("shared")
        entries = [one] if is_shared else [one] * num_boundaries
    for entry in entries:
        _lowest_start(entry, start)
    return entries


def _parse_one(entry: object, floor: float, index: str) -> Margin:
    name = f"method.cloc.margins{index}"
    match = _LEARN.fullmatch(entry) if isinstance(entry, str) else None
    if match:
        given = None if match[2] is None else _number(match[2], name)
        least = floor if match[3] is None else _number(match[3], name, least=0.0)
        if given is not None and given <= least:
            raise ValueError(
                f"{name} is {entry!r}: the start {given:g} is not above the floor "
                f"{least:g}; start higher or lower the floor."
            )
        return Margin("floored" if least else "learned", given, least)
    value = _number(entry, name)
    return Margin("fixed", value, 0.0)


def _number(text: object, name: str, least: float = math.ulp(0.0)) -> float:
    try:
        if isinstance(text, bool) or not isinstance(text, str | numbers.Real):
            raise ValueError
        value = float(text)
    except ValueError:
        raise ValueError(
            f"{name} has {text!r}, which is not a margin. {_HOW_TO}"
        ) from (None)
    if not least <= value < math.inf:
        raise ValueError(
            f"{name} has {value:g}; a margin or its floor must be a positive, finite "
            "number. A margin of 0 would merge two ranks; for almost none use 0.01."
        )
    return value


def _lowest_start(entry: Margin, start: tuple[float, float]) -> float:
    """Lower end of the range from which this margin's start is drawn."""
    if entry.kind == "fixed" or entry.value is not None:
        return start[0]
    low = max(start[0], entry.floor + 0.01)  # softplus only nears its floor
    if low >= start[1]:
        raise ValueError(
            f"a margin with floor {entry.floor:g} cannot start in "
            f"[{start[0]:g}, {start[1]:g}): give it a start, such as "
            f'"learn={entry.floor + 0.5:g}>={entry.floor:g}", or raise '
            "method.cloc.margin_start."
        )
    return low
