"""RetinaMNIST: diabetic retinopathy grades 0 to 4 of 1,600 fundus images, 28x28.

    python launch.py --config=configs/retinamnist.py --config.data.root=retinamnist.npz

Small, real and quick to download; not one of the paper's datasets. See
data/retinamnist/README.md.

    python launch.py control --config=configs/retinamnist.py:frozen \
        --config.data.root=retinamnist.npz \
        --config.encoder.weights=resnet50.safetensors \
        --boundary='1|2' --values=0.1,0.3,0.6,1.0 --seeds=5

`configs/retinamnist.py:frozen` enlarges the images to 96x96, closer to what an ImageNet
ResNet-50 was trained on, and trains on its frozen features: studies in minutes.
"""

from cloc_jax.config import freeze_encoder, start_config


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    config.data.name = "retinamnist"
    config.data.size = (28, 28)
    config.data.critical = ("1|2",)
    config.augment.flip_horizontal = 0.5
    config.augment.flip_vertical = 0.5
    config.augment.rotate_degrees = 30.0
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    if is_frozen:
        config.data.size = (96, 96)
        freeze_encoder(config, max_epochs=40)
    return config
