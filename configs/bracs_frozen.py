"""BRACS on the frozen features of an ImageNet ResNet-50, without a GPU.

    python launch.py --config=configs/bracs_frozen.py \
        --config.data.root=…/latest_version \
        --config.encoder.weights=resnet50.safetensors

The features of every region are computed once; after that a run takes minutes.
"""

from configs import bracs, paper


def get_config():
    config = bracs.get_config()
    config.expect = "below the paper, which fine-tunes the encoder"
    paper.freeze(config)
    config.optimizer.learning_rate = 3e-4
    config.train.max_epochs = 60
    return config
