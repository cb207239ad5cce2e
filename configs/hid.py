"""Historical colour image dating (HID): the decade, 1930s to 1970s, of 1,325 photos.

    python launch.py --config=configs/hid.py --config.data.root=…/decade_database

See data/hid/README.md for the download. `--config.data.fold=0` to 4 chooses one of five
fixed random splits with 50 test photos per decade, `--folds=all` trains all of them. As
in the paper: random crops of 224x224 (the centre in evaluation), flips, affine and
perspective changes, AutoAugment with probability 0.01, 1950s|1960s as the critical
boundary, an ImageNet ResNet-50. It reports accuracy 0.6208 and MAE 0.5534, the mean of
five splits.

`configs/hid.py:frozen` trains on the frozen features of an ImageNet ResNet-50, in
minutes without a GPU; they serve all five splits. Random crops and AutoAugment then
need --config.encoder.views=4 or more.
"""

from cloc_jax.config import freeze_encoder, start_config, use_imagenet_encoder


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    use_imagenet_encoder(config)
    config.expect = "the paper: accuracy 0.6208, MAE 0.5534, mean of five splits"
    config.data.name = "hid"
    config.data.on_bad_image = "skip"  # the archive is said to hold damaged files
    config.data.critical = ("1950s|1960s",)
    config.augment.flip_horizontal = 0.5
    config.augment.flip_vertical = 0.5
    config.augment.rotate_degrees = 10.0
    config.augment.translate = 0.05
    config.augment.scale = 0.1
    config.augment.shear_degrees = 5.0
    config.augment.perspective = 0.05
    config.augment.random_crop = 0.125  # ours: 224 of 256
    config.augment.autoaugment = 0.01
    if is_frozen:
        config.expect = "below the paper, which fine-tunes the encoder"
        freeze_encoder(config, max_epochs=60)
    return config
