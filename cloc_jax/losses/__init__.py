"""Losses: pure functions on arrays."""

from .contrastive import nt_xent, rnc, supcon
from .geometry import GolTerms, gol_terms
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
from .ordinal_heads import (
    above_from_conditionals,
    coral,
    corn,
    cumulative_link,
    ordinal_binary,
)
from .probabilistic import PoeTerms, poe_terms
from .self_distillation import dino, dino_center
from .soft_labels import sord
from .violations import Violations, violations
