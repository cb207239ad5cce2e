"""What the recipes of the methods' authors share; each file beside this one is one.

They start on drawn knees at the authors' image size. Other data come by name:

    python launch.py --config=configs/official/gol.py --config.data.name=koa \
        --config.data.root=…

Colour images need --config.data.channels=3. Crops and the fields of one dataset are in
its own file, such as configs/koa.py. Memory that a file names is an estimate from
the sizes of activations in float32; nothing here has been run at full size. None of the
authors stops early, so the epochs given are all trained, and the best one on
validation data is kept.
"""

from cloc_jax.config import default_config


def get_config():
    config = default_config()
    config.data.name = "synthetic"
    config.data.channels = 1
    config.data.size = (224, 224)
    return config


def train(config, *, epochs, batch_size):
    """Sets the epochs of stages that are scored, without an early stop."""
    config.train.max_epochs = epochs
    config.train.patience = epochs
    config.train.batch_size = batch_size


def crop(config, whole, part):
    """Random squares of `part` pixels from images of `whole`."""
    config.data.size = (part, part)
    config.augment.random_crop = 1 - part / whole


def pretrained(config, name):
    """An ImageNet encoder, downloaded unless encoder.weights names a file."""
    config.encoder.name = name
    config.encoder.weights = f"timm/{name}.tv_in1k"


def untrained(config, name):
    """An encoder that starts at random."""
    config.encoder.name = name
    config.encoder.weights = "random"


def settings(stage, **values):
    """Sets fields of a stage's own optimizer."""
    for field, value in values.items():
        stage[field] = value
