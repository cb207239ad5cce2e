"""What all experiments of the paper share: base.py with an ImageNet ResNet-50.

Its weights are downloaded; --config.encoder.weights=FILE takes them from a file
(docs/weights.md). Names no dataset, so it does not run alone.
"""

from configs import base


def get_config():
    config = base.get_config()
    config.encoder.name = "resnet50"
    config.encoder.weights = "timm/resnet50.tv_in1k"
    return config
