"""Drawn knees with five grades and a small network: what `python launch.py` runs.

Expect a test QWK of 0.84 to 0.89, which differs by processor, in under three minutes on
two CPU cores.

    python launch.py control --config=configs/quickstart.py:frozen \
        --config.encoder.weights=resnet50.safetensors \
        --boundary='1|2' --values=0.1,0.3,0.6,1.0 --seeds=5

`configs/quickstart.py:frozen` draws larger knees and trains on the frozen features of
an ImageNet ResNet-50, for studies in minutes: the true severity behind the grades is
known, so margins can be compared with it.
"""

from cloc_jax.config import freeze_encoder, start_config


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    config.expect = "test QWK 0.84 to 0.89 in under three minutes on two CPU cores"
    config.data.name = "synthetic"
    config.data.size = (64, 64)
    config.data.channels = 1
    config.data.critical = ("1|2",)
    config.augment.flip_horizontal = 0.5
    config.augment.rotate_degrees = 8.0
    config.augment.translate = 0.05
    config.augment.scale = 0.08
    config.augment.contrast = 0.2
    config.augment.brightness = 0.1
    config.encoder.widths = (12, 24, 48, 96)
    config.train.max_epochs = 8
    if is_frozen:
        config.expect = ""
        config.data.size = (96, 96)
        config.data.num_train = 2000
        config.data.num_val = 1000
        config.data.num_test = 2000
        freeze_encoder(config, max_epochs=40)
    return config
