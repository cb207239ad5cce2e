"""CLOC: cross-entropy plus the multi-margin n-pair loss, in two phases.

Phase one ("joint") trains network and margins until the training data are nearly
learned; phase two ("refine") the network alone, until validation stops improving.

There is one positive margin for each boundary between neighbouring ranks: learnable,
fixed at a value, or learnable above a floor; all boundaries may share one value. What a
person writes (`method.cloc.margins`) becomes a list of `Margin`, and that a module.
"""

import functools
import math
import re
from collections.abc import Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from jaxtyping import Array, Float

from cloc_jax import losses
from cloc_jax.methods import heads, interface
from cloc_jax.runtime import sharding

MARGINS = "margins"  # the parameter group
FORMS = ("softplus", "relu")
COUNTED = 64  # anchors of a batch whose triplets are counted for the history
LEARN = re.compile(r"\s*learn\s*(?:=\s*([^>=\s]+))?\s*(?:>=\s*(\S+))?\s*")
HOW_TO = (
    'Write "learn" (one learnable value per boundary), "shared" (one for all), a '
    'number (fixed for all), or a list with one entry per boundary, each "learn", '
    '"learn=0.7" (start), "learn>=0.2" (floor), "learn=0.7>=0.2", or a number.'
)


class Margin(NamedTuple):
    """One boundary's margin as asked for."""

    kind: str  # "learned", "floored" or "fixed"
    value: float | None  # fixed: the value; learned: the start, None to draw it
    floor: float = 0.0


def parse(
    spec: object,
    num_boundaries: int,
    *,
    floor: float = 0.0,
    start: tuple[float, float] = (0.5, 1.0),
) -> list[Margin]:
    """Margins as a person writes them: one if it is shared, else one per boundary.

    `floor`, the paper's rho, is for every learnable margin that names none.
    """
    low, high = start
    if not 0 < low < high < math.inf:
        raise ValueError(
            f"method.cloc.margin_start is {tuple(start)}; it is the range of start "
            "values and needs 0 < low < high, such as (0.5, 1.0)."
        )
    interface.check_range("method.cloc", 0, rho=floor)
    if isinstance(spec, list | tuple):
        if len(spec) != num_boundaries:
            raise ValueError(
                f"method.cloc.margins has {len(spec)} entries, but "
                f"{num_boundaries + 1} ranks have {num_boundaries} boundaries. "
                f"{HOW_TO}"
            )
        return [_parse_one(e, floor, start, f"[{i}]") for i, e in enumerate(spec)]
    if isinstance(spec, str) and spec.strip().startswith("shared"):
        return [_parse_one(spec.replace("shared", "learn"), floor, start, "")]
    return [_parse_one(spec, floor, start, "")] * num_boundaries


def _parse_one(
    entry: object, floor: float, start: tuple[float, float], index: str
) -> Margin:
    name = f"method.cloc.margins{index}"
    match = LEARN.fullmatch(entry) if isinstance(entry, str) else None
    if not match:
        return Margin("fixed", _number(entry, name))
    given = None if match[1] is None else _number(match[1], name)
    least = floor if match[2] is None else _number(match[2], name, least=0.0)
    if given is not None and given <= least:
        raise ValueError(
            f"{name} is {entry!r}: the start {given:g} is not above the floor "
            f"{least:g}; start higher or lower the floor."
        )
    margin = Margin("floored" if least else "learned", given, least)
    _lowest_start(margin, start)
    return margin


def _number(text: Any, name: str, least: float = math.ulp(0.0)) -> float:
    try:
        value = float(text)
    except (TypeError, ValueError):
        raise ValueError(f"{name} has {text!r}, not a margin. {HOW_TO}") from None
    if not least <= value < math.inf:
        raise ValueError(
            f"{name} has {value:g}; a margin or its floor must be a positive, finite "
            "number. A margin of 0 would merge two ranks; for almost none use 0.01."
        )
    return value


