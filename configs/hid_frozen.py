"""HID on the frozen features of an ImageNet ResNet-50: minutes without a GPU.

    python launch.py --config=configs/hid_frozen.py \
        --config.data.root=…/decade_database \
        --config.encoder.weights=resnet50.safetensors

The features of every photo are computed once and serve all five splits
(`--folds=all`). Random crops and AutoAugment need --config.encoder.views=4 or more.
"""

from configs import hid, paper


def get_config():
    config = hid.get_config()
    config.expect = "below the paper, which fine-tunes the encoder"
    paper.freeze(config)
    config.optimizer.learning_rate = 3e-4
    config.train.max_epochs = 60
    return config
