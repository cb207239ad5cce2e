"""MWR, the global variant, as in the authors' training code.

VGG16 with batch norm and ImageNet weights, averaged over the image, random crops of
224x224 from 256x256 and flips, Adam at 1e-4 for 300 epochs, 16 triples per batch,
dropout 0.8. Needs one GPU with about 8 GB.

Different here: ranks enter as they are, not as logarithms; see docs/methods.md.
"""

from configs.official import recipe_parts


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "mwr"
    config.method.mwr.dropout = 0.8
    recipe_parts.crop(config, 256, 224)
    config.augment.flip_horizontal = 0.5
    recipe_parts.pretrained(config, "vgg16_bn")
    config.encoder.pooling = "average"
    recipe_parts.train(config, epochs=300, batch_size=16)
    config.optimizer.learning_rate = 1e-4
    return config
