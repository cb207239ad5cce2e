"""What all of the paper's experiments share: base.py with an ImageNet ResNet-50.

Its weights are downloaded; --config.encoder.weights=FILE takes them from a file
(docs/weights.md). Names no dataset, so it does not run alone.
"""

from cloc_jax.config import default_config


def get_config():
    config = default_config()
    _encoder(config)
    return config


def freeze(config):
    """Keeps the encoder as its weights are, for the files named …_frozen."""
    _encoder(config)
    config.encoder.frozen = True
    config.head.projection = 128  # features cannot move, so the contrast needs it
    config.train.batch_size = 256


def _encoder(config):
    config.encoder.name = "resnet50"
    config.encoder.weights = "timm/resnet50.tv_in1k"
