"""POE as in the authors' script for Adience.

VGG16 with ImageNet weights, random crops of 224x224 from 256x256 and flips, Adam at
1e-4, a tenth of it after 30 of 50 epochs, batches of 32. Loss weights, margin, samples
and dropout are the defaults of `method.poe`. Needs one GPU with about 8 GB.

Different here: both heads stand on fc7 and start at random; there, the mean is fc7
itself, and starts from ImageNet.
"""

from configs.official import recipe_parts


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "poe"
    recipe_parts.crop(config, 256, 224)
    config.augment.flip_horizontal = 0.5
    recipe_parts.pretrained(config, "vgg16")
    recipe_parts.train(config, epochs=50, batch_size=32)
    config.optimizer.learning_rate = 1e-4
    config.optimizer.schedule = "steps"
    config.optimizer.drops = (0.6,)
    return config
