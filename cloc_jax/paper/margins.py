"""What learned margins mean, and what keeps them from collapsing.

The hinge never falls as a margin grows, so training only shrinks margins, under Adam by
about the learning rate per step whatever the data. Before anyone reads meaning into
their differences, `study_margins` compares them with the same training on permuted
labels and with equal starts; all its runs take the same number of steps, that of phase
one's cap.

Nothing in the loss keeps margins up, so a long phase one may shrink them to nothing.
The paper prevents that by softplus, starts in [0.5, 1), and a stop at 95% training
accuracy; `collapse` switches off each alone, and all of them together.
"""

import dataclasses
import itertools
import pathlib
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from cloc_jax.data import drawn_knees
from cloc_jax.data.source import KeptFeatures
from cloc_jax.paper import studies
from cloc_jax.paper.claims import FAILS, HOLDS, OPEN
from cloc_jax.paper.studies import Evidence, Runs, Study
from cloc_jax.report.figures import studies as pictures
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import metrics
from cloc_jax.sweeps.sweep import Setting
from cloc_jax.training import assembly
from cloc_jax.training.trained_run import TrainedRun

LEARNED, PERMUTED = "learned", "permuted"
FREE = {"method.cloc.margin_budget": 0.0}  # only a free sum of margins can collapse
SURE, LEAST_DRAWS = 0.05, 19
MATERIAL = 0.01  # a smaller part of a difference is of no use to anybody
GAPS, AREAS = "true gaps", "AUC of a linear probe"
COLLAPSED = 0.02  # margins below this no longer hold ranks apart
NEVER = 2.0  # a train accuracy that no run reaches


@dataclasses.dataclass(frozen=True)
class Comparison:
    """Two boundaries: how far apart their margins are, and whether it is chance."""

    first: str
    second: str
    difference: float  # first minus second, mean over seeds
    null: float  # the same on permuted labels, mean over permutations
    p: float  # that labels explain nothing of it, for all pairs at once
    is_real: bool  # whether labels explain a part of it that anybody could use


@dataclasses.dataclass(frozen=True, kw_only=True)
class MarginStudy(Study):
    """What margins.json holds."""

    draws: int
    boundaries: tuple[str, ...]
    # Margins along phase one, by setting and "mean" or "std": [epoch, boundary].
    courses: dict[str, dict[str, list[list[float]]]]
    pairs: tuple[Comparison, ...]
    separability: tuple[float, ...]  # AUC of a linear probe by boundary


@dataclasses.dataclass(frozen=True, kw_only=True)
class CollapseStudy(Study):
    """What collapse.json holds."""

    boundaries: tuple[str, ...]
    # Of the runs with some of the precautions: [run, epoch, boundary].
    courses: dict[str, list[list[list[float]]]]


def study_margins(runs: Runs, *, draws: int) -> MarginStudy:
    """Trains phase one many times and says which differences of margins are real.

    Every boundary that is learned takes part. `draws` permutations of the labels are
    each trained with all seeds.
    """
    if runs.seeds < 2 or draws < LEAST_DRAWS:
        raise ValueError(
            f"--seeds is {runs.seeds} and --draws is {draws}; a band needs 2 seeds or "
            f"more, and a p-value of {SURE} at least {LEAST_DRAWS} permutations."
        )
    names = metrics.boundary_names(assembly.build_dataset(runs.config).ranks)
    settings = _settings(draws, runs.config.train.max_epochs)
    plans = runs.train(settings)
    first, is_drawn = plans[LEARNED][0], runs.config.data.name == "synthetic"
    study = _analyse(
        {  # [run, epoch, boundary]
            name: np.array(
                [read_course(runs.folder / plan.name, names) for plan in own]
            )
            for name, own in plans.items()
        },
        names,
        areas=neighbour_areas(first.config, RunFolder(runs.folder / first.name)),
        gaps=np.diff(drawn_knees.centres()) if is_drawn else np.zeros(0),
        about=studies.about(first),
    )
    runs.finish("margins", study, first, pictures.margin_study)
    return study


def phase_one_alone(max_epochs: int) -> dict[str, Any]:
    """Settings of a phase one of exactly as many epochs, and no phase two."""
    return {
        "method.cloc.phases": 1,
        "method.cloc.stop_accuracy": NEVER,
        "train.patience": max_epochs,
    }


