"""RetinaMNIST: diabetic retinopathy grades 0 to 4 of 1,600 fundus images, 28x28.

    python launch.py --config=configs/retinamnist.py --config.data.root=retinamnist.npz

Small, real and quick to download; not one of the paper's datasets. See
data/retinamnist/README.md.
"""

from cloc_jax.config import default_config


def get_config():
    config = default_config()
    config.data.name = "retinamnist"
    config.data.size = (28, 28)
    config.data.critical = ("1|2",)
    config.augment.flip_horizontal = 0.5
    config.augment.flip_vertical = 0.5
    config.augment.rotate_degrees = 30.0
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    return config
