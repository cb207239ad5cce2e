"""Methods by name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from cloc_jax.methods.cloc import cloc
from cloc_jax.methods.dino import dino
from cloc_jax.methods.gol import gol
from cloc_jax.methods.interface import Method
from cloc_jax.methods.logit_methods import (
    cdw_ce,
    ce,
    clm,
    coral,
    corn,
    orcnn,
    orcu,
    slace,
    soft_labels,
    sord,
    squared_emd,
    weighted_kappa,
)
from cloc_jax.methods.mwr import mwr
from cloc_jax.methods.poe import poe
from cloc_jax.methods.pretraining import rnc, simclr, supcon

METHODS: dict[str, Callable[..., Method]] = {
    "cloc": cloc,
    "ce": ce,
    "orcnn": orcnn,
    "poe": poe,
    "gol": gol,
    "mwr": mwr,
    "rnc": rnc,
    "simclr": simclr,
    "supcon": supcon,
    "dino": dino,
    "coral": coral,
    "corn": corn,
    "sord": sord,
    "clm": clm,
    "soft_labels": soft_labels,
    "cdw_ce": cdw_ce,
    "squared_emd": squared_emd,
    "slace": slace,
    "weighted_kappa": weighted_kappa,
    "orcu": orcu,
}


def build(name: str, settings: Mapping[str, Any], shared: Mapping[str, Any]) -> Method:
    """The method called `name`.

    Args:
      name: one of METHODS.
      settings: its own, as `config.method.<name>` has them.
      shared: what methods may ask for by naming it in their signature: num_ranks, mesh,
        head (HeadOptions), limits (Limits), batch_size, is_encoder_frozen,
        boundary_weights (one number per boundary, or none for all alike).
    """
    if name not in METHODS:
        raise ValueError(
            f"method.name is {name!r}; this version has {', '.join(METHODS)}."
        )
    if shared.get("boundary_weights") and not takes(name, "boundary_weights"):
        having = [other for other in METHODS if takes(other, "boundary_weights")]
        raise ValueError(
            f"train.boundary_weights is set, but method {name} has no term per "
            f"boundary; leave it out, or use {', '.join(having)}."
        )
    own = {key: value for key, value in shared.items() if takes(name, key)}
    return METHODS[name](**settings, **own)


def takes(name: str, shared: str) -> bool:
    """Whether the method called `name` uses that one of the shared arguments."""
    return shared in inspect.signature(METHODS[name]).parameters
