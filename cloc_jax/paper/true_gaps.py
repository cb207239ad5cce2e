"""Whether what is learned about the distance of ranks is true: CLM beside CLOC.

The grades of drawn knees cut a severity at known places. A cumulative link model (CLM)
learns thresholds, and the gap between two is the width of the rank between them; CLOC
learns a margin per boundary, to hold against the distance of two ranks' centres. Each
is compared with its truth by rank correlation and by the error of its shares of the
sum (1 is that of equal shares), beside the same training on permuted labels: there only
the sizes of the ranks are left to learn from. All runs take the same number of steps.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data import drawn_knees
from cloc_jax.paper import conclusion
from cloc_jax.paper.learned_margins import phase_one_only, rank_correlation
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import intervals, metrics
from cloc_jax.sweeps.engines import LOCAL, Options
from cloc_jax.sweeps.run_plan import Plan, Setting, plan_runs

CLM, CLOC, EQUAL = "clm", "cloc", "cloc from equal starts"
SETTINGS: dict[str, dict[str, Any]] = {
    CLM: {"method.name": "clm"},
    CLOC: {"method.name": "cloc"},
    # CLM's thresholds start equally far apart; margins start at random.
    EQUAL: {"method.name": "cloc", "method.cloc.margins": "learn=0.75"},
}
WHAT = {CLM: "gaps of thresholds", CLOC: "margins", EQUAL: "margins"}
TRUTH = {CLM: "widths of grades", CLOC: "gaps of centres", EQUAL: "gaps of centres"}
LEAST_DRAWS = 19
# Runs per permutation, at most; p-values compare them with the runs of the same seeds,
# and so with the same starts.
NULL_SEEDS = 3


class Closeness(NamedTuple):
    """How close learned values are to the truth; means over seeds."""

    correlation: float  # Spearman's
    # Mean absolute difference where both sum to 1, as a multiple of what equal values
    # have: three widths and four gaps would not be on one scale otherwise.
    share_error: float


def study_gaps(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    seeds: int,
    draws: int,
    options: Options = LOCAL,
) -> dict[str, Any]:
    """Trains CLM and CLOC many times and says whose gaps are closer to the truth.

    Args:
      config: of the runs, on drawn knees; its method's name plays no part.
      folder: of the study; each run has its own below it.
      seeds: runs per setting.
      draws: permutations of the labels, each trained with up to NULL_SEEDS seeds.
      options: where and how the runs are trained.
    """
    if config.data.name != "synthetic":
        raise ValueError(
            f"data.name is {config.data.name!r}, whose true gaps nobody knows; this "
            "study needs the drawn knees: --config=configs/quickstart.py:frozen."
        )
    if seeds < 2 or draws < LEAST_DRAWS:
        raise ValueError(
            f"--seeds is {seeds} and --draws is {draws}; use 2 seeds or more, and at "
            f"least {LEAST_DRAWS} permutations for a p-value of 0.05."
        )
    common = phase_one_only(config)
    learned = [Setting(name, changes) for name, changes in SETTINGS.items()]
    runs = [
        run
        for settings, count in (
            (learned, seeds),
            (_nulls(draws), min(seeds, NULL_SEEDS)),
        )
        for run in plan_runs(
            common, settings, seeds=count, is_resolved=options.is_in_process
        )
    ]
    plans = conclusion.train(runs, folder, options)
    values = {name: read_values(folder, plan) for name, plan in plans.items()}
    study = analyse(values, draws) | {"seeds": seeds, "draws": draws}
    study |= {"epochs": config.train.max_epochs, "ranks": list(drawn_knees.RANKS)}
    conclusion.finish(folder, "gaps", study, plans[CLM][0])
    return study


def _nulls(draws: int) -> list[Setting]:
    return [
        Setting(permuted(name, n), changes | {"data.permute": n})
        for n in range(1, draws + 1)
        for name, changes in SETTINGS.items()
    ]


def permuted(name: str, number: int) -> str:
    """Name of a setting with labels permuted."""
    return f"{name}, permuted {number}"


def truth(name: str) -> np.ndarray:
    """The true values that a setting's learned ones stand for."""
    if name == CLM:
        return np.diff(drawn_knees.THRESHOLDS)
    return np.diff(drawn_knees.centres())


