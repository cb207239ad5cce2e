"""Choosing settings by the validation data, without a look at the test data."""

from collections.abc import Sequence
from typing import Any

from cloc_jax.runtime import files
from cloc_jax.scoring.results import Summary, SummaryCell

# What settings can be chosen by.
MORE = ("accuracy", "qwk", "one_off_accuracy", "minimum_sensitivity", "gmsec")
LESS = ("mae", "macro_mae", "max_mae", "nll", "rps")
RATES = ("error", "crossing")  # of a critical boundary, as "error 1|2"


def check(choose: str, settings: Sequence[Any], critical: Sequence[str]) -> None:
    """ValueError where there is nothing to choose from, or by."""
    rates = [f"{rate} {name}" for rate in RATES for name in critical]
    known = (*MORE, *LESS, *rates)
    if choose not in known:
        raise ValueError(f"--choose is {choose!r}; use one of {', '.join(known)}.")
    if len(settings) < 2:
        raise ValueError(
            f"--choose={choose} needs several settings to choose from; add --vary."
        )


def rank(summary: Summary, choose: str) -> Summary:
    """The summary with its cells from best to worst.

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
    return Summary(ranked + [cell for cell in summary.cells if cell not in ranked])


def to_json(chosen: SummaryCell, choose: str) -> dict[str, Any]:
    """What summary.json says of a choice."""
    val = files.to_plain(chosen.val[choose])
    return {"choose": choose, "chosen": {"settings": chosen.settings, "val": val}}
