"""Losses: pure functions on arrays."""

from cloc_jax.losses.multi_margin import REDUCTIONS, Reduction, mmnp

__all__ = ["REDUCTIONS", "Reduction", "mmnp"]
