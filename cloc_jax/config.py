"""The whole schema, every field with its default and what it means, and its checks.

Files in configs/ start from this one and state only what differs. A default is the
paper's where the paper gives one; "ours" marks what it leaves open. Override any field
on the command line: `--config.train.batch_size=32`.

`check_settings` refuses what no data and no registry are needed to refuse.
"""

import math
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict, FrozenConfigDict, config_dict

from cloc_jax.runtime import trackers
from cloc_jax.runtime.run_folder import flatten

BATCH_NORMS = ("global", "device", "frozen")
KEPT_DTYPES = ("float16", "float32")
MOST_THREADS = 1024  # of which some thousands would start before the first image
_PROBABILITY = (1.0, "it is a probability")
# Strength of augmentation: the largest, and what a larger one would mean.
AUGMENT_LIMITS = {
    "flip_horizontal": _PROBABILITY,
    "flip_vertical": _PROBABILITY,
    "rotate_degrees": (180.0, "180 degrees either way is every angle"),
    "translate": (0.5, "it is a fraction of the side, and half the image is gone"),
    "scale": (0.9, "0.1 means 0.9 to 1.1 times the size"),
    "shear_degrees": (60.0, "it is in degrees, and 60 tears the image apart"),
    # From a quarter on, the four corners may no longer form a convex shape.
    "perspective": (0.24, "it is a fraction of the side, and corners would cross"),
    "blur_sigma": (50.0, "it is in pixels, and nothing would be left to see"),
    "brightness": (1.0, "1 already turns an image black or white"),
    "contrast": (1.0, "0.1 means 0.9 to 1.1 times the contrast"),
    "saturation": (1.0, "0.1 means 0.9 to 1.1 times the saturation"),
    "hue": (0.5, "half the circle either way is every hue"),
    "random_crop": (0.5, "it is a fraction of the side, and half the image is gone"),
    "autoaugment": _PROBABILITY,
}