def _settings(draws: int, max_epochs: int) -> list[Setting]:
    changes: dict[str, dict[str, Any]] = {
        LEARNED: {},
        "equal starts": {"method.cloc.margins": "learn=0.75"},
    }
    changes |= {f"{PERMUTED} {n}": {"data.permute": n} for n in range(1, draws + 1)}
    alone = phase_one_alone(max_epochs)
    return [Setting(name, alone | change) for name, change in changes.items()]


def read_course(run: pathlib.Path, names: Sequence[str]) -> list[list[float]]:
    """Margins [epoch, boundary] along phase one of a run."""
    return [
        [row["readouts"]["margins"][name] for name in names]
        for row in RunFolder(run).read_history()
        if row["stage"] == "joint"
    ]


def _analyse(
    courses: Mapping[str, np.ndarray],
    names: Sequence[str],
    *,
    areas: Sequence[float],
    gaps: np.ndarray,
    about: Mapping[str, Any],
) -> MarginStudy:
    """What the margins [run, epoch, boundary] of all settings say."""
    permuted = [v for k, v in courses.items() if k.startswith(PERMUTED)]
    shown = {k: v for k, v in courses.items() if not k.startswith(PERMUTED)}
    shown[PERMUTED] = np.concatenate(permuted)
    last = [course[:, -1] for course in shown.values()]
    learned = courses[LEARNED][:, -1]  # [run, boundary]
    ends = learned.mean(0)
    nulls = np.stack([course[:, -1].mean(0) for course in permuted])
    pairs = tuple(compare(ends, nulls, names))
    correlations = {AREAS: rank_correlation(ends, np.array(areas))}
    if len(gaps):
        correlations[GAPS] = rank_correlation(ends, gaps)
    notes = []
    sentence = _sentence(pairs)
    differ = HOLDS if any(pair.is_real for pair in pairs) else FAILS
    tried = f"{len(nulls)} permutations, all pairs at once"
    evidence = [Evidence("margins_differ", tried, sentence, differ)]
    for what, correlation in correlations.items():
        if not correlation:
            continue
        value, p = correlation
        text = f"rank correlation {value:+.2f}, p = {p:.2f}"
        notes.append(f"Learned margins and {what}: {text}.")
        follows = HOLDS if value > 0 else FAILS
        tried = f"learned margins and {what}"
        evidence.append(
            Evidence("separability", tried, text, follows if p <= SURE else OPEN)
        )
    return MarginStudy(
        **about,
        seeds=len(learned),
        draws=len(nulls),
        boundaries=tuple(names),
        courses={
            name: {"mean": c.mean(0).tolist(), "std": c.std(0, ddof=1).tolist()}
            for name, c in shown.items()
        },
        pairs=pairs,
        separability=tuple(areas),
        sentence=sentence,
        notes=tuple(notes),
        evidence=tuple(evidence),
        columns=("Boundary", *shown, "Probe AUC"),
        rows=tuple(
            (
                name,
                *(f"{c[:, h].mean():.3f} ± {c[:, h].std(ddof=1):.3f}" for c in last),
                f"{areas[h]:.3f}",
            )
            for h, name in enumerate(names)
        ),
    )


