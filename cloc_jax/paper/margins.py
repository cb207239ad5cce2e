"""What learned margins mean, and what keeps them from collapsing.

The hinge never falls as a margin grows, so training only shrinks margins, under Adam by
about the learning rate a step whatever the data. Before anyone reads meaning into their
differences, `study_margins` holds them against the same training on permuted labels,
and against starts that are equal, another optimizer for the margins, and another range
of cosines; all its runs take the same number of steps, that of phase one's cap.

Nothing in the loss keeps margins up, so a long phase one may shrink them to nothing.
The paper holds against it softplus, starts in [0.5, 1), and a stop at 95% training
accuracy; `collapse` switches off each alone, and all of them together.
"""

import copy
import dataclasses
import itertools
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.data import drawn_knees
from cloc_jax.paper import linear_probe, studies
from cloc_jax.paper.claims import FAILS, HOLDS, OPEN
from cloc_jax.paper.studies import Evidence, Study
from cloc_jax.report import figures
from cloc_jax.runtime import sharding
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics
from cloc_jax.sweeps.plan import Options, Plan, Setting, plan_runs
from cloc_jax.sweeps.sweep import LOCAL
from cloc_jax.training import assembly, encoder
from cloc_jax.training.assembly import build_dataset

LEARNED, PERMUTED = "learned", "permuted"
SGD_RATE = 0.01  # of margins; with momentum, about 0.1 x gradient a step
SURE = 0.05
MATERIAL = 0.01  # a smaller part of a difference is of no use to anybody
COLLAPSED = 0.02  # margins below this no longer hold ranks apart
NEVER = 2.0  # a train accuracy that no run reaches
LOW_START = (0.05, 0.1)
PRECAUTIONS = (
    "all precautions",
    "relu in place of softplus",
    "starts of 0.05 to 0.1",
    "no early stop",
    "none of them",
)


@dataclasses.dataclass(frozen=True)
class Course:
    """Margins of one setting along phase one."""

    mean: tuple[tuple[float, ...], ...]  # [epoch, boundary]
    std: tuple[tuple[float, ...], ...]


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two boundaries: how far apart their margins are, and whether it is chance."""

    first: str
    second: str
    difference: float  # first minus second, mean over seeds
    null: float  # the same on permuted labels, mean over permutations
    p: float  # that labels explain nothing of it, for all pairs at once
    is_real: bool  # whether labels explain a part of it that anybody could use


@dataclasses.dataclass(frozen=True)
class Correlation:
    """Spearman's rank correlation; None where all values are the same."""

    value: float | None
    p: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginStudy(Study):
    """What margins.json holds."""

    draws: int
    boundaries: tuple[str, ...]
    starts: tuple[tuple[float, ...], ...]  # [seed, boundary]
    courses: dict[str, Course]
    pairs: tuple[Comparison, ...]
    explained_by_start: float | None
    optimizer: str
    true_gaps: tuple[float, ...]  # () where nobody knows them
    true_gaps_correlation: Correlation
    separability: tuple[float, ...]  # AUC of a linear probe by boundary
    separability_correlation: Correlation


@dataclasses.dataclass(frozen=True)
class CollapseSetting:
    """Margins of runs with some of the precautions."""

    courses: tuple[tuple[tuple[float, ...], ...], ...]  # [run, epoch, boundary]
    collapsed: int  # runs
    end: tuple[float, ...]  # mean over runs


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollapseStudy(Study):
    """What collapse.json holds."""

    boundaries: tuple[str, ...]
    settings: dict[str, CollapseSetting]