def default_config() -> ConfigDict:
    """CLOC with the paper's settings; names no dataset, so it does not run alone."""
    config = ConfigDict()
    config.seed = 0  # of initial weights, margins, batches and augmentation
    # The score a run of this file should reach, for the report.
    config.expect = ""

    config.data = ConfigDict()
    # synthetic, folder (your own images), or koa, idrid, adience, hid, bracs, clap2015,
    # retinamnist: data/<name>/README.md says how to get it.
    config.data.name = ""
    config.data.root = ""  # folder with the images, as the download leaves it
    # Folder that keeps images prepared for reading; "" for the user's cache folder.
    config.data.prepared = ""
    config.data.on_bad_image = "error"  # or skip: go on without, and list them
    # Larger images are refused before they are decoded, as they may be malicious.
    config.data.max_pixels = 89_478_485
    config.data.size = (224, 224)  # height and width the network sees
    config.data.channels = 3  # 1 for grey images, 3 for colour
    # Height and width of a centre crop before resizing; None for the whole image.
    config.data.crop = config_dict.placeholder(tuple)
    config.data.equalize = False  # histogram equalisation after the crop
    # Own images only: rank names, lowest first; () where they start with numbers.
    config.data.order = ()
    # Own images only: a table that grades them, in place of a folder per rank.
    config.data.csv = ""
    # Its columns; "" for a usual name, such as path, label, split, patient.
    config.data.columns = ConfigDict()
    config.data.columns.path = ""  # of the image, below data.root
    config.data.columns.label = ""  # a number or a name
    config.data.columns.split = ""  # train, val or test; no column: carved
    config.data.columns.group = ""  # the patient or subject
    config.data.columns.weight = ""  # how much the image counts in training
    # Boundaries where a mistake matters most, as "lower|upper".
    config.data.critical = ()
    config.data.val_fraction = 0.1  # ours: carved from train where no val is shipped
    config.data.test_fraction = 0.15  # ours: carved where no test is shipped
    # Above 0: this share of the training images becomes a split of its own that
    # nothing is trained or chosen on, for `launch.py decide --guarantee`.
    config.data.calibration_fraction = 0.0
    config.data.merge_val = False  # merge a shipped val into train, then carve
    # Own images and koa: regular expression that finds the patient or subject in a
    # file name, so that no patient is in two splits that are carved.
    config.data.group_pattern = ""
    config.data.fold = 0  # adience, hid: which of five folds is the test part
    config.data.bin = 1  # clap2015: years per class, 1 to 5
    # Training labels made wrong: ("1>2:0.6",) calls 60% of rank 1 rank 2.
    config.data.relabel = ()
    # A number above 0 permutes the training labels at random, by that number: a
    # null against which to read what was learned.
    config.data.permute = 0
    # Of carved splits, biased labels and drawn images; not config.seed.
    config.data.seed = 0
    config.data.num_train = 2000  # drawn images only
    config.data.num_val = 400  # drawn images only
    config.data.num_test = 1000  # drawn images only
    config.data.threads = 2  # that decode and augment
    config.data.cache_gib = 4.0  # keep a split's prepared images in memory up to this

    # All strengths are ours: the paper names the kinds, not how much. 0 is off.
    config.augment = ConfigDict()
    config.augment.flip_horizontal = 0.0  # probability
    config.augment.flip_vertical = 0.0  # probability
    config.augment.rotate_degrees = 0.0  # uniform in [-x, x]
    config.augment.translate = 0.0  # fraction of the side
    config.augment.scale = 0.0  # 0.1: a factor in [0.9, 1.1]
    config.augment.shear_degrees = 0.0  # uniform in [-x, x]
    # How far the corners of every other image move, fraction of the side.
    config.augment.perspective = 0.0
    config.augment.blur_sigma = 0.0  # pixels, uniform in [0, x]
    config.augment.brightness = 0.0  # fraction of the range
    config.augment.contrast = 0.0  # 0.2: a factor in [0.8, 1.2]
    config.augment.saturation = 0.0  # colour images only
    config.augment.hue = 0.0  # fraction of the circle, colour images only
    # Fraction of each side that is cut away at a random place: with size (224, 224),
    # 0.125 resizes to 256x256 and trains on random windows of 224x224. Evaluation and
    # prediction see the window in the centre.
    config.augment.random_crop = 0.0
    # Probability that an image gets a sub-policy of AutoAugment, CIFAR-10's; 0.01 is
    # the paper's for HID. It shifts, turns, posterises, inverts … strongly.
    config.augment.autoaugment = 0.0

    config.encoder = ConfigDict()
    # small (a residual network that starts from scratch), resnet18, resnet34, resnet50
    # (the paper's), vgg16, vgg16_bn or densenet121.
    config.encoder.name = "small"
    # File or hub name of ImageNet weights; "random" to start from scratch. Only small,
    # which has none, may leave it empty. docs/data.md says where to get them.
    config.encoder.weights = ""
    config.encoder.widths = (16, 32, 64, 128)  # ours: small's channels by layer
    config.encoder.pooling = "fc"  # vgg16: fc for fc6 and fc7 (z has 4096), or average
    config.encoder.dtype = "float32"  # or bfloat16, to compute in; weights stay float32
    # Statistics of batch norm in training: global, of the whole batch, so that results
    # do not depend on devices; device, of each device's share, with almost no
    # communication but results depend on mesh.devices; or frozen, the weights' own.
    config.encoder.batch_norm = "global"
    # These three belong to the weights and are filled in from them.
    config.encoder.stride = ""  # 3x3 or 1x1: where resnet50 strides
    config.encoder.epsilon = 0.0  # of batch norm
    config.encoder.preprocessing = ""  # imagenet_rgb, caffe_bgr or signed
    # Keep the encoder as it is: features are computed once, and training takes seconds.
    config.encoder.frozen = False
    # Or keep the parts before this one: layer1 … layer4. Their output is computed once
    # too, unless images are augmented and views is 1.
    config.encoder.trainable_from = ""
    # Kept views of each training image: the clean one, and from 2 on augmented ones.
    config.encoder.views = 1
    # Of what is kept before a trainable part; float16 takes half the room of float32.
    # Features of a frozen encoder, which are small, are float32.
    config.encoder.kept_dtype = "float16"
    config.encoder.cache_gib = 32.0  # the most that kept features may take on disk

    # The head of methods that have no other: an optional projection and a classifier.
    config.head = ConfigDict()
    # Width of a linear projection before contrast and classifier; 0 for none.
    config.head.projection = 0
    config.head.projection_relu = False  # with a ReLU after it, cosines stay above 0
    # Two layers (the paper's), or cosine: a prototype per rank, nearest by cosine; CLOC
    # then asks for its margins between prototypes as well.
    config.head.classifier = "layers"
    config.head.hidden = 256  # ours: width between the classifier's two layers
    # Of the probabilities that the layers give, for methods with a softmax: free, or
    # with a single peak by binomial, poisson or copoc; docs/methods.md has them.
    config.head.shape = "free"

    # Every method has its settings under its own name; those of a method that is not
    # the chosen one must be left alone. docs/methods.md says what each method is.
    config.method = ConfigDict()
    # cloc, ce (cross-entropy alone), orcnn, poe, gol, mwr, rnc, simclr, supcon, dino,
    # coral, corn, sord, clm, soft_labels, cdw_ce, squared_emd, slace, weighted_kappa or
    # orcu.
    config.method.name = "cloc"
    config.method.cloc = _cloc()
    for name in ("ce", "orcnn", "coral", "corn", "squared_emd"):
        config.method[name] = ConfigDict()  # nothing to set
    _set_embedding_methods(config.method)
    _set_pretraining_methods(config.method)
    _set_softmax_methods(config.method)

    config.optimizer = ConfigDict()
    config.optimizer.name = "adam"  # adam or adamw (the same), sgd, or lars
    config.optimizer.learning_rate = 1e-3  # of all groups without their own
    # Of the encoder's parameters; None for the same as the rest.
    config.optimizer.encoder_learning_rate = config_dict.placeholder(float)
    # constant, cosine (down to final_rate times the rate at the stage's last possible
    # epoch), or steps (times drop_factor after each of `drops`).
    config.optimizer.schedule = "constant"
    config.optimizer.final_rate = 0.0  # of cosine, as a fraction of the rate
    config.optimizer.drops = ()  # of steps: fractions of the stage, such as (0.6, 0.8)
    config.optimizer.drop_factor = 0.1  # of steps
    config.optimizer.warmup_epochs = 0.0  # from 0 up to the rate
    config.optimizer.momentum = 0.9  # of sgd and lars
    # Decoupled for adam, part of the gradient for sgd and lars; never on margins.
    config.optimizer.weight_decay = 0.0
    # At the stage's end, by a cosine from weight_decay; None to keep it.
    config.optimizer.final_weight_decay = config_dict.placeholder(float)
    config.optimizer.decay_vectors = True  # False: no decay of biases and norms
    config.optimizer.clip_norm = 0.0  # largest norm of a gradient; 0 for any
    config.optimizer.clip_per_tensor = False  # of each array, not of all together

    config.log = ConfigDict()
    # Trackers of experiments that curves and scores go to: tensorboard, in the run's
    # folder, mlflow and wandb, both on this machine unless their variables say where.
    config.log.to = ("tensorboard",)

    config.mesh = ConfigDict()
    # Over which a batch is split; 0 for all there are.
    config.mesh.devices = 0
    # Two numbers with that product: copies of the large parameters, and the parts that
    # each is split into, which saves memory and costs communication. With 8 devices,
    # (1, 8) splits over all, (2, 4) suits groups of four that talk fast; () copies all.
    config.mesh.shape = ()

    config.train = ConfigDict()
    config.train.batch_size = 64  # ours; even, 4 or more
    config.train.max_epochs = 500  # of each stage that is scored
    config.train.patience = 10  # epochs without improvement that end such a stage
    config.train.monitor = "mae"  # ours: the validation metric that must improve
    config.train.sampling = "natural"  # ours: natural, or balanced over ranks
    # How much an image counts in the loss: "balanced", so that all ranks count alike,
    # or one number per rank, such as (1, 2, 1, 1, 1); () for every image alike.
    config.train.rank_weights = config_dict.FieldReference((), field_type=object)
    config.train.boundary_weights = ()  # of orcnn, coral and corn: one per boundary
    config.train.eval_batch_size = 256  # ours; changes no result
    config.train.log_steps = 20  # steps between two looks at the loss
    config.train.checkpoint_steps = 500  # besides one at the end of each epoch
    return config


