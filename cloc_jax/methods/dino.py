"""DINO: a student learns from its own moving average, then a probe or full training.

Caron et al., "Emerging Properties in Self-Supervised Vision Transformers", ICCV 2021.
Without labels, a student that sees small and large crops of an image predicts what a
teacher makes of the large ones. The teacher is the moving average of the student's
parameters; its outputs are centered and sharpened so that they do not collapse. Ranks
are learned afterwards on the teacher's encoder.

Differences from the released code:
- The output has 4096 dimensions by default, theirs 65,536: small data needs fewer.
- The probe's rate is SimCLR's by default. Theirs is 100 times smaller and relies on the
  many steps per epoch of ImageNet. Its epoch is chosen on validation data.
- The last layer has no weight decay at any time, not only in the first epoch. Decay
  would not change what it computes, because its weights are scaled to length 1.
- Crops have the areas that the authors use for ResNets, as all encoders here are
  convolutional, but optimizer and rate are those of their vision transformers.
- Small crops are encoded apart from large ones even where both have the same size.
"""

import functools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jaxtyping import Array, Bool, Float

from cloc_jax import losses
from cloc_jax.encoders import Encoder
from cloc_jax.methods import heads, interface, pretraining

LAST_LAYER = "last_layer"  # the parameter group
GLOBAL_CROPS = 2  # that the teacher sees too
AVERAGED = ("encoder", pretraining.PROJECTION, LAST_LAYER)  # what a teacher consists of


class Untrained(nnx.Variable):
    """What gradients and optimizers never see."""


exact_gelu = functools.partial(jax.nn.gelu, approximate=False)  # not by tanh


class LastLayer(nnx.Module):
    """Inner products with directions: a weight-normed layer whose lengths stay 1."""

    def __init__(self, inputs: int, outputs: int, *, rngs: nnx.Rngs):
        # PyTorch's: uniform up to 1 / sqrt(inputs).
        init = nnx.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
        self.kernel = nnx.Param(init(rngs.params(), (inputs, outputs), jnp.float32))

    def __call__(
        self,
        x: Float[Array, "batch inputs"],
        is_frozen: Bool[Array, ""] | bool = False,
    ) -> Float[Array, "batch outputs"]:
        kernel = self.kernel[...]
        kernel = jnp.where(is_frozen, jax.lax.stop_gradient(kernel), kernel)
        return x @ losses.unit_vectors(kernel.T).T


class Teacher(nnx.Module):
    """Copies of the parts of a student, without anything to train."""

    def __init__(self, student: nnx.Module):
        for name in AVERAGED:
            part = nnx.clone(getattr(student, name))
            modules = [
                one for _, one in nnx.iter_graph(part) if isinstance(one, nnx.Module)
            ]
            for module in modules:
                for attribute, value in list(vars(module).items()):
                    if isinstance(value, nnx.Param):
                        setattr(module, attribute, Untrained(value[...]))
            setattr(self, name, part)


class Distilled(pretraining.Pretrained):
    """A student with its teacher, and a linear head on the encoder."""

    def __init__(
        self,
        encoder: Encoder,
        projection: pretraining.Perceptron,
        last_layer: LastLayer,
        num_ranks: int,
        *,
        rngs: nnx.Rngs,
    ):
        super().__init__(encoder, projection, num_ranks, rngs=rngs)
        self.last_layer = last_layer
        self.teacher = Teacher(self)
        self.center = Untrained(jnp.zeros_like(last_layer.kernel[...][:1]))
        # Steps to go until the last layer learns.
        self.frozen_steps = Untrained(jnp.zeros((), jnp.int32))


