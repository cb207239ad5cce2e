"""BRACS: seven subtypes of breast lesions, from normal to invasive, 4,539 regions.

    python launch.py --config=configs/bracs.py --config.data.root=…/latest_version

See data/bracs/README.md for the download (52 GB, of which 224x224 pixels per region are
kept). As in the paper: 224x224, flips, rotation, blur and perspective changes, UDH|FEA
and ADH|DCIS as the critical boundaries, an ImageNet ResNet-50. It reports accuracy
0.6035 and MAE 0.7054.

`configs/bracs.py:frozen` trains on the frozen features of an ImageNet ResNet-50, which
needs no GPU; they are computed once, and after that a run takes minutes.
"""

from cloc_jax.config import freeze_encoder, start_config, use_imagenet_encoder


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    use_imagenet_encoder(config)
    config.expect = "the paper: accuracy 0.6035, MAE 0.7054"
    config.data.name = "bracs"
    config.data.max_pixels = 1_000_000_000  # regions are that large, and trusted
    config.data.critical = ("UDH|FEA", "ADH|DCIS")
    config.augment.flip_horizontal = 0.5
    config.augment.flip_vertical = 0.5
    config.augment.rotate_degrees = 30.0
    config.augment.blur_sigma = 1.0
    config.augment.perspective = 0.05
    if is_frozen:
        config.expect = "below the paper, which fine-tunes the encoder"
        freeze_encoder(config, max_epochs=60)
    return config