def _cloc() -> ConfigDict:
    """CLOC: cross-entropy and the multi-margin n-pair loss (MMNP), in two phases."""
    cloc = ConfigDict()
    # "learn", "shared", a number, or a list with one entry per boundary, such as
    # ["learn", 0.8, "learn=0.7", "learn>=0.2"]: learned, fixed, start, floor.
    cloc.margins = config_dict.FieldReference("learn", field_type=object)
    cloc.rho = 0.0  # floor of learned margins; needs margin_budget=0
    cloc.margin_start = (0.5, 1.0)  # learned margins start uniform in [a, b)
    # Of learned margins: softplus, or relu, which can reach 0 and merge two ranks.
    cloc.margin_form = "softplus"
    # Ours: learned margins are proportions, with a mean of this over the number of
    # boundaries, so that images can keep them; fixed ones keep their values. Cosines
    # allow sums up to 2 after a signed projection and 1 after a ReLU. 0, the paper's:
    # learned margins are free, and sum to more than that at the start.
    cloc.margin_budget = 0.25
    cloc.margin_optimizer = ""  # adam or sgd; "" for the same as the rest
    # Of the margins; None for the same as the rest.
    cloc.margin_learning_rate = config_dict.placeholder(float)
    cloc.weight = 1.0  # loss = cross-entropy + weight x MMNP
    # mean: over triplets (ours); paper: sum per anchor; official: as released.
    cloc.reduction = "mean"
    # How MMNP is computed, the same value in each: dense, sorted, blockwise for huge
    # batches, or auto for what suits the batch and the devices.
    cloc.algorithm = "auto"
    # Where the contrast acts: embedding (paper), hidden or logits (released README).
    cloc.contrast = "embedding"
    cloc.stop_accuracy = 0.95  # clean train accuracy that ends phase one
    cloc.phases = 2  # 1 ends after phase one, to study margins alone
    # phase_one refines what phase one learned, pretrained starts the network anew and
    # keeps only the margins; the paper says both.
    cloc.phase_two_init = "phase_one"
    return cloc


