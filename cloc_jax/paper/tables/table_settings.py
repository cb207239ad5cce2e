"""The settings that the paper's tables compare, by the names their rows use.

A setting has one name whichever table asks for it, so its runs are trained once: the
row CLOC of the comparison is the learned one of controllability.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.paper import table_rows
from cloc_jax.paper.precautions import precautions
from cloc_jax.paper.table_rows import BIASED, COLLAPSE, CONTROLLED, MANY
from cloc_jax.scoring import metrics
from cloc_jax.sweeps.run_plan import Setting

# Of the images of the lower rank at the first critical boundary that the paper calls
# the upper one, and the other way round.
RAISED, LOWERED = 0.6, 0.3
HUB = {
    "densenet121": "timm/densenet121.tv_in1k",
    "resnet50": "timm/resnet50.tv_in1k",
    "vgg16": "timm/vgg16.tv_in1k",
}


def settings_of(
    table: str,
    config: ConfigDict,
    ranks: Sequence[str],
    *,
    methods: Sequence[str],
    margins: Sequence[float | int],
    weights: Mapping[str, str],
    of_method: Mapping[str, Mapping[str, Any]],
) -> list[Setting]:
    """What a table trains on one dataset; [] where it has nothing to do with it.

    Args:
      table: of `table_rows.TABLES`.
      config: of the dataset.
      ranks: of the dataset.
      methods: that are compared.
      margins: to which critical margins are raised; validation data choose one.
      weights: files or hub names of weights by encoder, for other backbones.
      of_method: further settings by method.
    """

    # CLAP2015 has classes of three years where a table does not vary them.
    base: dict[str, Any] = {"data.bin": 3} if config.data.name == "clap2015" else {}

    if config.encoder.frozen:  # there is nothing that these methods could train
        methods = [m for m in methods if m not in table_rows.OWN_VIEWS]

    def one(name: str, method: str, more: Mapping[str, Any] | None = None) -> Setting:
        own = {"method.name": method} | base
        given = dict(of_method.get(method, {}))
        if config.encoder.views > 1 and _has_own_views(method, config, given):
            own["encoder.views"] = 1  # new images each time, through the frozen parts
        return Setting(name, own | given | dict(more or {}))

    cloc = one("cloc", "cloc")
    has_cloc = "cloc" in methods
    boundaries = metrics.boundary_names(ranks)
    at = [boundaries.index(name) for name in config.data.critical]
    if table in ("comparison", "time"):
        return [one(m, m) for m in methods]
    if table == "controllability" and at and has_cloc:
        return [cloc, *_controlled(one, at, len(boundaries), margins)]
    if table == "bias" and at:
        low, high = ranks[at[0]], ranks[at[0] + 1]
        wrong = (f"{low}>{high}:{RAISED}", f"{high}>{low}:{LOWERED}")
        plain = [one(m, m) for m in methods]
        if has_cloc:
            plain += _controlled(one, at[:1], len(boundaries), margins)
        return [
            Setting(BIASED + s.name, dict(s.overrides) | {"data.relabel": wrong})
            for s in plain
        ]
    if table == "ablations" and has_cloc:
        ones = one("cloc ones", "cloc", {"method.cloc.margins": 1.0})
        shared = one("cloc shared", "cloc", {"method.cloc.margins": "shared"})
        return [ones, shared, cloc]
    if table == "backbones" and has_cloc:
        return [_backbone(one, name, config, weights) for name in table_rows.BACKBONES]
    if table == "classes" and config.data.name == "clap2015":
        bins = [
            one(table_rows.bin_setting(years), "cloc", {"data.bin": years})
            for years in (range(1, 6) if has_cloc else ())
        ]
        others = [m for m in table_rows.MANY_CLASSES[:-1] if m in methods]
        return [*bins, *(one(m, m) for m in others)]
    if table == "classes" and len(ranks) >= MANY:
        return [one(m, m) for m in table_rows.MANY_CLASSES if m in methods]
    if table == "collapse" and has_cloc:
        return [
            one(f"{COLLAPSE}{s.name}", "cloc", s.overrides)
            for s in precautions(config.train.max_epochs)
        ]
    return []


def controlled_name(value: float | int) -> str:
    """The setting whose critical margins are fixed at that value."""
    return f"{CONTROLLED} {value:g}"


def _has_own_views(method: str, config: ConfigDict, given: Mapping[str, Any]) -> bool:
    """Whether a method augments images in its own way, not in the dataset's."""
    if method not in table_rows.OWN_VIEWS:
        return False
    augment = config.method[method].get("augment")  # DINO has no other way
    return given.get(f"method.{method}.augment", augment) != "default"


def _controlled(
    one, at: Sequence[int], count: int, margins: Sequence[float | int]
) -> list[Setting]:
    found = []
    for value in margins:
        entries: list[Any] = ["learn"] * count
        for h in at:
            entries[h] = float(value)
        more = {"method.cloc.margins": tuple(entries)}
        found.append(one(controlled_name(value), "cloc", more))
    return found


def _backbone(
    one, name: str, config: ConfigDict, weights: Mapping[str, str]
) -> Setting:
    setting = table_rows.backbone_setting(name, config.encoder.name)
    if name == config.encoder.name:
        return one(setting, "cloc")
    source = weights.get(name, HUB[name])
    return one(setting, "cloc", {"encoder.name": name, "encoder.weights": source})
