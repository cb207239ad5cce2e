"""CORN as in the logs of the authors' corn-ordinal-neuralnet.

ResNet-34 from scratch, random crops of 120x120 from 128x128, Adam at 5e-4 for 50
epochs of batches of 16. Needs one GPU with 4 GB or less.

Different here: two layers in the head, not one.
"""

from configs.official import orcnn, recipe_parts


def get_config():
    config = orcnn.get_config()
    config.method.name = "corn"
    recipe_parts.train(config, epochs=50, batch_size=16)
    return config
