"""What learned margins mean: their spread over seeds, and what a null would give.

The hinge never falls as a margin grows, so training only shrinks margins, under Adam by
about the learning rate a step whatever the data. Before anyone reads meaning into their
differences, this study holds them against the same training on permuted labels, and
against starts that are equal, another optimizer for the margins, and another range of
cosines. All runs take the same number of steps, that of phase one's cap.
"""

import copy
import itertools
import math
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data import drawn_knees
from cloc_jax.methods import Readout
from cloc_jax.paper import conclusion, separability
from cloc_jax.paper.precautions import COLLAPSED, NEVER
from cloc_jax.report import figures
from cloc_jax.runtime import sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics
from cloc_jax.sweeps.engines import LOCAL, Options
from cloc_jax.sweeps.run_plan import Plan, Setting, plan_runs
from cloc_jax.training import assembly, encoder
from cloc_jax.training.dataset import build_dataset

LEARNED = "learned"
PERMUTED = "permuted"
SGD_RATE = 0.01  # of margins; with momentum, about 0.1 x gradient a step
SURE = 0.05
MATERIAL = 0.01  # a smaller part of a difference is of no use to anybody


class Comparison(NamedTuple):
    """Two boundaries: how far apart their margins are, and whether it is chance."""

    first: str
    second: str
    difference: float  # first minus second, mean over seeds
    null: float  # the same on permuted labels, mean over permutations
    p: float  # that labels explain nothing of it, for all pairs at once

    @property
    def is_real(self) -> bool:
        """Whether the labels explain a part of it that anybody could use."""
        return self.p <= SURE and abs(self.difference - self.null) >= MATERIAL


def study_margins(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    seeds: int,
    draws: int,
    options: Options = LOCAL,
) -> dict[str, Any]:
    """Trains phase one many times and says which differences of margins are real.

    Args:
      config: of the runs; every boundary that is learned takes part.
      folder: of the study; each run has its own below it.
      seeds: runs per setting.
      draws: permutations of the labels, each trained with all seeds.
      options: where and how the runs are trained.
    """
    if config.method.name != "cloc":
        raise ValueError(
            f"method.name is {config.method.name!r}, which has no margins; use cloc."
        )
    if seeds < 2 or draws < 19:
        raise ValueError(
            f"--seeds is {seeds} and --draws is {draws}; a band needs 2 seeds or more, "
            "and a p-value of 0.05 at least 19 permutations."
        )
    common = phase_one_only(config)
    dataset = build_dataset(config)
    settings = _settings(common, draws)
    runs = plan_runs(common, settings, seeds=seeds, is_resolved=options.is_in_process)
    plans = conclusion.train(runs, folder, options)
    names = metrics.boundary_names(dataset.ranks)
    courses = {name: read_courses(folder, runs, names) for name, runs in plans.items()}
    views = [_view(run, len(dataset.ranks)) for run in plans[LEARNED]]
    starts = np.array([np.asarray(view.values) for view in views], np.float64)
    study = _analyse(courses, starts, names, config, views[0].limit or math.inf)
    study |= _against_truth(study, common, folder, plans[LEARNED][0], config)
    study |= _say(study, names) | {"ranks": list(dataset.ranks)}
    figures.margin_study(folder / "margin_study.png", study)
    conclusion.finish(folder, "margins", study, plans[LEARNED][0])
    return study


def phase_one_only(config: ConfigDict) -> ConfigDict:
    """The configuration with a phase one of exactly train.max_epochs, and no more."""
    common = copy.deepcopy(config)
    common.method.cloc.phases = 1
    common.method.cloc.stop_accuracy = NEVER
    common.train.patience = common.train.max_epochs
    return common


def _settings(config: ConfigDict, draws: int) -> list[Setting]:
    settings = [
        Setting(LEARNED, {}),
        Setting("equal starts", {"method.cloc.margins": "learn=0.75"}),
        Setting(
            "sgd",
            {
                "method.cloc.margin_optimizer": "sgd",
                "method.cloc.margin_learning_rate": SGD_RATE,
            },
        ),
    ]
    if config.head.projection:
        is_relu = config.head.projection_relu
        name = "signed" if is_relu else "relu"
        settings.append(Setting(name, {"head.projection_relu": not is_relu}))
    return settings + [
        Setting(f"{PERMUTED} {n}", {"data.permute": n}) for n in range(1, draws + 1)
    ]


