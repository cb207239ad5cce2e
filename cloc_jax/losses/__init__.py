"""Losses: pure functions on arrays."""

from .binary_tasks import above_from_conditionals, coral, corn, ordinal_binary
from .contrastive import nt_xent, supcon
from .geometric_order import GolTerms, gol_terms
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
    positions,
    unit_vectors,
)
from .probabilistic import PoeTerms, poe_terms
from .rank_n_contrast import rnc
from .self_distillation import dino, dino_center
from .soft_labels import sord
from .thresholds import cumulative_link
from .violations import Violations, violations

__all__ = [
    "ALGORITHMS",
    "DENSE_UP_TO",
    "REDUCTIONS",
    "Algorithm",
    "GolTerms",
    "HingeSums",
    "PoeTerms",
    "Reduction",
    "Violations",
    "above_from_conditionals",
    "active_triplets",
    "choose_algorithm",
    "coral",
    "corn",
    "cumulative_link",
    "dino",
    "dino_center",
    "gol_terms",
    "hinge_sums",
    "hinge_sums_of",
    "mmnp",
    "nt_xent",
    "ordinal_binary",
    "poe_terms",
    "positions",
    "rnc",
    "sord",
    "supcon",
    "unit_vectors",
    "violations",
]
