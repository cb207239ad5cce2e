"""Adience: eight age groups of 17,424 faces from photo albums, five folds by subject.

    python launch.py --config=configs/adience.py --config.data.root=DIR

The root is the folder with aligned/ and the fold files; see data/adience/README.md.
`--config.data.fold=0` to 4 chooses the test fold, `--folds=all` trains all of them. As
in the paper: 224x224, flips, affine changes and colour jitter, 8-13|15-20 as the
critical boundary, an ImageNet ResNet-50. It reports accuracy 0.6302 and MAE 0.41, the
mean of the folds.

`configs/adience.py:frozen` trains on the frozen features of an ImageNet ResNet-50,
which needs no GPU; they are computed once and serve all five folds.
"""

from cloc_jax.config import freeze_encoder, start_config, use_imagenet_encoder


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    use_imagenet_encoder(config)
    config.expect = "the paper: accuracy 0.6302, MAE 0.41, mean of five folds"
    config.data.name = "adience"
    config.data.critical = ("8-13|15-20",)
    config.augment.flip_horizontal = 0.5
    config.augment.flip_vertical = 0.5  # as the paper says, odd as it is for faces
    config.augment.rotate_degrees = 10.0
    config.augment.translate = 0.05
    config.augment.scale = 0.1
    config.augment.shear_degrees = 5.0
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    config.augment.saturation = 0.2
    config.augment.hue = 0.02
    if is_frozen:
        config.expect = "below the paper, which fine-tunes the encoder"
        freeze_encoder(config, max_epochs=60)
    return config