def read_courses(
    folder: pathlib.Path, runs: Sequence[Plan], names: Sequence[str]
) -> np.ndarray:
    """Margins [run, epoch, boundary] along phase one."""
    courses = []
    for run in runs:
        conclusion.read_metrics(folder, run)  # it has to be finished
        rows = RunFolder(folder / run.name).read_history()
        courses.append(
            [
                [r["readouts"]["margins"][n] for n in names]
                for r in rows
                if r["stage"] == "joint"
            ]
        )
    return np.array(courses)


def _view(run: Plan, num_ranks: int) -> Readout:
    """A run's margins before the first step."""
    method = assembly.build_method(run.config, num_ranks, sharding.make_mesh(1))
    model = encoder.Creator(run.config, method)()
    return method.readouts(model)["margins"]


def _analyse(
    courses: Mapping[str, np.ndarray],
    starts: np.ndarray,
    names: Sequence[str],
    config: ConfigDict,
    limit: float,
) -> dict[str, Any]:
    ends = {name: course[:, -1] for name, course in courses.items()}  # [run, boundary]
    nulls = np.stack([v.mean(0) for k, v in ends.items() if k.startswith(PERMUTED)])
    compared = compare(ends[LEARNED].mean(0), nulls, names)
    shown = {k: v for k, v in courses.items() if not k.startswith(PERMUTED)}
    shown[PERMUTED] = np.concatenate(
        [v for k, v in courses.items() if k.startswith(PERMUTED)]
    )
    learned = ends[LEARNED]
    return {
        "seeds": len(learned),
        "draws": len(nulls),
        "epochs": courses[LEARNED].shape[1],
        "boundaries": list(names),
        "starts": starts.tolist(),
        "courses": {
            name: {
                "mean": course.mean(0).tolist(),
                "std": course.std(0, ddof=1).tolist(),
                "end": course[:, -1].mean(0).tolist(),
                "end_std": course[:, -1].std(0, ddof=1).tolist(),
            }
            for name, course in shown.items()
        },
        "pairs": [c._asdict() | {"is_real": c.is_real} for c in compared],
        # How much of a margin is where it started: within boundaries, over seeds.
        "explained_by_start": _explained(starts, learned),
        "margin_limit": limit,
        "optimizer": config.method.cloc.margin_optimizer or config.optimizer.name,
    }


def compare(
    learned: np.ndarray, nulls: np.ndarray, names: Sequence[str]
) -> list[Comparison]:
    """Differences of all pairs of margins against permuted sets.

    Every set, the learned one included, is measured by its distance from the mean of
    all sets in units of their spread, so that under the null each is as likely as any
    other to be the furthest; a pair's p-value is the share of sets whose furthest pair
    is at least as far (Westfall and Young's correction for asking about all pairs).

    Args:
      learned: [boundary], mean over seeds.
      nulls: [draw, boundary], likewise of each permutation.
      names: of the boundaries.
    """
    pairs = list(itertools.combinations(range(len(names)), 2))
    sets = np.concatenate([learned[None], nulls])
    apart = np.stack([sets[:, a] - sets[:, b] for a, b in pairs], axis=1)
    spread = np.maximum(apart.std(0, ddof=1), 1e-12)
    far = np.abs(apart - apart.mean(0)) / spread  # [set, pair]
    furthest = far.max(1)  # [set]
    return [
        Comparison(
            names[a],
            names[b],
            float(apart[0, i]),
            float(apart[1:, i].mean()),
            # Rounding must not make the set differ from itself.
            float(np.mean(furthest >= far[0, i] - 1e-9)),
        )
        for i, (a, b) in enumerate(pairs)
    ]


def _explained(starts: np.ndarray, ends: np.ndarray) -> float | None:
    """Share of the variance of learned margins over seeds that starts explain."""
    x, y = (starts - starts.mean(0)).ravel(), (ends - ends.mean(0)).ravel()
    if not (x @ x) or not (y @ y):
        return None
    return float((x @ y) ** 2 / ((x @ x) * (y @ y)))


