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
