"""Losses: pure functions on arrays."""

from .multi_margin import (
    ALGORITHMS,
    DENSE_UP_TO,
    REDUCTIONS,
    Algorithm,
    HingeSums,
    Reduction,
    active_triplets,
    choose_algorithm,
    hinge_sums,
    hinge_sums_of,
    mmnp,
    unit_vectors,
)
from .violations import Violations, violations

__all__ = [
    "ALGORITHMS",
    "DENSE_UP_TO",
    "REDUCTIONS",
    "Algorithm",
    "HingeSums",
    "Reduction",
    "Violations",
    "active_triplets",
    "choose_algorithm",
    "hinge_sums",
    "hinge_sums_of",
    "mmnp",
    "unit_vectors",
    "violations",
]
