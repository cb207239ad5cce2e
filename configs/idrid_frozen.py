"""IDRiD on the frozen features of an ImageNet ResNet-50: minutes without a GPU.

    python launch.py --config=configs/idrid_frozen.py --config.data.root=DIR \
        --config.encoder.weights=resnet50.safetensors

The features of every photograph are computed once; after that a run takes seconds, and
`launch.py sweep` trains many methods and seeds at once.
"""

from configs import idrid, paper


def get_config():
    config = idrid.get_config()
    config.expect = "below the paper, which fine-tunes the encoder"
    paper.freeze(config)
    config.train.batch_size = 64  # of 372 training images
    config.optimizer.learning_rate = 3e-4
    config.train.monitor = "accuracy"
    config.train.max_epochs = 60
    return config