def study_margins(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    seeds: int,
    draws: int,
    options: Options = LOCAL,
) -> MarginStudy:
    """Trains phase one many times and says which differences of margins are real.

    Args:
      config: of the runs; every boundary that is learned takes part.
      folder: of the study; each run has its own below it.
      seeds: runs per setting.
      draws: permutations of the labels, each trained with all seeds.
      options: where and how the runs are trained.
    """
    _check_method(config)
    if seeds < 2 or draws < 19:
        raise ValueError(
            f"--seeds is {seeds} and --draws is {draws}; a band needs 2 seeds or more, "
            "and a p-value of 0.05 at least 19 permutations."
        )
    common = phase_one_only(config)
    ranks = build_dataset(config).ranks
    names = metrics.boundary_names(ranks)
    settings = _settings(common, draws)
    runs = plan_runs(common, settings, seeds=seeds)
    plans = studies.train(runs, folder, options)
    courses = {
        name: np.array([read_course(folder / plan.name, names) for plan in own])
        for name, own in plans.items()
    }  # [run, epoch, boundary]
    first = plans[LEARNED][0]
    before = [_initial_margins(plan, len(ranks)) for plan in plans[LEARNED]]
    areas = linear_probe.neighbour_areas(first.config, RunFolder(folder / first.name))
    gaps = np.diff(drawn_knees.centres()) if config.data.name == "synthetic" else None
    study = _analyse(
        courses,
        np.array(before, np.float64),
        names,
        areas=areas,
        gaps=gaps,
        optimizer=config.method.cloc.margin_optimizer or config.optimizer.name,
        about=studies.about(first),
    )
    studies.finish(folder, "margins", study, first, figures.margin_study)
    return study


def _check_method(config: ConfigDict) -> None:
    if config.method.name != "cloc":
        raise ValueError(
            f"method.name is {config.method.name!r}, which has no margins; use cloc."
        )


def phase_one_only(config: ConfigDict) -> ConfigDict:
    """The configuration with a phase one of exactly train.max_epochs, and no more."""
    common = copy.deepcopy(config)
    common.method.cloc.phases = 1
    common.method.cloc.stop_accuracy = NEVER
    common.train.patience = common.train.max_epochs
    return common


def _settings(config: ConfigDict, draws: int) -> list[Setting]:
    sgd = {
        "method.cloc.margin_optimizer": "sgd",
        "method.cloc.margin_learning_rate": SGD_RATE,
    }
    settings = [
        Setting(LEARNED, {}),
        Setting("equal starts", {"method.cloc.margins": "learn=0.75"}),
        Setting("sgd", sgd),
    ]
    if config.head.projection:
        is_relu = config.head.projection_relu
        name = "signed" if is_relu else "relu"
        settings.append(Setting(name, {"head.projection_relu": not is_relu}))
    return settings + [
        Setting(f"{PERMUTED} {n}", {"data.permute": n}) for n in range(1, draws + 1)
    ]


def read_course(run: pathlib.Path, names: Sequence[str]) -> list[list[float]]:
    """Margins [epoch, boundary] along phase one of a run."""
    return [
        [row["readouts"]["margins"][name] for name in names]
        for row in RunFolder(run).read_history()
        if row["stage"] == "joint"
    ]


def _initial_margins(plan: Plan, num_ranks: int) -> np.ndarray:
    """A run's margins before the first step."""
    method = assembly.build_method(plan.config, num_ranks, sharding.make_mesh(1))
    readouts = method.readouts(encoder.Creator(plan.config, method)())
    return np.asarray(readouts["margins"].values)