def _lowest_start(entry: Margin, start: tuple[float, float]) -> float:
    """Lower end of the range from which this margin's start is drawn."""
    if entry.kind == "fixed" or entry.value is not None:
        return start[0]
    low = max(start[0], entry.floor + 0.01)  # softplus only nears its floor
    if low >= start[1]:
        raise ValueError(
            f"a margin with floor {entry.floor:g} cannot start in "
            f"[{start[0]:g}, {start[1]:g}): give it a start, such as "
            f'"learn={entry.floor + 0.5:g}>={entry.floor:g}", or raise '
            "method.cloc.margin_start."
        )
    return low


class Constant(nnx.Variable):
    """An array that belongs to the model but is never trained."""


class Margins(nnx.Module):
    """The margins of a model: `where(fixed, value, floor + softplus(theta))`.

    Fixed and learned margins share the leaf `theta`, which the optimizer cannot split,
    so a fixed one ignores its entry and gets gradient 0. A single `Margin` is shared.

    The form "softplus" stays above the floor; "relu" can get stuck on it. `budget` is,
    above 0, what all margins would sum to if all were learned: learned ones are scaled
    to the mean budget / num_boundaries, fixed ones keep their values.
    """

    def __init__(
        self,
        margins: Sequence[Margin],
        num_boundaries: int,
        *,
        start: tuple[float, float] = (0.5, 1.0),
        form: str = "softplus",
        budget: float = 0.0,
        rngs: nnx.Rngs,
    ):
        draws = jax.random.uniform(rngs.params(), (len(margins),), jnp.float32)
        low = np.array([_lowest_start(m, start) for m in margins])
        given = np.array([math.nan if m.value is None else m.value for m in margins])
        floor = np.array([m.floor for m in margins])
        fixed = np.array([m.kind == "fixed" for m in margins])
        drawn = jnp.asarray(low, jnp.float32) + draws * (
            jnp.asarray(start[1] - low, jnp.float32)
        )
        above = jnp.where(
            np.isnan(given), drawn - floor, np.nan_to_num(given) - floor
        ).astype(jnp.float32)
        theta = above if form == "relu" else heads.inverse_softplus(above)
        self.theta = nnx.Param(theta)
        self.fixed = Constant(jnp.asarray(fixed))
        self.value = Constant(jnp.asarray(np.where(fixed, given, 1), jnp.float32))
        self.floor = Constant(jnp.asarray(floor, jnp.float32))
        self.num_boundaries = num_boundaries
        self.form, self.budget = form, budget if not fixed.all() else 0.0

    def __call__(self) -> Float[Array, "boundaries"]:
        above = getattr(jax.nn, self.form)(self.theta[...])
        learned = self.floor[...] + above
        if self.budget:
            mean = jnp.mean(learned, where=~self.fixed[...])
            learned *= self.budget / self.num_boundaries / mean
        values = jnp.where(self.fixed[...], self.value[...], learned)
        return jnp.broadcast_to(values, (self.num_boundaries,))


