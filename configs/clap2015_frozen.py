"""CLAP2015 on the frozen features of an ImageNet ResNet-50, without a GPU.

    python launch.py --config=configs/clap2015_frozen.py --config.data.root=DIR \
        --config.encoder.weights=resnet50.safetensors

The features of every face are computed once, for classes of any number of years. The
paper has a VGG16 here; a ResNet-50 has half the features.
"""

from configs import clap2015, paper


def get_config():
    config = clap2015.get_config()
    config.expect = "below the paper, which fine-tunes the encoder"
    paper.freeze(config)
    config.optimizer.learning_rate = 3e-4
    config.train.max_epochs = 60
    return config
