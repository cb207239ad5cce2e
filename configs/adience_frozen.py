"""Adience on the frozen features of an ImageNet ResNet-50, without a GPU.

    python launch.py --config=configs/adience_frozen.py --config.data.root=DIR \
        --config.encoder.weights=resnet50.safetensors

The features of every face are computed once and serve all five folds (`--folds=all`).
"""

from configs import adience, paper


def get_config():
    config = adience.get_config()
    config.expect = "below the paper, which fine-tunes the encoder"
    paper.freeze(config)
    config.optimizer.learning_rate = 3e-4
    config.train.max_epochs = 60
    return config
