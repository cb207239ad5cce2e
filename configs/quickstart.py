"""Drawn knees with five grades and a small network: what `python launch.py` runs.

Expect a test QWK of 0.84 to 0.89, which differs by processor, in under three minutes on
two CPU cores.
"""

from cloc_jax.config import default_config


def get_config():
    config = default_config()
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
    return config