def _set_embedding_methods(methods: ConfigDict) -> None:
    """Methods that place an image among others by its embedding."""
    # POE: every image a Gaussian, whose distances follow the order of the ranks.
    poe = methods.poe = ConfigDict()
    poe.width = 0  # of the Gaussians; 0 for the encoder's width
    poe.samples = 50  # drawn from each Gaussian in training
    poe.dropout = 0.5  # of the features, and of each sample
    poe.divergence_weight = 1e-4  # of the divergence from a standard Gaussian
    poe.order_weight = 1e-4  # of the hinge on triplets
    poe.margin = 5.0  # of that hinge
    poe.distance = "j"  # of Gaussians: j, wasserstein, bhattacharyya or hellinger

    # GOL: order and metric losses on reference points, prediction by kNN.
    gol = methods.gol = ConfigDict()
    gol.width = 128  # ours: of the projection that makes embeddings signed
    gol.margin = 0.25  # of the metric loss
    gol.tau = 0  # ranks up to this far apart count as alike
    gol.pairs = 0  # per batch; 0 for half as many as images
    # Numbers of neighbours, of which the best on validation data is taken.
    gol.neighbours = (2, 4, 6, 8, 10, 14, 18, 24, 30, 40, 50, 58)

    # MWR: the place between two reference images, in a window that moves.
    mwr = methods.mwr = ConfigDict()
    mwr.hidden = 512  # width of the two layers that compare three images
    mwr.dropout = 0.5  # before the last layer
    mwr.references = 5  # ours: pairs of reference images per rank, 1 to 64