def dino(
    task: interface.Task,
    *,
    output: int,
    hidden: int,
    bottleneck: int,
    has_norms: bool,
    student_temperature: float,
    teacher_temperature: float,
    momentum: float,
    center_momentum: float,
    frozen_epochs: int,
    local_crops: int,
    local_size: Sequence[int],
    pretrain: Mapping[str, Any],
    **training: Any,
) -> interface.Method:
    """Pretraining and a probe; see `cloc_jax/config.py` for what each setting means."""
    interface.check_range(
        "method.dino",
        0.001,
        student_temperature=student_temperature,
        teacher_temperature=teacher_temperature,
    )
    interface.check_range(
        "method.dino", 0, 1, momentum=momentum, center_momentum=center_momentum
    )
    interface.check_range(
        "method.dino", 1, output=output, hidden=hidden, bottleneck=bottleneck
    )
    interface.check_range(
        "method.dino", 0, local_crops=local_crops, frozen_epochs=frozen_epochs
    )
    if len(local_size) != 2 or min(local_size) < 1:
        raise ValueError(
            f"method.dino.local_size is {tuple(local_size)}; give height and width, "
            "such as (96, 96) where data.size is (224, 224)."
        )
    height, width = local_size

    def init(encoder, rngs):
        projection = pretraining.Perceptron(
            (encoder.features, hidden, hidden, bottleneck),
            has_norms=has_norms,
            norms=2,
            activation=exact_gelu,
            kernel_init=nnx.initializers.truncated_normal(0.02),
            rngs=rngs,
        )
        last_layer = LastLayer(bottleneck, output, rngs=rngs)
        return Distilled(encoder, projection, last_layer, task.num_ranks, rngs=rngs)

    def loss(model, batch, rngs):
        views, where = batch["image"], batch["mask"]
        large = jnp.concatenate(views[:GLOBAL_CROPS])
        # Each size has its own batch statistics, as the authors have it.
        sizes = [large]
        if local_crops:
            sizes.append(jnp.concatenate(views[GLOBAL_CROPS:]))
        student = _outputs(model, sizes, is_frozen=model.frozen_steps[...] > 0)
        teacher, center = _outputs(model.teacher, [large]), model.center[...]
        value = losses.dino(
            student,
            teacher,
            center,
            crops=GLOBAL_CROPS + local_crops,
            student_temperature=student_temperature,
            teacher_temperature=teacher_temperature,
            where=where,
        )
        model.center[...] = losses.dino_center(
            teacher, center, momentum=center_momentum, where=where
        )
        return value, {}

    def enter(model, context, rngs):
        # Only now, as pretrained weights come into the encoder after `init`.
        for name in AVERAGED:
            copy_variables(getattr(model, name), getattr(model.teacher, name))
        steps_per_epoch = context.num_steps // pretrain["epochs"]
        steps = frozen_epochs * steps_per_epoch
        model.frozen_steps[...] = jnp.full((), steps, jnp.int32)

    def after_step(model, step, num_steps):
        share = (1 - momentum) * (1 + jnp.cos(jnp.pi * step / num_steps)) / 2
        follow(model, share)
        model.frozen_steps[...] = jnp.maximum(model.frozen_steps[...] - 1, 0)

    def enter_downstream(model, context, rngs):
        copy_variables(model.teacher.encoder, model.encoder)

    trains: dict[str, Mapping[str, Any]] = dict.fromkeys(
        (*interface.ENCODER, pretraining.PROJECTION), {}
    )
    # Frozen, it must not be decayed either. Later its length plays no part.
    trains[LAST_LAYER] = interface.UNDECAYED
    local = interface.View(size=(height, width), augment="dino_local")
    large_views = (
        interface.View(augment="dino_global_1"),
        interface.View(augment="dino_global_2"),
    )
    first, second = pretraining.two_stages(
        "dino",
        loss,
        pretraining.classify,
        task,
        pretrain=pretrain,
        **training,
        views=(*large_views, *(local,) * local_crops),
        trains=trains,
        enter=enter,
        after_step=after_step,
    )
    stages = (first, second._replace(enter=enter_downstream))
    return interface.Method(
        init, stages, heads.features, pretraining.predict, takes_weights=True
    )


def _outputs(network: Any, sizes: Sequence[Array], **options: Any) -> Array:
    """What a student or teacher makes of crops, given by size."""
    features = jnp.concatenate([network.encoder(images) for images in sizes])
    projected = losses.unit_vectors(network.projection(features))
    return network.last_layer(projected, **options)


def follow(model: Distilled, share: Float[Array, ""]) -> None:
    """Moves the teacher's parameters by a share of the way to the student's."""
    for name in AVERAGED:
        student = nnx.state(getattr(model, name), nnx.Param)
        teacher = nnx.state(getattr(model.teacher, name), Untrained)
        for ours, theirs in _pairs(student, teacher):
            # Where both are the same, as in frozen parts, they stay so to the bit.
            theirs[...] = theirs[...] + share * (ours[...] - theirs[...])


def copy_variables(source: nnx.Module, target: nnx.Module) -> None:
    """Gives `target` the parameters and batch statistics of `source`."""
    for ours, theirs in _pairs(nnx.state(source), nnx.state(target)):
        theirs[...] = jnp.copy(ours[...])


def _pairs(a: Any, b: Any) -> Iterator[tuple[Any, Any]]:
    """Variables at the same places of two modules alike."""
    left, right = nnx.to_flat_state(a), nnx.to_flat_state(b)
    for (_, ours), (_, theirs) in zip(left, right, strict=True):
        yield ours, theirs
