"""CORAL as in the authors' coral-cnn: the recipe of orcnn.py with their loss.

ResNet-34 from scratch, random crops of 120x120 from 128x128, Adam at 5e-4 for 200
epochs of batches of 256. Needs one GPU with about 6 GB.

Different here: the score comes from two layers, not one.
"""

from configs.official import orcnn


def get_config():
    config = orcnn.get_config()
    config.method.name = "coral"
    return config
