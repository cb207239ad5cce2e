"""SimCLR: an encoder pretrained without labels, then a linear probe or full training.

Chen et al., "A Simple Framework for Contrastive Learning of Visual Representations",
ICML 2020. Two random views of an image are to be alike and views of other images not;
ranks are learned afterwards.

Differences from the released code: the loss is the mean over anchors, theirs is twice
that; the probe's epoch is chosen on validation data.
"""

from collections.abc import Mapping
from typing import Any

from cloc_jax import losses
from cloc_jax.methods import pretraining, stop_rules
from cloc_jax.methods.interface import Method


def simclr(
    *,
    num_ranks: int,
    batch_size: int,
    limits: stop_rules.Limits,
    temperature: float,
    width: int,
    hidden: int,
    augment: str,
    downstream: str,
    pretrain: Mapping[str, Any],
    probe: Mapping[str, Any],
) -> Method:
    """Pretraining and a probe; see `cloc_jax/config.py` for what each setting means."""
    if temperature <= 0 or width < 1 or hidden < 0:
        raise ValueError(
            f"method.simclr has temperature {temperature}, width {width} and hidden "
            f"{hidden}; the first two must be above 0, the last 0 or more."
        )

    def init(encoder, rngs):
        inner = hidden or encoder.features
        widths = (encoder.features, inner, inner, width)
        projection = pretraining.Perceptron(widths, has_norms=True, rngs=rngs)
        return pretraining.Pretrained(encoder, projection, num_ranks, rngs=rngs)

    def loss(model, batch, rngs):
        features = pretraining.contrasted(model, batch["image"])
        value = losses.nt_xent(features, temperature=temperature, where=batch["mask"])
        return value, {}

    stages = (
        pretraining.pretrain_stage(loss, pretrain, batch_size, augment=augment),
        pretraining.downstream_stage(
            "simclr", downstream, pretraining.classify, probe, batch_size, limits
        ),
    )
    return Method(init, stages, pretraining.embed, pretraining.predict)
