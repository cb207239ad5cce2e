"""Losses: pure functions on arrays."""

from .contrastive import nt_xent, rnc, supcon
from .geometry import GolTerms, gol_terms
from .multi_margin import (
    ALGORITHMS,
    REDUCTIONS,
    choose_algorithm,
    kept_triplets,
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
from .ordinal_softmax import (
    KAPPA_PENALTIES,
    SOFT_LABELS,
    cdw_ce,
    orcu,
    slace,
    soft_cross_entropy,
    soft_labels,
    squared_emd,
    weighted_kappa,
)
from .probabilistic import PoeTerms, poe_terms
from .self_distillation import dino, dino_center
