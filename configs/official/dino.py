"""DINO as in the authors' command for ResNet-50 on one machine with eight GPUs.

ResNet-50 from scratch, two crops of 224x224 and eight of 96x96 of 512 images per batch,
an output of 65,536, SGD at 0.03 x batch / 256 with weight decay 1e-4, 10 epochs of
warm-up and 100 epochs with a cosine down to 1e-6; then a linear probe for 100 epochs,
SGD at 0.001 x batch / 256. Needs eight GPUs with about 32 GB each.

Different here: the probe's epoch is chosen on validation data.
"""

from configs.official import recipe_parts

BATCH = 512


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "dino"
    config.method.dino.output = 65_536
    recipe_parts.untrained(config, "resnet50")
    recipe_parts.train(config, epochs=100, batch_size=BATCH)
    recipe_parts.settings(
        config.method.dino.pretrain,
        name="sgd",
        learning_rate=0.03,
        rate_batch=256,
        final_rate=1e-6 / (0.03 * BATCH / 256),
        weight_decay=1e-4,
        final_weight_decay=1e-4,
    )
    recipe_parts.settings(config.method.dino.probe, learning_rate=0.001, rate_batch=256)
    return config