def cloc(
    task: interface.Task,
    *,
    stop_accuracy: float,
    phases: int,
    phase_two_init: str,
    margins: object,
    rho: float,
    margin_start: tuple[float, float],
    margin_form: str,
    margin_budget: float,
    weight: float,
    reduction: str,
    algorithm: str,
    contrast: str,
    margin_optimizer: str,
    margin_learning_rate: float | None,
) -> interface.Method:
    """The paper's method; see `cloc_jax/config.py` for what each setting means."""
    boundaries, head = task.num_ranks - 1, task.head
    entries = parse(margins, boundaries, floor=rho, start=margin_start)
    interface.check_range("method.cloc", 0, weight=weight, margin_budget=margin_budget)
    interface.check_range("method.cloc", 0, stop_accuracy=stop_accuracy)
    if margin_budget and any(entry.floor for entry in entries):
        raise ValueError(
            f"method.cloc.margin_budget is {margin_budget:g}, which scales learned "
            "margins, so a floor below them would not hold; set "
            "method.cloc.margin_budget=0 with method.cloc.rho or learn>=…."
        )
    interface.check_range("method.cloc", 1, 2, phases=phases)
    for name, value, choices in (
        ("contrast", contrast, heads.CONTRASTS),
        ("reduction", reduction, losses.REDUCTIONS),
        ("algorithm", algorithm, losses.ALGORITHMS),
        ("margin_form", margin_form, FORMS),
        ("phase_two_init", phase_two_init, ("phase_one", "pretrained")),
    ):
        interface.check_choice(f"method.cloc.{name}", value, choices)
    if head.classifier == "cosine" and contrast == "hidden":
        raise ValueError(
            "method.cloc.contrast is hidden, but a cosine classifier has no hidden "
            "layer; use embedding or logits, or head.classifier=layers."
        )

    if task.is_encoder_frozen and contrast == "embedding" and not head.projection:
        raise ValueError(
            "encoder.frozen keeps the features, and with method.cloc.contrast="
            "embedding and head.projection=0 the contrast acts on nothing else, so it "
            "would train nothing; set head.projection, such as 128."
        )

    options: dict[str, Any] = {"reduction": reduction, "algorithm": algorithm}
    mmnp = sharding.over_batch(functools.partial(losses.mmnp, **options), task.mesh)

    def init(encoder, rngs):
        inner = heads.Head(encoder.features, task.num_ranks, head, rngs=rngs)
        network = heads.Network(encoder, inner)
        network.margins = Margins(
            entries,
            boundaries,
            start=margin_start,
            form=margin_form,
            budget=margin_budget,
            rngs=rngs,
        )
        return network

    def loss(model, batch, rngs):
        outputs = model(batch["image"])
        values, logits = model.margins(), outputs.logits
        if head.classifier == "cosine":
            # Every other rank's cosine gets its margin added, so that the right one
            # has to win by as much. The margins themselves learn from MMNP only.
            place = losses.positions(jax.lax.stop_gradient(values))
            apart = jnp.abs(place[batch["label"]][:, None] - place[None])
            logits = logits + model.head.prototypes.scale() * apart
        entropy, scalars = heads.cross_entropy(logits, batch)
        contrasted, mask = getattr(outputs, contrast), batch["mask"]
        contrast_loss = mmnp(contrasted, batch["label"], values, mask)
        kept = losses.kept_triplets(
            contrasted, batch["label"], values, where=mask, anchors=COUNTED
        )
        return entropy + weight * contrast_loss, scalars | {
            "mmnp": contrast_loss,
            interface.KEPT_TRIPLETS: interface.Share(*kept),
        }

    def enter_refine(model, context, rngs):
        if phase_two_init == "pretrained":
            fresh = context.initial()
            nnx.update(model.encoder, nnx.state(fresh.encoder))
            nnx.update(model.head, nnx.state(fresh.head))

    def readouts(model):
        # Cosines of features behind a ReLU lie in [0, 1], others in [-1, 1].
        is_signed = {
            "embedding": not head.projection_relu
            and (head.projection > 0 or model.encoder.is_signed),
            "hidden": False,
            "logits": True,
        }[contrast]
        readout = interface.Readout(
            model.margins(),
            kinds=tuple(e.kind for e in entries) * (boundaries // len(entries)),
            limit=2.0 if is_signed else 1.0,
            is_of_embeddings=contrast == "embedding",
        )
        return {"margins": readout}

    # Weight decay would pull the margins towards softplus(0), about 0.69.
    of_margins: dict[str, Any] = dict(interface.UNDECAYED)
    if margin_optimizer:
        of_margins["name"] = margin_optimizer
    if margin_learning_rate is not None:
        of_margins["learning_rate"] = margin_learning_rate
    joint = interface.Stage(
        name="joint",
        title="phase one",
        loss=loss,
        trains=dict.fromkeys(interface.NETWORK, {}) | {MARGINS: of_margins},
        stop=interface.by_validation(task.limits, train_accuracy=stop_accuracy),
    )
    refine = joint._replace(
        name="refine",
        title="phase two",
        trains=dict.fromkeys(interface.NETWORK, {}),
        stop=interface.by_validation(task.limits),
        enter=enter_refine,
        hand_over="best",
    )
    return interface.Method(
        init,
        (joint, refine) if phases == 2 else (joint,),
        heads.embed,
        heads.predict,
        readouts=readouts,
        takes_weights=True,
    )
