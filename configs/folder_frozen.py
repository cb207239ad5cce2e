"""Your own graded images without a GPU: frozen features of an ImageNet ResNet-50.

    python launch.py check --config=configs/folder_frozen.py \
        --config.data.root=my_images
    python launch.py --config=configs/folder_frozen.py --config.data.root=my_images

The images lie as configs/folder.py says: one folder per rank, or a table. The features
of every image are computed once; after that a run takes seconds to minutes. The weights
are downloaded; --config.encoder.weights=FILE takes them from a file (docs/weights.md).
docs/own_images.md goes through all of it.
"""

from configs import folder, paper


def get_config():
    config = folder.get_config()
    config.data.size = (224, 224)  # the size that the network was trained on
    paper.freeze(config)
    config.train.batch_size = 64  # fits small sets too
    config.optimizer.learning_rate = 3e-4
    config.train.max_epochs = 60
    return config
