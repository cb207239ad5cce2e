"""GOL as in the authors' code for Adience.

VGG16 with batch norm and ImageNet weights, averaged over the image, random crops of
224x224 from 256x256 and flips, Adam at 1e-4 with weight decay 5e-4 and a cosine down to
1e-3 of the rate in 100 epochs, 32 images per batch, up to 32 pairs of each relation,
tau 1, k even from 2 to 58. Needs one GPU with about 8 GB.

Different here: a projection of the encoder's width makes embeddings signed, where the
authors cut off the encoder's last batch norm and ReLU; relations of pairs are drawn
evenly; weight decay is decoupled from Adam.
"""

from configs.official import recipe_parts


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "gol"
    config.method.gol.width = 512
    config.method.gol.tau = 1
    config.method.gol.pairs = 96
    config.method.gol.neighbours = tuple(range(2, 60, 2))
    recipe_parts.crop(config, 256, 224)
    config.augment.flip_horizontal = 0.5
    recipe_parts.pretrained(config, "vgg16_bn")
    config.encoder.pooling = "average"
    recipe_parts.train(config, epochs=100, batch_size=32)
    config.optimizer.learning_rate = 1e-4
    config.optimizer.weight_decay = 5e-4
    config.optimizer.schedule = "cosine"
    config.optimizer.final_rate = 1e-3
    return config
