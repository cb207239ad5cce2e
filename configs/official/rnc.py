"""RnC as in the authors' code for AgeDB.

ResNet-18 from scratch on 224x224, two views of 256 images per batch, SGD at 0.5 with
weight decay 1e-4 and a cosine down to 1e-3 of the rate in 400 epochs; then a linear
regression for 100 epochs, SGD at 0.05 for batches of 64 with a cosine down to 0.008 of
the rate. Needs one GPU with about 24 GB.

Different here: the regression has batches of 256 too, and four times the rate.
"""

from configs.official import recipe_parts


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "rnc"
    recipe_parts.untrained(config, "resnet18")
    recipe_parts.train(config, epochs=100, batch_size=256)
    recipe_parts.settings(
        config.method.rnc.pretrain,
        learning_rate=0.5,
        rate_batch=256,
        final_rate=1e-3,
        epochs=400,
    )
    recipe_parts.settings(
        config.method.rnc.probe, learning_rate=0.05, rate_batch=64, final_rate=0.008
    )
    return config
