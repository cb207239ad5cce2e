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

from cloc_jax.config import default_config
from cloc_jax.runtime import files, run_folder
from cloc_jax.runtime.console import console
from cloc_jax.runtime.files import write_text
from cloc_jax.scoring.results import Summary, SummaryCell
from cloc_jax.sweeps.plan import Setting, set_value
from cloc_jax.sweeps.summary import describe, text_of

# What settings can be chosen by.
MORE = ("accuracy", "qwk", "one_off_accuracy")
LESS = ("mae", "macro_mae", "nll")
RATES = ("error", "crossing")  # of a critical boundary, as "error 1|2"


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


def rank(summary: Summary, choose: str, per: str) -> tuple[Summary, list[SummaryCell]]:
    """The cells from best to worst, and the best one for each value of `per`.

    Settings of which a run is missing come last and are never chosen; of two that are
    equal the first one given comes first.
    """
    means: list[tuple[float, SummaryCell]] = []
    for cell in summary.cells:
        score = cell.val.get(choose)
        if not cell.unfinished and score and score.mean is not None:
            means.append((score.mean, cell))
    if not means:
        raise ValueError(
            f"no setting has all its runs finished with a validation {choose}, so none "
            "was chosen; the same command goes on with the others."
        )
    is_less_better = choose.split()[0] in LESS + RATES
    means.sort(key=lambda pair: pair[0] if is_less_better else -pair[0])
    ranked = [cell for _, cell in means]
    best: dict[str, SummaryCell] = {}
    for cell in ranked:
        best.setdefault(json.dumps(cell.settings[per]) if per else "", cell)
    rest = [cell for cell in summary.cells if cell not in ranked]
    return Summary(ranked + rest), list(best.values())


def to_json(chosen: Sequence[SummaryCell], choose: str, per: str) -> dict[str, Any]:
    """What summary.json says of a choice."""
    return {
        "choose": choose,
        "per": per,
        "chosen": [
            {"settings": cell.settings, "val": files.to_plain(cell.val[choose])}
            | ({"per": cell.settings[per]} if per else {})
            for cell in chosen
        ],
    }


def write_configs(
    folder: pathlib.Path,
    chosen: Sequence[SummaryCell],
    config: ConfigDict,
    *,
    choose: str,
    per: str,
) -> None:
    """Writes a configuration file for each choice and prints how to use it."""
    for cell in chosen:
        own = copy.deepcopy(config)
        for name, value in cell.settings.items():
            set_value(own, name, value)
        ending = "_" + re.sub(r"\W+", "_", str(cell.settings[per])) if per else ""
        path = folder / f"chosen{ending}.py"
        score = cell.val[choose]
        lines = (
            f"Chosen by validation {choose}, {text_of(score)} over {score.count} runs:",
            describe(cell.settings),
        )
        write_text(path, _file(lines, changes(own)))
        console.print(" ".join(lines), soft_wrap=True)
        console.print(f"  python launch.py --config={path}", soft_wrap=True)
        if per == "method.name":
            flags = table_flags(config.data.name, cell.settings)
            console.print(f"  {flags}", soft_wrap=True)


def table_flags(dataset: str, settings: Mapping[str, Any]) -> str:
    """The settings of a method for `launch.py tables`, which trains several."""
    place = f"{dataset}/{settings['method.name']}"
    return " ".join(
        "--set=" + shlex.quote(f"{place}:{name}={value}")
        for name, value in settings.items()
        if name != "method.name"
    )


def changes(config: ConfigDict) -> dict[str, Any]:
    """The fields, by dotted name, that are not at their default."""
    defaults = run_folder.flatten(default_config().to_dict())
    fields = run_folder.flatten(config.to_dict())
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
