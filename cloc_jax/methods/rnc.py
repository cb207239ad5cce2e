"""RnC: an encoder pretrained by ranking distances, then a linear regression.

Zha et al., "Rank-N-Contrast: Learning Continuous Representations for Regression",
NeurIPS 2023. Of two images the one nearer in rank is to be nearer in embedding; a
linear layer on the frozen encoder then predicts the rank as a number, by its absolute
error. The rank is that number rounded, and MAE is that of the number itself.

Differences from the released code: the loss is stabilised by a masked maximum and needs
no loop over columns; the probe's epoch is chosen on validation data.
"""

from collections.abc import Mapping
from typing import Any

import jax.numpy as jnp
import numpy as np

from cloc_jax import losses
from cloc_jax.methods import pretraining, regression, single_stage, stop_rules
from cloc_jax.methods.interface import Method


def rnc(
    *,
    num_ranks: int,
    batch_size: int,
    limits: stop_rules.Limits,
    temperature: float,
    augment: str,
    downstream: str,
    pretrain: Mapping[str, Any],
    probe: Mapping[str, Any],
) -> Method:
    """Pretraining and a probe; see `cloc_jax/config.py` for what each setting means."""
    if temperature <= 0:
        raise ValueError(
            f"method.rnc.temperature is {temperature}; use a number above 0."
        )

    def init(encoder, rngs):
        return pretraining.Pretrained(encoder, None, 1, rngs=rngs)

    def contrast(model, batch, rngs):
        value = losses.rnc(
            pretraining.contrasted(model, batch["image"]),
            batch["label"],
            temperature=temperature,
            where=batch["mask"],
        )
        return value, {}

    def regress(model, batch, rngs):
        value = model(batch["image"])[:, 0]
        label, mask = batch["label"], batch["mask"]
        count = jnp.maximum(mask.sum(), 1)
        error = jnp.sum(jnp.abs(value - label), where=mask) / count
        nearest = jnp.clip(jnp.round(value), 0, num_ranks - 1)
        return error, {"accuracy": single_stage.accuracy(nearest, batch)}

    def predict(model, images, support):
        value = model(images)[:, 0]
        return regression.predict_value(value, support["scale"], num_ranks)

    def fit(model, train, val):
        value = np.asarray(model.head(jnp.asarray(val.embeddings)))[:, 0]
        return regression.fit_scale(value, val.labels, num_ranks)

    stages = (
        pretraining.pretrain_stage(contrast, pretrain, batch_size, augment=augment),
        pretraining.downstream_stage(
            "rnc", downstream, regress, probe, batch_size, limits
        ),
    )
    return Method(init, stages, pretraining.embed, predict, fit, fit_reads=("val",))