def compare(
    learned: np.ndarray, nulls: np.ndarray, names: Sequence[str]
) -> list[Comparison]:
    """Differences of all pairs of margins against permuted sets.

    Every set, the learned one included, is measured by its distance from the mean of
    all sets in units of their spread, so that under the null each is as likely as any
    other to be the furthest; a pair's p-value is the share of sets whose furthest pair
    is at least as far (Westfall and Young's correction for asking about all pairs).
    Margins are means over seeds: learned ones [boundary], nulls [draw, boundary].
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


def rank_correlation(a: np.ndarray, b: np.ndarray) -> tuple[float, float] | None:
    """Spearman's correlation and its p-value, exact over all orders where few.

    None where all values are the same, or there are only two.
    """
    from scipy import stats  # late: it takes a second

    if len(a) < 3 or np.ptp(a) == 0 or np.ptp(b) == 0:
        return None

    def correlation(order: np.ndarray) -> float:
        return float(stats.spearmanr(order, b).statistic)

    tested = stats.permutation_test(
        (a,), correlation, permutation_type="pairings", rng=np.random.default_rng(0)
    )
    return float(tested.statistic), float(tested.pvalue)


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


def neighbour_areas(config: ConfigDict, folder: RunFolder) -> list[float]:
    """Area under the ROC curve (AUC) of each boundary, on validation images.

    A logistic regression for each pair of neighbouring ranks, fitted on the training
    images: on the features of the frozen encoder where there is one, which no margin
    has touched, else on the embeddings of the given run.
    """
    parts = assembly.build(config, folder)
    inputs, labels = {}, {}
    for split in ("train", "val"):
        source = parts.dataset.splits[split]
        labels[split] = np.asarray(source.labels)
        if config.encoder.frozen and isinstance(source, KeptFeatures):
            inputs[split] = np.asarray(source.views[0])
        else:
            inputs[split] = TrainedRun(config, folder, parts).embed(source)
    return probe_areas(inputs, labels, len(parts.dataset.ranks))


def probe_areas(
    inputs: Mapping[str, np.ndarray], labels: Mapping[str, np.ndarray], num_ranks: int
) -> list[float]:
    """AUC of each boundary; 0.5 where a rank has no validation image."""
    areas = []
    for h in range(num_ranks - 1):
        of = {s: np.isin(labels[s], (h, h + 1)) for s in inputs}
        above = {s: labels[s][of[s]] > h for s in inputs}
        if any(len(np.unique(above[s])) < 2 for s in inputs):
            areas.append(0.5)
            continue
        model = make_pipeline(
            StandardScaler(), LogisticRegression(C=1e-3, max_iter=1000)
        )
        model.fit(inputs["train"][of["train"]], above["train"])
        chance = model.predict_proba(inputs["val"][of["val"]])[:, 1]
        areas.append(float(roc_auc_score(above["val"], chance)))
    return areas


# --- collapse ---


def collapse(runs: Runs) -> CollapseStudy:
    """Trains phase one with and without the precautions, and draws their margins."""
    names = metrics.boundary_names(assembly.build_dataset(runs.config).ranks)
    settings = precautions(runs.config.train.max_epochs)
    plans = runs.train(settings)
    by_setting: dict[str, Any] = {}
    collapsed, rows = [], []
    for name, own in plans.items():
        courses = [read_course(runs.folder / plan.name, names) for plan in own]
        ends = np.array([course[-1] for course in courses])  # [run, boundary]
        collapsed.append(int((ends < COLLAPSED).any(1).sum()))
        by_setting[name] = courses
        epochs = [len(course) for course in courses]
        margins = " ".join(f"{value:.3f}" for value in ends.mean(0))
        span = f"{min(epochs)}–{max(epochs)}"
        rows.append((name, span, margins, f"{collapsed[-1]} of {len(own)}"))
    first = next(iter(plans.values()))[0]
    kept, lost = collapsed[0], collapsed[-1]
    sentence = (
        f"A margin fell below {COLLAPSED} in {kept} of {runs.seeds} runs with all "
        f"precautions, and in {lost} of {runs.seeds} with none of them."
    )
    verdict = HOLDS if kept < lost else (FAILS if lost else OPEN)
    study = CollapseStudy(
        **studies.about(first),
        seeds=runs.seeds,
        boundaries=tuple(names),
        courses=by_setting,
        sentence=sentence,
        evidence=(Evidence("precautions", "phase one", sentence, verdict),),
        columns=("Setting", "Epochs", "Margins at the end", "Runs that collapsed"),
        rows=tuple(rows),
    )
    runs.finish("collapse", study, first, pictures.collapse)
    return study


def precautions(max_epochs: int) -> list[Setting]:
    """Phase one with all precautions, without each, and with none of them."""
    relu: dict[str, Any] = {"method.cloc.margin_form": "relu"}
    start: dict[str, Any] = {"method.cloc.margin_start": (0.05, 0.1)}
    long = phase_one_alone(max_epochs)
    changes = {
        "all precautions": {},
        "relu in place of softplus": relu,
        "starts of 0.05 to 0.1": start,
        "no early stop": long,
        "none of them": relu | start | long,
    }
    return [
        Setting(name, {"method.cloc.phases": 1, **FREE} | change)
        for name, change in changes.items()
    ]
