"""CLAP2015: apparent age of 4,691 faces, in classes of one to five years.

    python launch.py --config=configs/clap2015.py --config.data.root=DIR

The root is the folder with the three sets and their lists; see data/clap2015/README.md,
also on aligning the faces. `--config.data.bin=1` to 5 says how many years make a class;
the paper's comparison has 3, which gives 28 classes. Like the paper, train and val are
merged. With an ImageNet VGG16 it reports MAE 6.094, 3.134, 2.018, 1.471 and 1.121 in
classes of 1 to 5 years.

`configs/clap2015.py:frozen` trains on the frozen features of an ImageNet ResNet-50 (the
paper has a VGG16, with twice as many), which needs no GPU; they are computed once, for
classes of any number of years.
"""

from cloc_jax.config import freeze_encoder, start_config, use_imagenet_encoder


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    use_imagenet_encoder(config)
    config.expect = (
        "the paper: MAE 2.018 in classes of 3 years (6.094, 3.134, 1.471, 1.121 for 1, "
        "2, 4, 5)"
    )
    config.encoder.name = "vgg16"
    config.encoder.weights = "timm/vgg16.tv_in1k"
    config.data.name = "clap2015"
    config.data.bin = 3
    config.data.merge_val = True
    # Strengths and kinds are ours: the paper names none for this dataset.
    config.augment.flip_horizontal = 0.5
    config.augment.rotate_degrees = 10.0
    config.augment.translate = 0.05
    config.augment.scale = 0.1
    config.augment.brightness = 0.1
    config.augment.contrast = 0.2
    if is_frozen:
        config.expect = "below the paper, which fine-tunes the encoder"
        freeze_encoder(config, max_epochs=60)
    return config