def _set_pretraining_methods(methods: ConfigDict) -> None:
    """Methods that pretrain the encoder, then learn ranks by a linear probe."""
    # RnC: pretraining by ranked distances, then a linear regression.
    rnc = methods.rnc = ConfigDict()
    rnc.temperature = 2.0  # of distances between features
    rnc.augment = "rnc"  # as for simclr
    rnc.downstream = "probe"  # or full, as for simclr
    # The authors': 0.5 at batch 256, 400 epochs, and 0.05 at batch 64.
    rnc.pretrain = _stage("sgd", 0.1, epochs=100, weight_decay=1e-4)
    rnc.probe = _stage("sgd", 0.05, epochs=100)

    # SimCLR: contrastive pretraining without labels, then a linear probe.
    simclr = methods.simclr = ConfigDict()
    simclr.temperature = 0.5  # the authors': 0.5 for small data, 0.1 for ImageNet
    simclr.width = 128  # of the projection that the contrast acts on
    simclr.hidden = 0  # of its inner layers; 0 for the encoder's width
    # How the two views are made: simclr or rnc, the authors' recipes, whose crops may
    # cut away what decides the rank; or default, for config.augment.
    simclr.augment = "simclr"
    # probe: a linear classifier on the frozen encoder; full: the encoder is trained on.
    simclr.downstream = "probe"
    # The authors': rates of 0.3 and 0.1 times batch / 256.
    simclr.pretrain = _stage(
        "lars", 0.075, epochs=100, warmup_epochs=10.0, weight_decay=1e-6
    )
    simclr.probe = _stage("sgd", 0.025, epochs=90)

    # SupCon: contrastive pretraining with ranks, then a linear probe.
    supcon = methods.supcon = ConfigDict()
    supcon.temperature = 0.1  # the authors' README; 0.07 in their code
    supcon.base_temperature = 0.07  # the loss is scaled by temperature over this
    supcon.width = 128  # of the projection that the contrast acts on
    supcon.augment = "rnc"  # as for simclr; the authors' are the same
    supcon.downstream = "probe"  # or full, as for simclr
    # The authors': 0.05 at batch 256 for 1000 epochs, and 5 at batch 512.
    supcon.pretrain = _stage("sgd", 0.05, epochs=100, weight_decay=1e-4)
    supcon.probe = _stage("sgd", 0.5, epochs=100)

    # DINO: pretraining by a teacher that follows its student, then a linear probe.
    dino = methods.dino = ConfigDict()
    dino.output = 4096  # ours, for small data; the authors' is 65536
    dino.hidden = 2048  # of the projection's inner layers
    dino.bottleneck = 256  # of its last, before the output
    dino.has_norms = False  # batch norms in the projection; may help on small data
    dino.student_temperature = 0.1  # of the student's softmax
    dino.teacher_temperature = 0.04  # lower: sharper targets
    # Of the teacher, at the start; it rises to 1 by a cosine.
    dino.momentum = 0.996
    dino.center_momentum = 0.9  # of the mean output that is subtracted
    dino.frozen_epochs = 1  # in which the last layer does not learn
    dino.local_crops = 8  # small crops, besides two large ones of data.size
    # Height and width of small crops; 3/7 of data.size, so this is for (224, 224).
    dino.local_size = (96, 96)
    dino.downstream = "probe"  # or full, as for simclr
    # The authors': 5e-4 times batch / 256, down to 1e-6.
    dino.pretrain = _stage(
        "adamw", 1.25e-4, epochs=100, warmup_epochs=10.0, weight_decay=0.04
    )
    dino.pretrain.final_rate = 0.008
    dino.pretrain.final_weight_decay = 0.4
    dino.pretrain.decay_vectors = False
    dino.pretrain.clip_norm = 3.0
    dino.pretrain.clip_per_tensor = True
    # Ours, as for simclr; the authors': 0.001 times batch / 256.
    dino.probe = _stage("sgd", 0.025, epochs=100)


