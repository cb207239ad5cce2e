"""Knee osteoarthritis (KOA): Kellgren-Lawrence grades 0 to 4 of 8,260 knee X-rays.

    python launch.py --config=configs/koa.py --config.data.root=…/kneeKL224

The root is the folder that holds train, val and test, each with 0 to 4, as the download
(Mendeley Data, doi 10.17632/56rmx5bjcr.1) leaves it; see data/koa/README.md. As in the
paper: a centre crop of 120x200, histogram equalisation, affine, blur and perspective
augmentation, 1|2 as the critical boundary, an ImageNet ResNet-50. Its weights are
downloaded; --config.encoder.weights=FILE takes them from a file (docs/data.md). The
paper reports accuracy 0.6673 and MAE 0.4167.

`configs/koa.py:frozen` trains on the frozen features of that ResNet-50, which are
computed once; after that a run takes a minute, and `launch.py sweep` trains many seeds
and margins. Copies of KOA that are already equalised, such as the one behind the
figures in docs/results.md, need --config.data.equalize=False.
"""

from cloc_jax.config import freeze_encoder, start_config, use_imagenet_encoder


def get_config(variant=""):
    config, is_frozen = start_config(variant)
    use_imagenet_encoder(config)
    config.expect = "the paper: accuracy 0.6673, MAE 0.4167"
    config.data.name = "koa"
    config.data.channels = 1
    config.data.crop = (120, 200)
    config.data.size = (120, 200)
    config.data.equalize = True  # off for copies that are equalised already
    config.data.critical = ("1|2",)
    config.data.group_pattern = r"^(\d+)"  # the patient; the letter is the side
    config.augment.rotate_degrees = 5.0
    config.augment.translate = 0.05
    config.augment.scale = 0.05
    config.augment.shear_degrees = 3.0
    config.augment.perspective = 0.03
    config.augment.blur_sigma = 1.0
    if is_frozen:
        config.expect = "below the paper, which fine-tunes the encoder"
        freeze_encoder(config, max_epochs=60)
        # Chosen on the validation data, as the probe's regularisation is: the rate of
        # 1e-4, 3e-4 and 1e-3. A patience of 10 gains less there than seeds differ, and
        # takes twice as long.
        config.optimizer.learning_rate = 3e-4
        config.train.patience = 5
        config.train.monitor = "accuracy"
    return config
