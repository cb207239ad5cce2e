"""The loss of DINO: a student predicts a teacher's output on other crops.

Caron et al., "Emerging Properties in Self-Supervised Vision Transformers", ICCV 2021.
"""

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from . import masks
from .multi_margin import AnyArray, widened

# Crops that the teacher sees, the first of the student's.
_TEACHER_CROPS = 2


def dino(
    student: Float[AnyArray, "student_rows out"],
    teacher: Float[AnyArray, "teacher_rows out"],
    center: Float[AnyArray, "1 out"],
    *,
    crops: int,
    student_temperature: float,
    teacher_temperature: float | Float[Array, ""],
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, ""]:
    """Cross-entropy of the student's crops with the teacher's, in at least float32.

    With t_u = softmax((teacher_u - center) / teacher_temperature) for the two global
    crops u and s_v = log softmax(student_v / student_temperature) for all crops v, the
    mean of -t_u . s_v over the batch and the 2 crops - 2 pairs of different crops.
    There are no gradients with respect to the teacher and the center.

    Args:
      student: [crops * batch, out], all rows of the first crop first; the first two
        crops are the teacher's.
      teacher: [2 * batch, out], in the same order.
      teacher_temperature: may be an array, as its schedule changes it.
      where: False for samples that are padding, and take no part in any of their crops.
    """
    student, teacher, center = map(widened, (student, teacher, center))
    batch, rest = divmod(teacher.shape[0], _TEACHER_CROPS)
    if crops < _TEACHER_CROPS or student.shape[0] != crops * batch or rest:
        raise ValueError(
            f"dino got {student.shape[0]} rows of {crops} crops from the student and "
            f"{teacher.shape[0]} rows of {_TEACHER_CROPS} crops from the teacher; it "
            f"takes at least {_TEACHER_CROPS} crops, of the same samples."
        )
    student, teacher = _by_sample(student, crops), _by_sample(teacher, _TEACHER_CROPS)
    where, student, teacher = masks.mask_rows(where, student, teacher)
    targets = jax.nn.softmax((teacher - center[None]) / teacher_temperature)
    targets = jax.lax.stop_gradient(targets)
    logs = jax.nn.log_softmax(student / student_temperature)
    pairs = jnp.einsum("buo,bvo->buv", targets, logs, precision="highest")
    differ = ~jnp.eye(_TEACHER_CROPS, crops, dtype=bool)[None]
    losses = -jnp.sum(pairs, axis=(1, 2), where=differ)
    return masks.mean(losses, where) / (_TEACHER_CROPS * (crops - 1))


def dino_center(
    teacher: Float[AnyArray, "teacher_rows out"],
    center: Float[AnyArray, "1 out"],
    *,
    momentum: float,
    where: Bool[AnyArray, "batch"] | None = None,
) -> Float[Array, "1 out"]:
    """The center for the next step: momentum * center + (1 - momentum) * mean.

    The mean is that of the teacher's rows, as `dino` takes them, without padding (where
    False). A batch of nothing but padding leaves the center as it is. No gradients.
    """
    teacher, center = widened(teacher), widened(center)
    where, teacher = masks.mask_rows(where, _by_sample(teacher, _TEACHER_CROPS))
    count = jnp.sum(where) * _TEACHER_CROPS
    mean = jnp.sum(teacher, axis=(0, 1))[None] / jnp.maximum(count, 1)
    mean = jnp.where(count > 0, mean, center)
    return jax.lax.stop_gradient(momentum * center + (1 - momentum) * mean)


def _by_sample(rows, crops):
    """[crops * batch, out] as [batch, crops, out]."""
    return jnp.swapaxes(rows.reshape(crops, -1, rows.shape[1]), 0, 1)