def _set_softmax_methods(methods: ConfigDict) -> None:
    """Methods with a loss of their own on the classifier's outputs."""
    # SORD: soft labels that fall with the distance of ranks.
    sord = methods.sord = ConfigDict()
    sord.alpha = 1.0  # larger: closer to plain labels
    sord.distance = "squared"  # or absolute

    # CLM: a cumulative link model with learned thresholds.
    clm = methods.clm = ConfigDict()
    clm.first = 0.0  # where the lowest threshold starts
    clm.gap = 2.0  # between thresholds at the start
    # Of the thresholds; about what Adam moves one per step at most; None: as the rest.
    clm.threshold_learning_rate = config_dict.placeholder(float)

    # Soft labels that follow a unimodal distribution.
    soft_labels = methods.soft_labels = ConfigDict()
    # binomial, poisson, triangular, beta or geometric; exponential ones are sord's.
    soft_labels.kind = "triangular"
    # Of triangular, what each neighbour gets; of geometric, what all others get.
    soft_labels.alpha = 0.05

    # CDW-CE: cross-entropy of wrong ranks, weighted by their distance.
    cdw_ce = methods.cdw_ce = ConfigDict()
    cdw_ce.alpha = 5.0  # power of the distance; the authors': 5 to 7
    cdw_ce.margin = 0.0  # a wrong rank below this probability costs nothing

    # SLACE: soft labels against accumulated probabilities.
    slace = methods.slace = ConfigDict()
    slace.alpha = 1.0  # larger: closer to plain labels

    # Weighted kappa: 1 minus it, over a whole batch.
    weighted_kappa = methods.weighted_kappa = ConfigDict()
    weighted_kappa.penalty = "quadratic"  # or linear, in the distance of ranks
    weighted_kappa.log = False  # its logarithm

    # ORCU: soft labels and a barrier that keeps probabilities unimodal.
    orcu = methods.orcu = ConfigDict()
    orcu.strength = 3.0  # the authors' t: slope of the barrier where it is violated


def _stage(
    optimizer: str,
    learning_rate: float,
    *,
    epochs: int,
    warmup_epochs: float = 0.0,
    weight_decay: float = 0.0,
) -> ConfigDict:
    """A stage with its own optimizer: settings that go before config.optimizer's."""
    stage = ConfigDict()
    stage.name = optimizer
    stage.learning_rate = learning_rate
    # Batch size of the rate, which is scaled linearly with train.batch_size; 0 for any.
    stage.rate_batch = 64
    stage.schedule = "cosine"
    stage.final_rate = 0.0
    stage.drops = ()
    stage.drop_factor = 0.1
    stage.warmup_epochs = warmup_epochs
    stage.weight_decay = weight_decay
    stage.epochs = epochs  # at most
    return stage


# --- what several files in configs/ share ---


def check_variant(given: str, *known: str) -> None:
    """ValueError where --config=FILE.py:given names no variant of that file."""
    if given not in known:
        some = ", ".join(f":{name}" if name else "none" for name in known)
        raise ValueError(
            f"this configuration has no variant {given!r}; it has {some}, given as "
            f"--config=FILE.py:{known[-1]}."
        )


def start_config(variant: str) -> tuple[ConfigDict, bool]:
    """The defaults, and whether the encoder is to be frozen, as FILE.py:VARIANT asks.

    frozen and literal can be joined by a comma: literal leaves margins as free as in
    the paper, where next to no image keeps them.
    """
    variants = variant.split(",")
    for one in variants:
        check_variant(one, "", "frozen", "literal")
    config = default_config()
    if "literal" in variants:
        config.method.cloc.margin_budget = 0.0
    return config, "frozen" in variants


