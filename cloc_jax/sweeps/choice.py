"""Choosing settings honestly: by the validation data, without a look at the test data.

The best setting of a sweep becomes a configuration file, so that what is trained and
tested next is what was chosen.
"""

import copy
import json
import pathlib
import re
import shlex
from collections.abc import Mapping, Sequence
from typing import Any

from ml_collections import ConfigDict

from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import write_text
from cloc_jax.runtime.run_folder import flatten
from cloc_jax.sweeps import sweep_summary
from cloc_jax.sweeps.run_plan import Setting, set_value

# What settings can be chosen by.
MORE = ("accuracy", "qwk", "one_off_accuracy")
LESS = ("mae", "macro_mae", "nll")
RATES = ("error", "crossing")  # of a critical boundary, as "error 1|2"


def is_less_better(score: str) -> bool:
    """Whether a smaller value of the score is the better one."""
    return score.split()[0] in LESS + RATES


def check(
    choose: str, per: str, settings: Sequence[Setting], critical: Sequence[str]
) -> None:
    """ValueError where there is nothing to choose from, or by."""
    of_boundaries = [f"{rate} {name}" for rate in RATES for name in critical]
    known = (*MORE, *LESS, *of_boundaries)
    if choose and choose not in known:
        more = "" if critical else " (data.critical names no boundary)"
        raise ValueError(
            f"--choose is {choose!r}; use one of {', '.join(known)}{more}."
        )
    if per and not choose:
        raise ValueError(f"--per={per} says for what to choose; add --choose=SCORE.")
    if choose and len(settings) < 2:
        raise ValueError(
            f"--choose={choose} needs several settings to choose from; add --vary."
        )
    if per and any(per not in setting.overrides for setting in settings):
        raise ValueError(
            f"--per is {per!r}, which no --vary names; use one of "
            f"{', '.join(settings[0].overrides)}."
        )


def rank(summary: Mapping[str, Any], choose: str, per: str) -> dict[str, Any]:
    """The cells from best to worst, and the best one for each value of `per`.

    Settings of which a run is missing come last and are never chosen; of two that are
    equal the first one given comes first.
    """
    cells = list(summary["cells"])
    known = sorted({name for cell in cells for name in cell["val"]})
    whole = [cell for cell in cells if cell["runs"] and not cell["unfinished"]]
    if choose not in known and known:
        raise ValueError(f"--choose is {choose!r}; these runs have {', '.join(known)}.")
    sign = 1 if is_less_better(choose) else -1
    ranked = [c for c in whole if c["val"].get(choose, {}).get("mean") is not None]
    if not ranked:
        raise ValueError(
            f"no setting has all its runs finished with a validation {choose}, so none "
            "was chosen; the same command goes on with the others."
        )
    ranked.sort(key=lambda cell: sign * cell["val"][choose]["mean"])
    best: dict[str, dict[str, Any]] = {}
    for cell in ranked:
        key = json.dumps(cell["settings"].get(per)) if per else ""
        best.setdefault(key, cell)
    return {
        "cells": ranked + [cell for cell in cells if cell not in ranked],
        "choose": choose,
        "per": per,
        "chosen": [
            {"settings": cell["settings"], "val": cell["val"][choose]}
            | ({"per": cell["settings"][per]} if per else {})
            for cell in best.values()
        ],
    }


def write(
    folder: pathlib.Path,
    summary: Mapping[str, Any],
    config: ConfigDict,
    schema: ConfigDict,
    choose: str,
) -> list[pathlib.Path]:
    """Writes a configuration file for each choice and prints how to use it."""
    paths = []
    for choice in summary["chosen"]:
        own = copy.deepcopy(config)
        for name, value in choice["settings"].items():
            set_value(own, name, value)
        ending = re.sub(r"\W+", "_", str(choice["per"])) if "per" in choice else ""
        path = folder / f"chosen{ending and '_'}{ending}.py"
        found = sweep_summary.text_of(choice["val"])
        count = choice["val"]["count"]
        lines = (
            f"Chosen by validation {choose}, {found} over {count} runs:",
            sweep_summary.describe(choice["settings"]),
        )
        write_text(path, _file(lines, changes(own, schema)))
        console.print(" ".join(lines), soft_wrap=True)
        console.print(f"  python launch.py --config={path}", soft_wrap=True)
        if summary.get("per") == "method.name":
            console.print(f"  {_flags(config.data.name, choice)}", soft_wrap=True)
        paths.append(path)
    return paths


def _flags(dataset: str, choice: Mapping[str, Any]) -> str:
    """The same for `launch.py tables`, which trains several methods."""
    return " ".join(
        "--set=" + shlex.quote(f"{dataset}/{choice['per']}:{name}={value}")
        for name, value in choice["settings"].items()
        if name != "method.name"
    )


def changes(config: ConfigDict, schema: ConfigDict) -> dict[str, Any]:
    """The fields, by dotted name, that are not at their default."""
    defaults = flatten(schema.to_dict())
    fields = flatten(config.to_dict())
    return {name: value for name, value in fields.items() if value != defaults[name]}


def _file(about: Sequence[str], fields: Mapping[str, Any]) -> str:
    text = "\n\n".join(line.replace("\\", "/").replace('"', "'") for line in about)
    rows = "".join(f"    {name!r}: {value!r},\n" for name, value in fields.items())
    return (
        f'"""{text}\n"""\n\nfrom cloc_jax.config import default_config\n\n'
        f"CHOSEN = {{\n{rows}}}\n\n\n"
        "def get_config():\n    config = default_config()\n"
        "    config.update_from_flattened_dict(CHOSEN)\n    return config\n"
    )
