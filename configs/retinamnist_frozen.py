"""RetinaMNIST on the frozen features of an ImageNet ResNet-50: studies in minutes.

    python launch.py control --config=configs/retinamnist_frozen.py \
        --config.data.root=retinamnist.npz \
        --config.encoder.weights=resnet50.safetensors \
        --boundary='1|2' --values=0.1,0.3,0.6,1.0 --seeds=5

The images of 28x28 are enlarged to 96x96, closer to what the network was trained on.
"""

from configs import paper, retinamnist


def get_config():
    config = retinamnist.get_config()
    config.data.size = (96, 96)
    paper.freeze(config)
    config.optimizer.learning_rate = 3e-4
    config.train.max_epochs = 40
    return config
