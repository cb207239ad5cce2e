"""Methods by name."""

import inspect
from collections.abc import Callable, Mapping
from typing import Any

from cloc_jax.methods import cloc, dino, gol, logit_methods, mwr, poe, pretraining
from cloc_jax.methods.interface import Method

METHODS: dict[str, Callable[..., Method]] = {
    "cloc": cloc.cloc,
    "ce": logit_methods.ce,
    "orcnn": logit_methods.orcnn,
    "poe": poe.poe,
    "gol": gol.gol,
    "mwr": mwr.mwr,
    "rnc": pretraining.rnc,
    "simclr": pretraining.simclr,
    "supcon": pretraining.supcon,
    "dino": dino.dino,
    "coral": logit_methods.coral,
    "corn": logit_methods.corn,
    "sord": logit_methods.sord,
    "clm": logit_methods.clm,
    "soft_labels": logit_methods.soft_labels,
    "cdw_ce": logit_methods.cdw_ce,
    "squared_emd": logit_methods.squared_emd,
    "slace": logit_methods.slace,
    "weighted_kappa": logit_methods.weighted_kappa,
    "orcu": logit_methods.orcu,
}


def build(name: str, settings: Mapping[str, Any], shared: Mapping[str, Any]) -> Method:
    """The method called `name`.

    `settings` are as `config.method.<name>` has them. `shared` is what methods may ask
    for by naming it in their signature: num_ranks, mesh, head, limits, batch_size,
    is_encoder_frozen, boundary_weights (one number per boundary, or none).
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
