"""SupCon: an encoder pretrained by contrasting ranks, then a linear probe.

Khosla et al., "Supervised Contrastive Learning", NeurIPS 2020. All views of images of
one rank are to be alike.

Differences from the released code: the probe's epoch is chosen on validation data; it
may be stopped early.
"""

from collections.abc import Mapping
from typing import Any

from cloc_jax import losses
from cloc_jax.methods import pretraining, stop_rules
from cloc_jax.methods.interface import Method


def supcon(
    *,
    num_ranks: int,
    batch_size: int,
    limits: stop_rules.Limits,
    temperature: float,
    base_temperature: float,
    width: int,
    augment: str,
    downstream: str,
    pretrain: Mapping[str, Any],
    probe: Mapping[str, Any],
) -> Method:
    """Pretraining and a probe; see `cloc_jax/config.py` for what each setting means."""
    if min(temperature, base_temperature) <= 0 or width < 1:
        raise ValueError(
            f"method.supcon has temperatures {temperature} and {base_temperature} and "
            f"width {width}; all must be above 0."
        )

    def init(encoder, rngs):
        widths = (encoder.features, encoder.features, width)
        projection = pretraining.Perceptron(widths, has_norms=False, rngs=rngs)
        return pretraining.Pretrained(encoder, projection, num_ranks, rngs=rngs)

    def loss(model, batch, rngs):
        value = losses.supcon(
            pretraining.contrasted(model, batch["image"]),
            batch["label"],
            temperature=temperature,
            base_temperature=base_temperature,
            where=batch["mask"],
        )
        return value, {}

    stages = (
        pretraining.pretrain_stage(loss, pretrain, batch_size, augment=augment),
        pretraining.downstream_stage(
            "supcon", downstream, pretraining.classify, probe, batch_size, limits
        ),
    )
    return Method(init, stages, pretraining.embed, pretraining.predict)
