"""IDRiD: diabetic retinopathy grades 0 to 4 of 516 fundus photographs.

    python launch.py --config=configs/idrid.py --config.data.root="…/B. Disease Grading"

See data/idrid/README.md for the download. As in the paper: 224x224, flips, rotation,
blur and colour jitter, 1|2 as the critical boundary, an ImageNet ResNet-50. It reports
accuracy 0.7379 and MAE 0.4078. The paper's label noise:

    --config.data.relabel="('1>2:0.6','2>1:0.3')"

`configs/idrid.py:frozen` trains on the frozen features of an ImageNet ResNet-50, which
are computed once; after that a run takes seconds, and `launch.py sweep` trains many
methods and seeds.
"""

from cloc_jax.config import freeze_encoder, start_config, use_imagenet_encoder


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    use_imagenet_encoder(config)
    config.expect = "the paper: accuracy 0.7379, MAE 0.4078"
    config.data.name = "idrid"
    config.data.critical = ("1|2",)
    config.augment.flip_horizontal = 0.5
    config.augment.flip_vertical = 0.5
    config.augment.rotate_degrees = 30.0
    config.augment.blur_sigma = 1.0
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    config.augment.saturation = 0.2
    config.augment.hue = 0.02
    config.train.batch_size = 32  # of 372 training images
    if is_frozen:
        config.expect = "below the paper, which fine-tunes the encoder"
        freeze_encoder(config, max_epochs=60)
        config.train.batch_size = 64  # of 372 training images
        config.train.monitor = "accuracy"
    return config
