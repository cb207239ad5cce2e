"""SimCLR as in the authors' command for ImageNet.

ResNet-50 from scratch on 224x224, two views of 4096 images per batch, temperature 0.1,
three layers in the projection, LARS at 0.3 x batch / 256 with weight decay 1e-6, 10
epochs of warm-up and 100 epochs with a cosine; then a linear probe for 90 epochs, SGD
at 0.1 x batch / 256. The authors say that a batch of 4096 needs at least 32 TPUs; with
--config.train.batch_size=256 the rates follow, and one GPU with about 48 GB will do.
"""

from configs.official import recipe_parts


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "simclr"
    config.method.simclr.temperature = 0.1
    config.data.num_train = 8192  # of drawn images, so that there are two batches
    recipe_parts.untrained(config, "resnet50")
    recipe_parts.train(config, epochs=90, batch_size=4096)
    recipe_parts.settings(
        config.method.simclr.pretrain, learning_rate=0.3, rate_batch=256
    )
    recipe_parts.settings(
        config.method.simclr.probe,
        learning_rate=0.1,
        rate_batch=256,
        weight_decay=1e-6,
    )
    return config
