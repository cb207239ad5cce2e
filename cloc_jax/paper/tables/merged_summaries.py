"""Summaries of runs that were trained on several machines, made one.

Their folders need not be shared: one machine trains some methods, another the others.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from cloc_jax.paper.tables import summaries
from cloc_jax.sweeps import run_plan

Summary = dict[str, Any]
# In these, runs of one dataset and protocol may differ by setting or machine.
OWN = (
    "views",
    "max_epochs",
    "batch_size",
    "learning_rate",
    "encoder_learning_rate",
    "device",
)


def merge(found: Sequence[Summary]) -> list[Summary]:
    """One summary for each dataset and protocol, with the settings of all of them.

    ValueError where they cannot stand in one table: other images or another encoder, or
    other runs of the same setting.
    """
    merged: dict[tuple[str, str], Summary] = {}
    for one in found:
        key = (one["dataset"], one["protocol"])
        merged[key] = _both(merged[key], one) if key in merged else one
    return list(merged.values())


def _both(first: Summary, second: Summary) -> Summary:
    title = f"{first['dataset']}-{first['protocol']}"
    _check_same_data(title, first, second)
    settings = _with_commands(first)
    for name, setting in _with_commands(second).items():
        before = settings.get(name, setting)
        if _results(before) != _results(setting):
            raise ValueError(
                f"{title}: the summaries have other runs of {name!r}, of which the "
                "mean cannot be told without the runs themselves. Give only one "
                "folder with a summary that has this setting."
            )
        # Only a summary with CLOC's runs knows what is paired with them, and those of
        # earlier versions say less of a run.
        runs = [
            other | one
            for one, other in zip(_by_seed(before), _by_seed(setting), strict=True)
        ]
        settings[name] = setting | before | {"runs": runs}
    left = {**first["unfinished"], **second["unfinished"]}
    finished = {
        f"{first['dataset']},{first['protocol']},"
        + run_plan.run_name(name, run["seed"], run["fold"])
        for name, setting in settings.items()
        for run in setting["runs"]
    }
    return {
        **{k: v for k, v in first.items() if k != "integrity"},
        "commands": list(dict.fromkeys([*first["commands"], *second["commands"]])),
        "controlled": summaries.controlled(settings, first["critical"]),
        "settings": settings,
        "unfinished": {run: why for run, why in left.items() if run not in finished},
    }


def _with_commands(summary: Summary) -> dict[str, Any]:
    """Settings that say which commands made them; those of earlier versions do not."""
    return {
        name: {"commands": summary["commands"]} | setting
        for name, setting in summary["settings"].items()
    }


def _check_same_data(title: str, first: Summary, second: Summary) -> None:
    pairs = [(first, second, name) for name in ("ranks", "critical")]
    about = first["about"], second["about"]
    pairs += [(*about, name) for name in about[0] if name not in OWN]
    differs = [name for one, other, name in pairs if one[name] != other.get(name)]
    if differs:
        name = differs[0]
        values = (one[name] for one in (about if name in about[0] else (first, second)))
        raise ValueError(
            f"{title}: {name} is {' in one summary and '.join(map(str, values))} in "
            "another, so that they cannot stand in one table."
        )


def _results(setting: Mapping[str, Any]) -> list[dict[str, Any]]:
    """What its runs found; times differ by machine."""
    names = ("seed", "fold", "scores", "val", "margins")
    return [{name: run[name] for name in names} for run in _by_seed(setting)]


def _by_seed(setting: Mapping[str, Any]) -> list[dict[str, Any]]:
    return sorted(setting["runs"], key=lambda run: (run["seed"], run["fold"] or 0))
