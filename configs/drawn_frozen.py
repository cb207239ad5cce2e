"""Drawn knees on the frozen features of an ImageNet ResNet-50: studies in minutes.

    python launch.py control --config=configs/drawn_frozen.py \
        --config.encoder.weights=resnet50.safetensors \
        --boundary='1|2' --values=0.1,0.3,0.6,1.0 --seeds=5

The true severity behind the grades is known, so the margins can be compared with it.
"""

from configs import paper, quickstart


def get_config():
    config = quickstart.get_config()
    config.expect = ""
    config.data.size = (96, 96)
    config.data.num_train = 2000
    config.data.num_val = 1000
    config.data.num_test = 2000
    paper.freeze(config)
    config.optimizer.learning_rate = 3e-4
    config.train.max_epochs = 40
    return config
