"""Your own graded images: one folder per rank, or a table.

    python launch.py --config=configs/folder.py --config.data.root=my_images
    python launch.py --config=configs/folder.py --config.data.csv=grades.csv

In folders `root/<rank>/*.jpg|png`, ranks named 0, 1, 2, … are ordered by number; for
other names give `--config.data.order="('mild','moderate','severe')"`. Splits are made
automatically, or taken from `root/{train,val,test}/<rank>/`. A table has a column of
paths and one of labels, and may have one of splits and one of patients; data.columns
names them. For grey images add `--config.data.channels=1`.
"""

from cloc_jax.config import default_config


def get_config():
    config = default_config()
    config.data.name = "folder"
    config.data.size = (128, 128)
    config.augment.flip_horizontal = 0.5
    config.augment.rotate_degrees = 10.0
    config.augment.translate = 0.05
    config.augment.scale = 0.1
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    return config
