"""Whether what is learned about the distance of ranks is true: CLM beside CLOC.

The grades of drawn knees cut a severity at known places. A cumulative link model (CLM)
learns thresholds, and the gap between two is the width of the rank between them; CLOC
learns a margin per boundary, to hold against the distance of two ranks' centres. Each
is compared with its truth by rank correlation and by the error of its shares of the
sum (1 is that of equal shares), beside the same training on permuted labels: there only
the sizes of the ranks are left to learn from. All runs take the same number of steps.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data import drawn_knees
from cloc_jax.paper import claims, studies
from cloc_jax.paper.margins import phase_one_only, rank_correlation
from cloc_jax.paper.studies import Evidence, Study
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import intervals, metrics
from cloc_jax.sweeps.plan import Options, Plan, Setting, plan_runs
from cloc_jax.sweeps.sweep import LOCAL

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


@dataclasses.dataclass(frozen=True)
class AgainstNull:
    """How close learned values are to the truth, beside permuted labels."""

    mean: float  # over all seeds
    matched: float  # over the seeds that permutations have, too
    null: float
    p: float


@dataclasses.dataclass(frozen=True)
class GapSetting:
    """Learned gaps or margins of one method."""

    learned: tuple[float, ...]
    learned_std: tuple[float, ...]
    permuted: tuple[float, ...]
    truth: tuple[float, ...]
    correlation: AgainstNull  # Spearman's
    # Mean absolute difference where both sum to 1, as a multiple of what equal values
    # have: three widths and four gaps would not be on one scale otherwise.
    share_error: AgainstNull


@dataclasses.dataclass(frozen=True)
class Difference:
    """A mean over seeds with its 95% interval."""

    difference: float
    difference_interval: tuple[float, ...]


@dataclasses.dataclass(frozen=True, kw_only=True)
class GapStudy(Study):
    """What gaps.json holds."""

    draws: int
    settings: dict[str, GapSetting]
    compared: dict[str, Difference]  # CLM's error of shares minus that of others


def study_gaps(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    seeds: int,
    draws: int,
    options: Options = LOCAL,
) -> GapStudy:
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
        for run in plan_runs(common, settings, seeds=count)
    ]
    plans = studies.train(runs, folder, options)
    values = {name: read_values(folder, plan) for name, plan in plans.items()}
    study = analyse(values, draws, studies.about(plans[CLM][0]))
    studies.finish(folder, "gaps", study, plans[CLM][0])
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
        readouts = RunFolder(folder / run.name).read_history()[-1]["readouts"]
        if "thresholds" in readouts:
            found.append(np.diff([readouts["thresholds"][n] for n in names]))
        else:
            found.append(np.array([readouts["margins"][n] for n in names]))
    return np.array(found)


def analyse(
    values: Mapping[str, np.ndarray], draws: int, about: Mapping[str, Any]
) -> GapStudy:
    """The comparison, from learned values [run, value] by the name of the setting."""
    settings, errors = {}, {}
    for name in SETTINGS:
        true = truth(name)
        nulls = [values[permuted(name, n)] for n in range(1, draws + 1)]
        # [run, (correlation, error of shares)], and of permutations the mean over runs
        close = np.array([_closeness(row, true) for row in values[name]])
        null = np.array([[_closeness(row, true) for row in v] for v in nulls]).mean(1)
        matched = close[: len(nulls[0])].mean(0)
        both = [
            AgainstNull(
                float(close[:, k].mean()),
                float(matched[k]),
                float(null[:, k].mean()),
                _p(sign * null[:, k], sign * matched[k]),
            )
            for k, sign in enumerate((-1, 1))
        ]
        errors[name] = close[:, 1]
        settings[name] = GapSetting(
            tuple(values[name].mean(0).tolist()),
            tuple(values[name].std(0, ddof=1).tolist()),
            tuple(np.mean([v.mean(0) for v in nulls], axis=0).tolist()),
            tuple(true.tolist()),
            *both,
        )
    compared = {}
    for name in (CLOC, EQUAL):
        apart = errors[CLM] - errors[name]
        ends = tuple(intervals.of_mean(apart))
        compared[name] = Difference(float(apart.mean()), ends)
    return GapStudy(
        **about,
        seeds=len(values[CLM]),
        draws=draws,
        settings=settings,
        compared=compared,
        sentence=_sentence(settings, compared[CLOC]),
        notes=tuple(
            f"{name}: with the true {TRUTH[name]}, {_said(one)}."
            for name, one in settings.items()
        ),
        evidence=tuple(_evidence(settings, compared, draws)),
        columns=("Setting", "Learned", "Permuted labels", "Truth"),
        rows=tuple(
            (name, *map(_listed, (one.learned, one.permuted, one.truth)))
            for name, one in settings.items()
        ),
    )


def _closeness(learned: np.ndarray, true: np.ndarray) -> tuple[float, float]:
    """Rank correlation and error of shares; see `GapSetting`."""
    correlation = rank_correlation(learned, true).value
    share = true / true.sum()
    error = np.abs(learned / learned.sum() - share).mean()
    equal = np.abs(1 / len(true) - share).mean()
    return correlation or 0.0, float(error / equal)  # equal values have no order


def _p(nulls: np.ndarray, found: float) -> float:
    """Share of all sets, this one included, that are as low or lower."""
    return float((1 + (nulls <= found + 1e-9).sum()) / (1 + len(nulls)))


def _listed(values: Sequence[float]) -> str:
    return " ".join(f"{value:.3f}" for value in values)


def _said(one: GapSetting) -> str:
    rank, share = one.correlation, one.share_error
    return (
        f"rank correlation {rank.mean:+.2f}, error of shares {share.mean:.3f} (equal "
        f"ones: 1); with the seeds of the permutations {rank.matched:+.2f}, permuted "
        f"labels {rank.null:+.2f} (p = {rank.p:.2f}), and {share.matched:.3f}, "
        f"permuted labels {share.null:.3f} (p = {share.p:.2f})"
    )


def _sentence(settings: Mapping[str, GapSetting], apart: Difference) -> str:
    low, high = apart.difference_interval
    which = (
        "closer to the truth than"
        if high < 0
        else ("further from the truth than" if low > 0 else "as far from the truth as")
    )
    return (
        f"The gaps of CLM's thresholds are {which} CLOC's margins: error of shares "
        f"{settings[CLM].share_error.mean:.3f} against "
        f"{settings[CLOC].share_error.mean:.3f}, difference "
        f"{claims.signed(apart.difference, apart.difference_interval)}."
    )


def _evidence(
    settings: Mapping[str, GapSetting], compared: Mapping[str, Difference], draws: int
) -> Iterator[Evidence]:
    """For `claims`: against the truth and permuted labels, and against each other."""
    for name, one in settings.items():
        sure = [one.correlation.p <= 0.05, one.share_error.p <= 0.05]
        tried = f"{name}: {WHAT[name]} and true {TRUTH[name]}, {draws} permutations"
        weaker = claims.OPEN if any(sure) else claims.FAILS
        verdict = claims.HOLDS if all(sure) else weaker
        yield Evidence("true_gaps", tried, _said(one), verdict)
    for name, apart in compared.items():
        ends = apart.difference_interval
        yield Evidence(
            "closer_gaps",
            f"{CLM} against {name}",
            f"error of shares {settings[CLM].share_error.mean:.3f} against "
            f"{settings[name].share_error.mean:.3f}, difference "
            f"{claims.signed(apart.difference, ends)}",
            claims.verdict_on(ends, is_lower_better=True),
        )
