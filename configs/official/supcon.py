"""SupCon as in the authors' README, whose example is CIFAR.

ResNet-50 from scratch, two views of 1024 images per batch, temperature 0.1, SGD at 0.5
with weight decay 1e-4, 10 epochs of warm-up and 1000 epochs with a cosine down to 1e-3
of the rate; then a linear probe for 100 epochs, SGD at 5 for batches of 512, times 0.2
after 60, 75 and 90 epochs. At 224x224 it needs eight GPUs with about 32 GB each; at
the 32x32 of CIFAR, one with 16 GB.

Different here: the probe has batches of 1024 too, and twice the rate; warm-up starts
at 0; the network is that for ImageNet, whose stem reduces images to a quarter.
"""

from configs.official import recipe_parts


def get_config():
    config = recipe_parts.get_config()
    config.method.name = "supcon"
    config.method.supcon.temperature = 0.1
    recipe_parts.untrained(config, "resnet50")
    recipe_parts.train(config, epochs=100, batch_size=1024)
    recipe_parts.settings(
        config.method.supcon.pretrain,
        learning_rate=0.5,
        rate_batch=1024,
        warmup_epochs=10.0,
        final_rate=1e-3,
        epochs=1000,
    )
    recipe_parts.settings(
        config.method.supcon.probe,
        learning_rate=5.0,
        rate_batch=512,
        schedule="steps",
        drops=(0.6, 0.75, 0.9),
        drop_factor=0.2,
    )
    return config
