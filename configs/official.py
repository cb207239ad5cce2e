"""The recipes of the methods' authors, one variant per method.

    python launch.py --config=configs/official.py:gol
    python launch.py --config=configs/official.py:gol --config.data.name=koa \
        --config.data.root=…

They start on drawn knees at the authors' image size; other data come by name, as above.
Colour images need --config.data.channels=3. Crops and the fields of one dataset are in
its own file, such as configs/koa.py. The function of each method below says what it
needs; memory is an estimate from the sizes of activations in float32, and nothing here
has been run at full size. None of the authors stops early, so the epochs given are all
trained, and the best one on validation data is kept.
"""

from cloc_jax.config import check_variant, default_config


def get_config(variant=""):
    check_variant(variant, *RECIPES)
    config = default_config()
    config.method.name = variant
    config.data.name = "synthetic"
    config.data.channels = 1
    config.data.size = (224, 224)
    RECIPES[variant](config)
    return config


def orcnn(config):
    """ORCNN as in coral-cnn, a reimplementation; we know of no code by its authors.

    ResNet-34 from scratch, random crops of 120x120 from 128x128, Adam at 5e-4 for 200
    epochs of batches of 256. Needs one GPU with about 6 GB.

    Different here: two layers in the head, not one.
    """
    _crop(config, 128, 120)
    _untrained(config, "resnet34")
    _train(config, epochs=200, batch_size=256)
    config.optimizer.learning_rate = 5e-4


def coral(config):
    """CORAL as in the authors' coral-cnn: the recipe of orcnn with their loss.

    ResNet-34 from scratch, random crops of 120x120 from 128x128, Adam at 5e-4 for 200
    epochs of batches of 256. Needs one GPU with about 6 GB.

    Different here: the score comes from two layers, not one.
    """
    orcnn(config)


def corn(config):
    """CORN as in the logs of the authors' corn-ordinal-neuralnet.

    ResNet-34 from scratch, random crops of 120x120 from 128x128, Adam at 5e-4 for 50
    epochs of batches of 16. Needs one GPU with 4 GB or less.

    Different here: two layers in the head, not one.
    """
    orcnn(config)
    _train(config, epochs=50, batch_size=16)


def poe(config):
    """POE as in the authors' script for Adience.

    VGG16 with ImageNet weights, random crops of 224x224 from 256x256 and flips, Adam at
    1e-4, a tenth of it after 30 of 50 epochs, batches of 32. Loss weights, margin,
    samples and dropout are the defaults of `method.poe`. Needs one GPU with about 8 GB.

    Different here: both heads stand on fc7 and start at random; there, the mean is fc7
    itself, and starts from ImageNet.
    """
    _crop(config, 256, 224)
    config.augment.flip_horizontal = 0.5
    _pretrained(config, "vgg16")
    _train(config, epochs=50, batch_size=32)
    config.optimizer.learning_rate = 1e-4
    config.optimizer.schedule = "steps"
    config.optimizer.drops = (0.6,)


def gol(config):
    """GOL as in the authors' code for Adience.

    VGG16 with batch norm and ImageNet weights, averaged over the image, random crops of
    224x224 from 256x256 and flips, Adam at 1e-4 with weight decay 5e-4 and a cosine
    down to 1e-3 of the rate in 100 epochs, 32 images per batch, up to 32 pairs of each
    relation, tau 1, k even from 2 to 58. Needs one GPU with about 8 GB.

    Different here: a projection of the encoder's width makes embeddings signed, where
    the authors cut off the encoder's last batch norm and ReLU; relations of pairs are
    drawn evenly; weight decay is decoupled from Adam.
    """
    config.method.gol.width = 512
    config.method.gol.tau = 1
    config.method.gol.pairs = 96
    config.method.gol.neighbours = tuple(range(2, 60, 2))
    _crop(config, 256, 224)
    config.augment.flip_horizontal = 0.5
    _pretrained(config, "vgg16_bn")
    config.encoder.pooling = "average"
    _train(config, epochs=100, batch_size=32)
    config.optimizer.learning_rate = 1e-4
    config.optimizer.weight_decay = 5e-4
    config.optimizer.schedule = "cosine"
    config.optimizer.final_rate = 1e-3


def mwr(config):
    """MWR, the global variant, as in the authors' training code.

    VGG16 with batch norm and ImageNet weights, averaged over the image, random crops of
    224x224 from 256x256 and flips, Adam at 1e-4 for 300 epochs, 16 triples per batch,
    dropout 0.8. Needs one GPU with about 8 GB.

    Different here: ranks enter as they are, not as logarithms; see docs/methods.md.
    """
    config.method.mwr.dropout = 0.8
    _crop(config, 256, 224)
    config.augment.flip_horizontal = 0.5
    _pretrained(config, "vgg16_bn")
    config.encoder.pooling = "average"
    _train(config, epochs=300, batch_size=16)
    config.optimizer.learning_rate = 1e-4