def use_imagenet_encoder(config: ConfigDict) -> None:
    """Sets the paper's encoder, a ResNet-50 whose ImageNet weights are downloaded."""
    config.encoder.name = "resnet50"
    config.encoder.weights = "timm/resnet50.tv_in1k"


def freeze_encoder(config: ConfigDict, *, max_epochs: int = 500) -> None:
    """Sets that encoder to stay as its weights are, for training in minutes."""
    use_imagenet_encoder(config)
    config.encoder.frozen = True
    config.head.projection = 128  # features cannot move, so the contrast needs it
    config.optimizer.learning_rate = 3e-4
    config.train.batch_size = 256
    config.train.max_epochs = max_epochs


# --- values given by users and files ---


def set_fields(config: ConfigDict, values: Mapping[str, Any]) -> None:
    """Sets fields by dotted name, such as {"method.cloc.weight": 0.5}, in place."""
    config.lock()  # a field that it lacks is an error
    try:
        config.update_from_flattened_dict(dict(values))
    except (KeyError, TypeError, ValueError) as error:
        text = str(error).strip("'\"").replace("\\n", " ")
        raise ValueError(
            f"settings has something that cloc_jax/config.py does not: {text}"
        ) from None


def saved_config(values: Mapping[str, Any]) -> ConfigDict:
    """The configuration that a config.json holds, typed as the schema; it is locked."""
    config = default_config()
    config.lock()
    for name, value in flatten(values).items():
        *groups, field = name.split(".")
        part = config
        try:
            for group in groups:
                part = part[group]
            part[field] = tuple(value) if isinstance(value, list) else value
        except (KeyError, TypeError):
            raise ValueError(
                f"config.json has {name}={value!r}, which this version does not "
                "understand; use the version of cloc_jax that wrote it."
            ) from None
    return config


def with_absolute_places(config: ConfigDict) -> ConfigDict:
    """The configuration, changed in place: its folders mean the same from anywhere."""
    for place in ("root", "prepared"):
        if config.data[place]:
            config.data[place] = os.path.abspath(os.path.expanduser(config.data[place]))
    return config


# --- checks ---


def check_settings(config: ConfigDict, methods: Collection[str] = ()) -> None:
    """ValueError, with what to do, where a setting makes no sense.

    Settings of methods that are not among `methods`, if any are given, are refused.
    """
    if methods:
        _check_unused_methods(config, methods)
    _check_finite(config)
    _check_augment(config)
    _check_data(config)
    if not all(type(size) is int for size in config.mesh.shape):
        raise ValueError(
            f"mesh.shape is {config.mesh.shape}; it is two whole numbers, such as "
            "(2, 4) for 8 devices, or ()."
        )
    _check_encoder(config)
    trackers.check(config.log.to)
    counts = ("eval_batch_size", "log_steps", "checkpoint_steps")
    check_range("train", 1, **{name: config.train[name] for name in counts})


def _check_unused_methods(config: ConfigDict, methods: Collection[str]) -> None:
    """Settings of methods that are not the chosen one are there by mistake."""
    defaults = default_config().method
    for name in defaults:
        if name in methods or name == "name":
            continue
        default = defaults[name].to_dict()
        given = config.method[name].to_dict().items()
        changed = [f"method.{name}.{k}" for k, value in given if value != default[k]]
        if changed:
            raise ValueError(
                f"{', '.join(changed)} is set, but method.name is "
                f"{', '.join(sorted(methods))}, which does not use it; leave it out or "
                f"set method.name={name}."
            )


def _check_finite(config: ConfigDict) -> None:
    odd = [
        f"{name} is {value}"
        for name, values in flatten(config.to_dict()).items()
        for value in (values if isinstance(values, list | tuple) else [values])
        if isinstance(value, float) and not math.isfinite(value)
    ]
    if odd:
        raise ValueError(f"{', '.join(odd)}; use a finite number.")


