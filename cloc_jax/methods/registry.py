"""Methods by name."""

from collections.abc import Callable, Mapping
from typing import Any

from cloc_jax.methods import cloc, dino, gol, logit_methods, mwr, poe, pretraining
from cloc_jax.methods.interface import Method, Task

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


WITH_BOUNDARIES = ("orcnn", "coral", "corn")  # whose losses have a term for each


def build(name: str, settings: Mapping[str, Any], task: Task) -> Method:
    """The method called `name`, with settings as `config.method.<name>` has them."""
    if name not in METHODS:
        raise ValueError(
            f"method.name is {name!r}; this version has {', '.join(METHODS)}."
        )
    if task.boundary_weights and name not in WITH_BOUNDARIES:
        raise ValueError(
            f"train.boundary_weights is set, but method {name} has no term per "
            f"boundary; leave it out, or use {', '.join(WITH_BOUNDARIES)}."
        )
    return METHODS[name](task, **settings)
