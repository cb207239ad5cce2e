"""ORCNN as in coral-cnn, a reimplementation; we know of no code by its authors.

ResNet-34 from scratch, random crops of 120x120 from 128x128, Adam at 5e-4 for 200
epochs of batches of 256. Needs one GPU with about 6 GB.

Different here: two layers in the head, not one.
"""

from configs.official import recipe_parts


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "orcnn"
    recipe_parts.crop(config, 128, 120)
    recipe_parts.untrained(config, "resnet34")
    recipe_parts.train(config, epochs=200, batch_size=256)
    config.optimizer.learning_rate = 5e-4
    return config
