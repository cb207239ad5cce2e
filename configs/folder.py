"""Your own graded images: a folder a rank, `root/<rank>/*.jpg|png`.

    python launch.py --config=configs/folder.py --config.data.root=my_images

Ranks called 0, 1, 2, … are ordered by number; for other names say
`--config.data.order="('mild','moderate','severe')"`. Splits are carved, or taken from
`root/{train,val,test}/<rank>/`. For grey images add `--config.data.channels=1`.
"""

from configs import base


def get_config():
    config = base.get_config()
    config.data.name = "folder"
    config.data.size = (128, 128)
    config.augment.flip_horizontal = 0.5
    config.augment.rotate_degrees = 10.0
    config.augment.translate = 0.05
    config.augment.scale = 0.1
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    return config
