"""Your own graded images: one folder per rank, or a table.

    python launch.py --config=configs/folder.py --config.data.root=my_images
    python launch.py --config=configs/folder.py --config.data.csv=grades.csv

In folders `root/<rank>/*.jpg|png`, ranks named 0, 1, 2, … are ordered by number; for
other names give `--config.data.order="('mild','moderate','severe')"`. Splits are made
automatically, or taken from `root/{train,val,test}/<rank>/`. A table has a column of
paths and one of labels, and may have one of splits and one of patients; data.columns
names them. For grey images add `--config.data.channels=1`.

    python launch.py check --config=configs/folder.py:frozen \
        --config.data.root=my_images
    python launch.py --config=configs/folder.py:frozen --config.data.root=my_images

`configs/folder.py:frozen` needs no GPU: it trains on the frozen features of an ImageNet
ResNet-50, which are computed once; after that a run takes seconds to minutes. The
weights are downloaded; --config.encoder.weights=FILE takes them from a file.
docs/data.md goes through all of it.
"""

from cloc_jax.config import freeze_encoder, start_config


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    config.data.name = "folder"
    config.data.size = (128, 128)
    config.augment.flip_horizontal = 0.5
    config.augment.rotate_degrees = 10.0
    config.augment.translate = 0.05
    config.augment.scale = 0.1
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    if is_frozen:
        config.data.size = (224, 224)  # the size that the network was trained on
        freeze_encoder(config, max_epochs=60)
        config.train.batch_size = 64  # fits small sets too
    return config
