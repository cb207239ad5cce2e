"""CLOC: cross-entropy plus the multi-margin n-pair loss, in two phases.

Phase one ("joint") trains network and margins until the training data are nearly
learned; phase two ("refine") freezes the margins and trains the network until
validation stops improving.
"""

import functools
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax.sharding import Mesh

from cloc_jax import losses
from cloc_jax.encoders import Encoder
from cloc_jax.methods import heads, stop_rules
from cloc_jax.methods.interface import (
    NETWORK,
    UNDECAYED,
    Method,
    Readout,
    Stage,
)
from cloc_jax.methods.margins import FORMS, Margins, parse
from cloc_jax.runtime import sharding

MARGINS = "margins"  # the parameter group


class Contrasted(heads.Network):
    """A network with margins between its ranks."""

    def __init__(self, encoder: Encoder, head: heads.Head, margins: Margins):
        super().__init__(encoder, head)
        self.margins = margins


def cloc(
    *,
    num_ranks: int,
    mesh: Mesh,
    head: heads.HeadOptions,
    limits: stop_rules.Limits,
    is_encoder_frozen: bool,
    stop_accuracy: float,
    phases: int,
    phase_two_init: str,
    margins: object,
    rho: float,
    margin_start: tuple[float, float],
    margin_form: str,
    margin_budget: float,
    weight: float,
    reduction: str,
    algorithm: str,
    contrast: str,
    margin_optimizer: str,
    margin_learning_rate: float | None,
) -> Method:
    """The paper's method; see `cloc_jax/config.py` for what each setting means."""
    boundaries = num_ranks - 1
    entries = parse(margins, boundaries, floor=rho, start=margin_start)
    if weight < 0:
        raise ValueError(f"method.cloc.weight is {weight}; it must be 0 or more.")
    for name, value, choices in (
        ("method.cloc.contrast", contrast, heads.CONTRASTS),
        ("method.cloc.reduction", reduction, losses.REDUCTIONS),
        ("method.cloc.algorithm", algorithm, losses.ALGORITHMS),
        ("method.cloc.margin_form", margin_form, FORMS),
        ("method.cloc.phase_two_init", phase_two_init, ("phase_one", "pretrained")),
    ):
        if value not in choices:
            raise ValueError(f"{name} is {value!r}; use one of {', '.join(choices)}.")
    if phases not in (1, 2):
        raise ValueError(f"method.cloc.phases is {phases}; use 1 or 2.")
    if margin_budget < 0:
        raise ValueError(
            f"method.cloc.margin_budget is {margin_budget}; it is the sum of all "
            "margins, such as 1, or 0 for none."
        )
    if head.classifier == "cosine" and contrast == "hidden":
        raise ValueError(
            "method.cloc.contrast is hidden, but a cosine classifier has no hidden "
            "layer; use embedding or logits, or head.classifier=layers."
        )

    if is_encoder_frozen and contrast == "embedding" and not head.projection:
        raise ValueError(
            "encoder.frozen keeps the features, and with method.cloc.contrast="
            "embedding and head.projection=0 the contrast acts on nothing else, so it "
            "would train nothing; set head.projection, such as 128."
        )

    options: dict[str, Any] = {"reduction": reduction, "algorithm": algorithm}
    mmnp = sharding.over_batch(functools.partial(losses.mmnp, **options), mesh)

    def init(encoder, rngs):
        return Contrasted(
            encoder,
            heads.Head(encoder.features, num_ranks, head, rngs=rngs),
            Margins(
                entries,
                boundaries,
                start=margin_start,
                form=margin_form,
                budget=margin_budget,
                rngs=rngs,
            ),
        )

    def loss(model, batch, rngs):
        outputs = model(batch["image"])
        values, logits = model.margins(), outputs.logits
        if head.classifier == "cosine":
            # Every other rank's cosine gets its margin added, so that the right one
            # has to win by as much. The margins themselves learn from MMNP only.
            place = losses.positions(jax.lax.stop_gradient(values))
            apart = jnp.abs(place[batch["label"]][:, None] - place[None])
            logits = logits + model.head.prototypes.scale() * apart
        entropy, scalars = heads.cross_entropy(logits, batch)
        contrast_loss = mmnp(
            getattr(outputs, contrast), batch["label"], values, batch["mask"]
        )
        return entropy + weight * contrast_loss, scalars | {"mmnp": contrast_loss}

    def enter_refine(model, context, rngs):
        if phase_two_init == "pretrained":
            fresh = context.initial()
            nnx.update(model.encoder, nnx.state(fresh.encoder))
            nnx.update(model.head, nnx.state(fresh.head))

    def readouts(model):
        # Cosines of features behind a ReLU lie in [0, 1], others in [-1, 1].
        is_signed = {
            "embedding": not head.projection_relu
            and (head.projection > 0 or model.encoder.is_signed),
            "hidden": head.activation != "relu",
            "logits": True,
        }[contrast]
        values = model.margins()
        kinds = tuple(e.kind for e in entries) * (boundaries // len(entries))
        limit = 2.0 if is_signed else 1.0
        is_of_embeddings = contrast == "embedding"
        readout = Readout(values, "boundary", kinds, limit, is_of_embeddings)
        return {"margins": readout}

    # Weight decay would pull the margins towards softplus(0), about 0.69.
    of_margins: dict[str, Any] = dict(UNDECAYED)
    if margin_optimizer:
        of_margins["name"] = margin_optimizer
    if margin_learning_rate is not None:
        of_margins["learning_rate"] = margin_learning_rate
    joint = Stage(
        name="joint",
        title="phase one",
        loss=loss,
        trains=dict.fromkeys(NETWORK, {}) | {MARGINS: of_margins},
        stop=stop_rules.by_validation(limits, train_accuracy=stop_accuracy),
    )
    refine = joint._replace(
        name="refine",
        title="phase two",
        trains=dict.fromkeys(NETWORK, {}),
        stop=stop_rules.by_validation(limits),
        enter=enter_refine,
        hand_over="best",
    )
    return Method(
        init,
        (joint, refine) if phases == 2 else (joint,),
        heads.embed,
        heads.predict,
        readouts=readouts,
    )