def _against_truth(
    study: Mapping[str, Any],
    config: ConfigDict,
    folder: pathlib.Path,
    first: Plan,
    original: ConfigDict,
) -> dict[str, Any]:
    """Rank correlation with true gaps, where known, and with separability."""
    ends = np.array(study["courses"][LEARNED]["end"])
    found: dict[str, Any] = {}
    if original.data.name == "synthetic":
        gaps = np.diff(drawn_knees.centres())
        found["true_gaps"] = gaps.tolist()
        found["true_gaps_correlation"] = rank_correlation(ends, gaps)
    areas = separability.areas(first.config, RunFolder(folder / first.name))
    found["separability"] = areas
    found["separability_correlation"] = rank_correlation(ends, np.array(areas))
    return found


def rank_correlation(a: np.ndarray, b: np.ndarray) -> dict[str, float | None]:
    """Spearman's correlation, with the exact p-value over all orders where few."""
    from scipy import stats  # late: it takes a second

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return {"value": None, "p": None}
    value = float(stats.spearmanr(a, b).statistic)
    if len(a) > 8:
        return {"value": value, "p": float(stats.spearmanr(a, b).pvalue)}
    orders = itertools.permutations(range(len(a)))
    chance = [float(stats.spearmanr(a, b[list(o)]).statistic) for o in orders]
    return {"value": value, "p": float(np.mean(np.abs(chance) >= abs(value) - 1e-9))}


def _say(study: Mapping[str, Any], names: Sequence[str]) -> dict[str, Any]:
    """The sentence, warnings and table of the report."""
    real = [c for c in study["pairs"] if c["is_real"]]
    ends, stds = (study["courses"][LEARNED][k] for k in ("end", "end_std"))
    count = len(study["pairs"])
    if real:
        listed = ", ".join(
            f"{c['first']} against {c['second']} ({c['difference']:+.2f}, where "
            f"permuted labels give {c['null']:+.2f})"
            for c in real
        )
        sentence = (
            f"The labels explain part of {len(real)} of {count} differences between "
            f"learned margins (p <= {SURE}, all pairs at once): {listed}."
        )
    else:
        sentence = (
            f"The labels explain none of the {count} differences between learned "
            f"margins by {MATERIAL:g} or more: permuted labels give the same."
        )
    notes = []
    share = study["explained_by_start"]
    if share is not None:
        notes.append(
            f"Where a margin started explains {share:.0%} of its variation over seeds."
        )
    for key, what in (
        ("true_gaps_correlation", "the true gaps of the grades"),
        ("separability_correlation", "how well a linear probe tells neighbours apart"),
    ):
        if study.get(key) and study[key]["value"] is not None:
            notes.append(
                f"Rank correlation of learned margins with {what}: "
                f"{study[key]['value']:+.2f} (p = {study[key]['p']:.2f})."
            )
    return {
        "sentence": sentence,
        "notes": notes,
        "warnings": warnings(ends, names, study["margin_limit"]),
        "columns": ["Boundary", "Start", *study["courses"], "Probe AUC"],
        "rows": [
            [
                name,
                f"{np.mean([s[h] for s in study['starts']]):.3f}",
                *(
                    f"{c['end'][h]:.3f} ± {c['end_std'][h]:.3f}"
                    for c in study["courses"].values()
                ),
                f"{study['separability'][h]:.3f}",
            ]
            for h, name in enumerate(names)
        ],
        "real": real,
        "end_std": stds,
    }


def warnings(ends: Sequence[float], names: Sequence[str], limit: float) -> list[str]:
    """What a person should know before using such margins."""
    found = []
    if sum(ends) > limit:
        found.append(
            f"The margins sum to {sum(ends):.2f}, more than the {limit:g} that cosines "
            "allow here: they cannot all be met."
        )
    low = [n for n, value in zip(names, ends, strict=True) if value < COLLAPSED]
    if low:
        found.append(
            f"Collapse: the margin of {', '.join(low)} is below {COLLAPSED}, which no "
            "longer holds the ranks apart."
        )
    return found