def _analyse(
    courses: Mapping[str, np.ndarray],
    starts: np.ndarray,
    names: Sequence[str],
    *,
    areas: Sequence[float],
    gaps: np.ndarray | None,
    optimizer: str,
    about: Mapping[str, Any],
) -> MarginStudy:
    """What the margins [run, epoch, boundary] of all settings say."""
    permuted = [v for k, v in courses.items() if k.startswith(PERMUTED)]
    shown = {k: v for k, v in courses.items() if not k.startswith(PERMUTED)}
    shown[PERMUTED] = np.concatenate(permuted)
    learned = courses[LEARNED][:, -1]  # [run, boundary]
    ends = learned.mean(0)
    nulls = np.stack([course[:, -1].mean(0) for course in permuted])
    none = Correlation(None, None)
    study = MarginStudy(
        **about,
        seeds=len(learned),
        draws=len(nulls),
        boundaries=tuple(names),
        starts=_tuples(starts),
        courses={
            name: Course(_tuples(course.mean(0)), _tuples(course.std(0, ddof=1)))
            for name, course in shown.items()
        },
        pairs=tuple(compare(ends, nulls, names)),
        # How much of a margin is where it started: within boundaries, over seeds.
        explained_by_start=_explained(starts, learned),
        optimizer=optimizer,
        true_gaps=() if gaps is None else _tuples(gaps),
        true_gaps_correlation=none if gaps is None else rank_correlation(ends, gaps),
        separability=tuple(areas),
        separability_correlation=rank_correlation(ends, np.array(areas)),
    )
    study = dataclasses.replace(study, sentence=_sentence(study.pairs))
    return dataclasses.replace(
        study,
        notes=tuple(_notes(study)),
        evidence=tuple(_evidence(study)),
        columns=("Boundary", "Start", *study.courses, "Probe AUC"),
        rows=tuple(
            (
                name,
                f"{starts[:, h].mean():.3f}",
                *(
                    f"{c.mean[-1][h]:.3f} ± {c.std[-1][h]:.3f}"
                    for c in study.courses.values()
                ),
                f"{areas[h]:.3f}",
            )
            for h, name in enumerate(names)
        ),
    )


def _tuples(values: np.ndarray) -> Any:
    """The array as nested tuples."""
    is_flat = values.ndim == 1
    return tuple(values.tolist() if is_flat else (_tuples(row) for row in values))


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
    compared = []
    for i, (a, b) in enumerate(pairs):
        difference, null = float(apart[0, i]), float(apart[1:, i].mean())
        # Rounding must not make the set differ from itself.
        p = float(np.mean(furthest >= far[0, i] - 1e-9))
        is_real = p <= SURE and abs(difference - null) >= MATERIAL
        compared.append(Comparison(names[a], names[b], difference, null, p, is_real))
    return compared


def _explained(starts: np.ndarray, ends: np.ndarray) -> float | None:
    """Share of the variance of learned margins over seeds that starts explain."""
    x, y = (starts - starts.mean(0)).ravel(), (ends - ends.mean(0)).ravel()
    if not (x @ x) or not (y @ y):
        return None
    return float((x @ y) ** 2 / ((x @ x) * (y @ y)))


def rank_correlation(a: np.ndarray, b: np.ndarray) -> Correlation:
    """Spearman's correlation, with the exact p-value over all orders where few."""
    from scipy import stats  # late: it takes a second

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return Correlation(None, None)
    value = float(stats.spearmanr(a, b).statistic)
    if len(a) > 8:
        return Correlation(value, float(stats.spearmanr(a, b).pvalue))
    orders = itertools.permutations(range(len(a)))
    chance = [float(stats.spearmanr(a, b[list(o)]).statistic) for o in orders]
    return Correlation(value, float(np.mean(np.abs(chance) >= abs(value) - 1e-9)))


def _sentence(pairs: Sequence[Comparison]) -> str:
    real = [pair for pair in pairs if pair.is_real]
    if not real:
        return (
            f"The labels explain none of the {len(pairs)} differences between learned "
            f"margins by {MATERIAL:g} or more: permuted labels give the same."
        )
    listed = ", ".join(
        f"{pair.first} against {pair.second} ({pair.difference:+.2f}, where permuted "
        f"labels give {pair.null:+.2f})"
        for pair in real
    )
    return (
        f"The labels explain part of {len(real)} of {len(pairs)} differences between "
        f"learned margins (p <= {SURE}, all pairs at once): {listed}."
    )


def _correlations(study: MarginStudy) -> Iterator[tuple[str, float, float]]:
    """What learned margins were compared with, Spearman's correlation and its p."""
    for what, found in (
        ("true gaps", study.true_gaps_correlation),
        ("AUC of a linear probe", study.separability_correlation),
    ):
        if found.value is not None and found.p is not None:
            yield what, found.value, found.p


