"""CORN as in the logs of the authors' corn-ordinal-neuralnet.

ResNet-34 from scratch, random crops of 120x120 from 128x128, Adam at 5e-4 for 50
epochs of batches of 16. Needs one GPU with 4 GB or less.

Different here: two layers in the head, not one.
"""

from configs.official import common, orcnn


def get_config():
    config = orcnn.get_config()
    config.method.name = "corn"
    common.train(config, epochs=50, batch_size=16)
    return config