def _check_augment(config: ConfigDict) -> None:
    for name, (most, why) in AUGMENT_LIMITS.items():
        value = config.augment[name]
        if not 0 <= value <= most:
            raise ValueError(
                f"augment.{name} is {value!r}; give a number from 0 to {most:g} "
                f"({why})."
            )


def _check_data(config: ConfigDict) -> None:
    data = config.data
    for field, seed in (("seed", config.seed), ("data.seed", data.seed)):
        if not 0 <= seed < 2**32:
            raise ValueError(f"{field} is {seed}; use a number from 0 to 2**32 - 1.")
    check_range("data", 0, permute=data.permute)
    counts = ("threads", "max_pixels", "num_train", "num_val", "num_test")
    check_range("data", 1, **{name: data[name] for name in counts})
    if data.threads > MOST_THREADS:
        raise ValueError(
            f"data.threads is {data.threads}; use {MOST_THREADS} at most, and about "
            "as many as there are cores."
        )
    if not all(isinstance(name, str) for name in data.critical):
        raise ValueError(
            f"data.critical is {data.critical}; it names boundaries, such as ('1|2',)."
        )
    if not _are_sides(data.size, least=16):
        raise ValueError(
            f"data.size is {tuple(data.size)}; it is (height, width), whole numbers, "
            "each at least 16."
        )
    if data.channels not in (1, 3):
        raise ValueError(
            f"data.channels is {data.channels}; use 1 for grey or 3 for colour."
        )
    if data.crop and not _are_sides(data.crop, least=1):
        raise ValueError(
            f"data.crop is {tuple(data.crop)}; it is (height, width), whole numbers, "
            "or None."
        )


def _check_encoder(config: ConfigDict) -> None:
    encoder = config.encoder
    check_choice("encoder.batch_norm", encoder.batch_norm, BATCH_NORMS)
    check_choice("encoder.kept_dtype", encoder.kept_dtype, KEPT_DTYPES)
    if encoder.frozen and encoder.trainable_from:
        raise ValueError(
            "encoder.frozen keeps the whole encoder and encoder.trainable_from="
            f"{encoder.trainable_from} only its first parts; set one of them."
        )
    check_range("encoder", 1, views=encoder.views)
    if encoder.views > 1 and not (encoder.frozen or encoder.trainable_from):
        raise ValueError(
            f"encoder.views is {encoder.views}, which counts kept views of images, but "
            "no part of the encoder is frozen; set encoder.frozen=True, "
            "encoder.trainable_from, or views=1."
        )


def check_range(
    section: str, least: int | float, most: int | float = math.inf, **settings: Any
) -> None:
    """ValueError where a setting of that section is not from `least` to `most`."""
    for name, value in settings.items():
        if not least <= value <= most:
            wanted = (
                f"{least:g} or more" if most == math.inf else f"{least:g} to {most:g}"
            )
            raise ValueError(f"{section}.{name} is {value}; use {wanted}.")


def check_choice(name: str, value: str, choices: Collection[str]) -> None:
    """ValueError where a setting is none of its choices."""
    if value not in choices:
        raise ValueError(f"{name} is {value!r}; use one of {', '.join(choices)}.")


def _are_sides(pair: Sequence, *, least: int) -> bool:
    """Whether it is a height and a width."""
    return len(pair) == 2 and all(type(side) is int and side >= least for side in pair)


def frozen_part(
    config: ConfigDict, *sections: str, **changes: Mapping[str, Any]
) -> FrozenConfigDict:
    """Some sections of a configuration, which can be a key of what is cached.

    `changes` are settings by section that take the place of the configuration's own.
    """
    plain = {name: config.to_dict()[name] for name in sections}
    for name, settings in changes.items():
        plain[name] = plain[name] | settings
    return FrozenConfigDict(plain)