def read_values(folder: pathlib.Path, runs: Sequence[Plan]) -> np.ndarray:
    """Gaps of thresholds, or margins, [run, value], at the end of training."""
    names = metrics.boundary_names(drawn_knees.RANKS)
    found = []
    for run in runs:
        conclusion.read_metrics(folder, run)  # it has to be finished
        readouts = RunFolder(folder / run.name).read_history()[-1]["readouts"]
        if "thresholds" in readouts:
            found.append(np.diff([readouts["thresholds"][n] for n in names]))
        else:
            found.append(np.array([readouts["margins"][n] for n in names]))
    return np.array(found)


def analyse(values: Mapping[str, np.ndarray], draws: int) -> dict[str, Any]:
    """The comparison, from learned values [run, value] by the name of the setting."""
    found, errors = {}, {}
    for name in SETTINGS:
        true = truth(name)
        by_seed = [_closeness(row, true) for row in values[name]]
        mean = _mean(by_seed)
        nulls = [
            _mean([_closeness(row, true) for row in values[permuted(name, n)]])
            for n in range(1, draws + 1)
        ]
        matched = _mean(by_seed[: len(values[permuted(name, 1)])])
        errors[name] = np.array([one.share_error for one in by_seed])
        found[name] = {
            "learned": values[name].mean(0).tolist(),
            "learned_std": values[name].std(0, ddof=1).tolist(),
            "permuted": np.mean(
                [values[permuted(name, n)].mean(0) for n in range(1, draws + 1)], axis=0
            ).tolist(),
            "truth": true.tolist(),
            "correlation": mean.correlation,
            "correlation_std": float(np.std([c.correlation for c in by_seed], ddof=1)),
            "null_correlation": _mean(nulls).correlation,
            "matched_correlation": matched.correlation,
            "correlation_p": _p([-c.correlation for c in nulls], -matched.correlation),
            "share_error": mean.share_error,
            "null_share_error": _mean(nulls).share_error,
            "matched_share_error": matched.share_error,
            "share_error_p": _p([c.share_error for c in nulls], matched.share_error),
        }
    compared = {}
    for name in (CLOC, EQUAL):
        apart = errors[CLM] - errors[name]
        compared[name] = {
            "difference": float(apart.mean()),
            "difference_interval": intervals.of_mean(apart),
        }
    return {"settings": found, "compared": compared} | _say(found, compared)


def _closeness(learned: np.ndarray, true: np.ndarray) -> Closeness:
    correlation = rank_correlation(learned, true)["value"]
    share = true / true.sum()
    error = np.abs(learned / learned.sum() - share).mean()
    equal = np.abs(1 / len(true) - share).mean()
    return Closeness(
        correlation or 0.0,  # equal values say nothing of an order
        float(error / equal),
    )


def _mean(values: Sequence[Closeness]) -> Closeness:
    return Closeness(*(float(np.mean(part)) for part in zip(*values, strict=True)))


def _p(nulls: Sequence[float], found: float) -> float:
    """Share of all sets, this one included, that are as low or lower."""
    return float((1 + sum(n <= found + 1e-9 for n in nulls)) / (1 + len(nulls)))


def _say(
    found: Mapping[str, Mapping[str, Any]], compared: Mapping[str, Mapping[str, Any]]
) -> dict[str, Any]:
    """The sentence and the table for people."""
    notes = [
        f"{name}: rank correlation with the true {TRUTH[name]} "
        f"{one['correlation']:+.2f}, error of shares {one['share_error']:.3f}; with "
        f"the permutations' seeds {one['matched_correlation']:+.2f}, permuted labels "
        f"{one['null_correlation']:+.2f} (p = {one['correlation_p']:.2f}), and "
        f"{one['matched_share_error']:.3f}, permuted {one['null_share_error']:.3f} "
        f"(p = {one['share_error_p']:.2f})."
        for name, one in found.items()
    ]
    low, high = compared[CLOC]["difference_interval"]
    which = (
        "closer to the truth than"
        if high < 0
        else ("further from the truth than" if low > 0 else "as far from the truth as")
    )
    sentence = (
        f"The gaps of CLM's thresholds are {which} CLOC's margins: error of shares "
        f"{found[CLM]['share_error']:.3f} against {found[CLOC]['share_error']:.3f}, "
        f"difference {compared[CLOC]['difference']:+.3f} [{low:+.3f}, {high:+.3f}]."
    )
    return {
        "sentence": sentence,
        "notes": notes,
        "columns": ["Setting", "Learned", "Permuted labels", "Truth"],
        "rows": [
            [
                name,
                *(
                    " ".join(f"{v:.3f}" for v in one[key])
                    for key in ("learned", "permuted", "truth")
                ),
            ]
            for name, one in found.items()
        ],
    }