def rnc(config):
    """RnC as in the authors' code for AgeDB.

    ResNet-18 from scratch on 224x224, two views of 256 images per batch, SGD at 0.5
    with weight decay 1e-4 and a cosine down to 1e-3 of the rate in 400 epochs; then a
    linear regression for 100 epochs, SGD at 0.05 for batches of 64 with a cosine down
    to 0.008 of the rate. Needs one GPU with about 24 GB.

    Different here: the regression has batches of 256 too, and four times the rate.
    """
    _untrained(config, "resnet18")
    _train(config, epochs=100, batch_size=256)
    _set_stage(
        config.method.rnc.pretrain,
        learning_rate=0.5,
        rate_batch=256,
        final_rate=1e-3,
        epochs=400,
    )
    _set_stage(
        config.method.rnc.probe, learning_rate=0.05, rate_batch=64, final_rate=0.008
    )


def simclr(config):
    """SimCLR as in the authors' command for ImageNet.

    ResNet-50 from scratch on 224x224, two views of 4096 images per batch, temperature
    0.1, three layers in the projection, LARS at 0.3 x batch / 256 with weight decay
    1e-6, 10 epochs of warm-up and 100 epochs with a cosine; then a linear probe for 90
    epochs, SGD at 0.1 x batch / 256. The authors say that a batch of 4096 needs at
    least 32 TPUs; with --config.train.batch_size=256 the rates follow, and one GPU with
    about 48 GB will do.
    """
    config.method.simclr.temperature = 0.1
    config.data.num_train = 8192  # of drawn images, so that there are two batches
    _untrained(config, "resnet50")
    _train(config, epochs=90, batch_size=4096)
    _set_stage(config.method.simclr.pretrain, learning_rate=0.3, rate_batch=256)
    _set_stage(
        config.method.simclr.probe,
        learning_rate=0.1,
        rate_batch=256,
        weight_decay=1e-6,
    )


def supcon(config):
    """SupCon as in the authors' README, whose example is CIFAR.

    ResNet-50 from scratch, two views of 1024 images per batch, temperature 0.1, SGD at
    0.5 with weight decay 1e-4, 10 epochs of warm-up and 1000 epochs with a cosine down
    to 1e-3 of the rate; then a linear probe for 100 epochs, SGD at 5 for batches of
    512, times 0.2 after 60, 75 and 90 epochs. At 224x224 it needs eight GPUs with about
    32 GB each; at the 32x32 of CIFAR, one with 16 GB.

    Different here: the probe has batches of 1024 too, and twice the rate; warm-up
    starts at 0; the network is that for ImageNet, whose stem reduces images to a
    quarter.
    """
    config.method.supcon.temperature = 0.1
    _untrained(config, "resnet50")
    _train(config, epochs=100, batch_size=1024)
    _set_stage(
        config.method.supcon.pretrain,
        learning_rate=0.5,
        rate_batch=1024,
        warmup_epochs=10.0,
        final_rate=1e-3,
        epochs=1000,
    )
    _set_stage(
        config.method.supcon.probe,
        learning_rate=5.0,
        rate_batch=512,
        schedule="steps",
        drops=(0.6, 0.75, 0.9),
        drop_factor=0.2,
    )


def dino(config):
    """DINO as in the authors' command for ResNet-50 on one machine with eight GPUs.

    ResNet-50 from scratch, two crops of 224x224 and eight of 96x96 of 512 images per
    batch, an output of 65,536, SGD at 0.03 x batch / 256 with weight decay 1e-4, 10
    epochs of warm-up and 100 epochs with a cosine down to 1e-6; then a linear probe for
    100 epochs, SGD at 0.001 x batch / 256. Needs eight GPUs with about 32 GB each.

    Different here: the probe's epoch is chosen on validation data.
    """
    config.method.dino.output = 65_536
    _untrained(config, "resnet50")
    _train(config, epochs=100, batch_size=512)
    _set_stage(
        config.method.dino.pretrain,
        name="sgd",
        learning_rate=0.03,
        rate_batch=256,
        final_rate=1e-6 / (0.03 * 512 / 256),
        weight_decay=1e-4,
        final_weight_decay=1e-4,
    )
    _set_stage(config.method.dino.probe, learning_rate=0.001, rate_batch=256)


RECIPES = {
    "orcnn": orcnn,
    "coral": coral,
    "corn": corn,
    "poe": poe,
    "gol": gol,
    "mwr": mwr,
    "rnc": rnc,
    "simclr": simclr,
    "supcon": supcon,
    "dino": dino,
}


def _train(config, *, epochs, batch_size):
    """Sets the epochs of stages that are scored, without an early stop."""
    config.train.max_epochs = epochs
    config.train.patience = epochs
    config.train.batch_size = batch_size


def _crop(config, whole, part):
    """Random squares of `part` pixels from images of `whole`."""
    config.data.size = (part, part)
    config.augment.random_crop = 1 - part / whole


def _pretrained(config, name):
    """An ImageNet encoder, downloaded unless encoder.weights names a file."""
    config.encoder.name = name
    config.encoder.weights = f"timm/{name}.tv_in1k"


def _untrained(config, name):
    """An encoder that starts at random."""
    config.encoder.name = name
    config.encoder.weights = "random"


def _set_stage(stage, **values):
    """Sets fields of a stage's own optimizer."""
    for field, value in values.items():
        stage[field] = value