def _notes(study: MarginStudy) -> Iterator[str]:
    share = study.explained_by_start
    if share is not None:
        yield f"The start of a margin explains {share:.0%} of its variance over seeds."
    for what, value, p in _correlations(study):
        yield (
            f"Rank correlation of learned margins and {what}: {value:+.2f} "
            f"(p = {p:.2f})."
        )


def _evidence(study: MarginStudy) -> Iterator[Evidence]:
    """For `claims`."""
    yield Evidence(
        "margins_differ",
        f"{study.draws} permutations, all pairs at once, margins by {study.optimizer}",
        study.sentence,
        HOLDS if any(pair.is_real for pair in study.pairs) else FAILS,
    )
    for what, value, p in _correlations(study):
        verdict = HOLDS if value > 0 else FAILS
        yield Evidence(
            "separability",
            f"learned margins (by {study.optimizer}) and {what}",
            f"rank correlation {value:+.2f}, p = {p:.2f}",
            verdict if p <= SURE else OPEN,
        )


# --- collapse ---


def collapse(
    config: ConfigDict, folder: pathlib.Path, *, seeds: int, options: Options = LOCAL
) -> CollapseStudy:
    """Trains phase one with and without the precautions, and draws their margins.

    Args:
      config: what all runs have in common.
      folder: of the study; each run has its own below it.
      seeds: runs per setting.
      options: where and how the runs are trained.
    """
    _check_method(config)
    names = metrics.boundary_names(build_dataset(config).ranks)
    settings = precautions(config.train.max_epochs)
    runs = plan_runs(config, settings, seeds=seeds)
    plans = studies.train(runs, folder, options)
    found, rows = {}, []
    for name, own in plans.items():
        courses = [np.array(read_course(folder / plan.name, names)) for plan in own]
        ends = np.array([course[-1] for course in courses])  # [run, boundary]
        count = int((ends < COLLAPSED).any(1).sum())
        found[name] = CollapseSetting(
            tuple(_tuples(course) for course in courses), count, _tuples(ends.mean(0))
        )
        epochs = [len(course) for course in courses]
        margins = " ".join(f"{value:.3f}" for value in ends.mean(0))
        span = f"{min(epochs)}–{max(epochs)}"
        rows.append((name, span, margins, f"{count} of {len(own)}"))
    first = plans[PRECAUTIONS[0]][0]
    kept, lost = (found[PRECAUTIONS[i]].collapsed for i in (0, -1))
    sentence = (
        f"A margin fell below {COLLAPSED} in {kept} of {seeds} runs with all "
        f"precautions, and in {lost} of {seeds} with none of them."
    )
    verdict = HOLDS if kept < lost else (FAILS if lost else OPEN)
    study = CollapseStudy(
        **studies.about(first),
        seeds=seeds,
        boundaries=tuple(names),
        settings=found,
        sentence=sentence,
        evidence=(Evidence("precautions", "phase one", sentence, verdict),),
        columns=("Setting", "Epochs", "Margins at the end", "Runs that collapsed"),
        rows=tuple(rows),
    )
    studies.finish(folder, "collapse", study, first, figures.collapse)
    return study


def precautions(max_epochs: int) -> list[Setting]:
    """Phase one with all precautions, without each, and with none of them.

    Args:
      max_epochs: that phase one takes where nothing stops it early.
    """
    relu: dict[str, Any] = {"method.cloc.margin_form": "relu"}
    start: dict[str, Any] = {"method.cloc.margin_start": LOW_START}
    long: dict[str, Any] = {
        "method.cloc.stop_accuracy": NEVER,
        "train.patience": max_epochs,
    }
    changes: tuple[dict[str, Any], ...] = ({}, relu, start, long, relu | start | long)
    return [
        Setting(name, {"method.cloc.phases": 1} | change)
        for name, change in zip(PRECAUTIONS, changes, strict=True)
    ]
