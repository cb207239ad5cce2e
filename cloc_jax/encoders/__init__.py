"""Encoders: images in, one feature vector per image out.

An encoder is an NNX module, made as `Backbone(name, channels=…, rngs=…)`. It takes
uint8 images [batch, height, width, channels] and scales them itself, because the
scaling belongs to its weights. Its parts are called stem, layer1, layer2, …: those
names are the parameter groups that stages train or freeze. `features` is the width of
the output, `is_signed` whether it can be negative (then cosines span [-1, 1], otherwise
[0, 1]). It can also be run up to a part or from it on. A module per family of
architectures makes the parts.
"""

from cloc_jax.encoders.backbone import ENCODERS, SMALL, Backbone, Encoder, Identity

__all__ = ["ENCODERS", "SMALL", "Backbone", "Encoder", "Identity"]
