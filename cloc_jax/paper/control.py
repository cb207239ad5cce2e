"""The control curve: what a margin set by hand buys at its boundary, and its cost.

Errors at a boundary also fall when a rank is simply never predicted, or when mistakes
move further off. So the curve counts every image on the wrong side, both directions
apart, and shows beside it accuracy, MAE and how often each rank is predicted. Learned
margins and cross-entropy are the references; decision control, which moves the
threshold of a finished run instead, is drawn on the same axes.
"""

import dataclasses
import pathlib
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.paper import claims, studies
from cloc_jax.paper.studies import Evidence, Study
from cloc_jax.report import figures
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions, intervals, metrics, predictions, results
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import TradeOff
from cloc_jax.sweeps.plan import Options, Plan, Setting, plan_runs
from cloc_jax.sweeps.sweep import LOCAL
from cloc_jax.training.assembly import build_dataset

LEARNED, ENTROPY = "learned", "cross-entropy"
CROSSING = "crossing_rate"  # every image on the wrong side of the boundary
MISSED, ALARM = "crossing_missed_rate", "crossing_false_alarm_rate"
OVERALL = ("accuracy", "mae", "qwk")
RATES = {
    CROSSING: "Wrong side of {}",
    MISSED: "Missed",
    ALARM: "False alarms",
    "error_rate": "Neighbours mistaken",
}
SURE = 0.05
TARGETS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)
OUTCOMES = {
    "helped": "helped",
    "hurt": "made it worse",
    "unclear": "made no difference that these runs can show",
}


Ends = tuple[float | None, ...]  # of a 95% interval


@dataclasses.dataclass(frozen=True)
class Score:
    """A score of a setting over its seeds, and its difference to learned margins."""

    mean: float | None
    interval: Ends
    difference: float | None
    difference_interval: Ends


@dataclasses.dataclass(frozen=True)
class ControlSetting:
    """The runs of one margin, of learned margins or of cross-entropy."""

    margins: dict[str, float]  # at the end, mean over seeds; {} without
    scores: dict[str, Score]  # "accuracy", …, and such as "1|2 crossing_rate"
    predicted_counts: tuple[float, ...]  # by rank, mean over seeds
    p: dict[str, float]  # by boundary: that its errors are those of learned margins


@dataclasses.dataclass(frozen=True)
class ControlVerdict:
    """What the margin that validation chose did at a boundary."""

    setting: str
    margin: float
    learned: float
    before: float  # share of the test images on the wrong side
    after: float
    difference_interval: Ends
    p: float
    outcome: str  # of OUTCOMES
    accuracy_before: float
    accuracy_after: float
    missed_after: float
    decision_missed: float | None  # by thresholds of the learned runs instead
    decision_accuracy: float | None


@dataclasses.dataclass(frozen=True, kw_only=True)
class ControlStudy(Study):
    """What control.json holds."""

    boundary: tuple[str, ...]
    ranks: tuple[str, ...]
    images: int
    settings: dict[str, ControlSetting]
    true_counts: tuple[int, ...]
    # By LEARNED and ENTROPY, boundary and target of missed images.
    decision: dict[str, dict[str, tuple[dict[str, float | None], ...]]]
    verdicts: dict[str, ControlVerdict]


class Measured(NamedTuple):
    """One setting, over its seeds."""

    splits: Sequence[Mapping[str, Predictions]]  # one per seed
    margins: dict[str, float]  # at the end, mean over seeds; {} without
    test: dict[str, list[float]]  # by metric, one number per seed
    val: dict[str, list[float]]
    drawn: dict[str, np.ndarray]  # by metric, [draw]: seeds and test images drawn again
    counts: tuple[float, ...]  # how often each rank was predicted, mean over seeds


def control(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    boundaries: Sequence[str],
    values: Sequence[float | int],
    seeds: int,
    options: Options = LOCAL,
) -> ControlStudy:
    """Trains a run for each value and seed, and writes the control curve.

    Args:
      config: what all runs have in common; its margins are those of the reference.
      folder: of the study; each run has its own below it.
      boundaries: whose margins are set, such as "1|2".
      values: of those margins.
      seeds: runs per value.
      options: where and how the runs are trained.
    """
    if config.method.name != "cloc":
        raise ValueError(
            f"control raises margins, but method.name is {config.method.name!r}, which "
            "has none; use cloc. Any method can be steered by `launch.py decide`."
        )
    if not values or min(values) <= 0 or not np.isfinite(values).all():
        raise ValueError(
            f"--values is {','.join(f'{v:g}' for v in values) or 'not given'}; give "
            "margins above 0 with commas between them, such as 0.1,0.3,0.6."
        )
    ranks = build_dataset(config).ranks
    at = _boundary_index(boundaries, ranks)
    settings = _settings(config, at, len(ranks) - 1, values)
    runs = plan_runs(config, settings, seeds=seeds)
    plans = studies.train(runs, folder, options)
    first = plans[LEARNED][0]
    study = _analyse(folder, plans, at, ranks, studies.about(first))
    evidence = tuple(_evidence(study, is_biased=bool(config.data.relabel)))
    study = dataclasses.replace(study, evidence=evidence)
    studies.finish(folder, "control", study, first, figures.control)
    return study


def _boundary_index(names: Sequence[str], ranks: Sequence[str]) -> list[int]:
    """Places of boundaries that a person named, lowest first."""
    known = metrics.boundary_names(ranks)
    if not names or not set(names) <= set(known) or len(set(names)) < len(names):
        raise ValueError(
            f"--boundary is {', '.join(names) or 'not given'}; name one or more of "
            f"{', '.join(known)}, each once."
        )
    return sorted(known.index(name) for name in names)


def _settings(
    config: ConfigDict,
    at: Sequence[int],
    num_boundaries: int,
    values: Sequence[float | int],
) -> list[Setting]:
    """Learned, each value, and cross-entropy."""
    given = config.method.cloc.margins
    if isinstance(given, str) and given.strip().startswith("shared"):
        raise ValueError(
            "method.cloc.margins is shared, one value for all boundaries, so one of "
            "them cannot be raised alone; use learn."
        )
    is_list = isinstance(given, list | tuple)
    entries = list(given) if is_list else [given] * num_boundaries
    reference = ["learn" if h in at else e for h, e in enumerate(entries)]
    settings = [Setting(LEARNED, {"method.cloc.margins": reference})]
    for value in values:
        raised = [float(value) if h in at else e for h, e in enumerate(reference)]
        settings.append(Setting(f"margin={value:g}", {"method.cloc.margins": raised}))
    return [*settings, Setting(ENTROPY, {"method.name": "ce"})]


def _analyse(
    folder: pathlib.Path,
    plans: Mapping[str, Sequence[Plan]],
    at: Sequence[int],
    ranks: Sequence[str],
    about: Mapping[str, Any],
) -> ControlStudy:
    """Everything that the runs say."""
    names = metrics.boundary_names(ranks)
    measured = {
        name: _measure([folder / plan.name for plan in runs], at, ranks)
        for name, runs in plans.items()
    }
    raised = [name for name in measured if name not in (LEARNED, ENTROPY)]
    learned = measured[LEARNED]
    p_values: dict[str, dict[str, float]] = {name: {} for name in measured}
    verdicts = {}
    for h in at:
        key = f"{names[h]} {CROSSING}"
        plain = [
            intervals.two_sided(measured[n].drawn[key] - learned.drawn[key])
            for n in raised
        ]
        for name, p in zip(raised, intervals.holm(plain), strict=True):
            p_values[name][names[h]] = p
        # Which value to speak of is chosen on validation, then told on test: of those
        # above the learned margin, if there are any.
        margin = learned.margins[names[h]]
        above = [n for n in raised if measured[n].margins[names[h]] > margin]
        best = min(above or raised, key=lambda n: float(np.mean(measured[n].val[key])))
        p = p_values[best][names[h]]
        verdicts[names[h]] = _verdict(best, measured[best], learned, names[h], h, p)
    test = learned.splits[0]["test"]
    study = ControlStudy(
        **about,
        seeds=len(learned.splits),
        boundary=tuple(names[h] for h in at),
        ranks=tuple(ranks),
        images=len(test.true),
        settings={
            name: ControlSetting(
                one.margins, _compared(one, learned), one.counts, p_values[name]
            )
            for name, one in measured.items()
        },
        true_counts=tuple(np.bincount(test.true, minlength=len(ranks)).tolist()),
        decision={
            name: {names[h]: _decision_curve(measured[name].splits, h) for h in at}
            for name in (LEARNED, ENTROPY)
        },
        verdicts=verdicts,
        sentence=" ".join(_sentence(b, v) for b, v in verdicts.items()),
    )
    columns, rows = _table(study)
    return dataclasses.replace(study, notes=_notes(study), columns=columns, rows=rows)


def _measure(
    runs: Sequence[pathlib.Path], at: Sequence[int], ranks: Sequence[str]
) -> Measured:
    names = metrics.boundary_names(ranks)
    found = [results.read_results(RunFolder(run)) for run in runs]
    splits = [predictions.read(*pair) for pair in zip(runs, found, strict=True)]
    scored: dict[str, dict[str, list[float]]] = {}
    for split in ("val", "test"):
        confusions = np.stack(
            [
                metrics.confusion_matrix(s[split].true, s[split].predicted, len(ranks))
                for s in splits
            ]
        )
        by_name = _scores(confusions, at, names)
        scored[split] = {name: values.tolist() for name, values in by_name.items()}
    predicted = np.stack([s["test"].predicted for s in splits])
    redrawn = intervals.redrawn(splits[0]["test"].true, predicted, len(ranks))
    return Measured(
        splits,
        {n: float(np.mean([r.margins[n] for r in found])) for n in found[0].margins},
        scored["test"],
        scored["val"],
        _scores(redrawn, at, names),
        tuple(float((predicted == r).sum() / len(splits)) for r in range(len(ranks))),
    )


def _scores(
    confusions: np.ndarray, at: Sequence[int], names: Sequence[str]
) -> dict[str, np.ndarray]:
    """Overall scores, and rates of each boundary as "1|2 crossing_rate"."""
    overall = metrics.scores(confusions)
    scores = {name: overall[name] for name in OVERALL}
    rates = metrics.boundary_rates(confusions)
    for h in at:
        scores |= {f"{names[h]} {rate}": rates[rate][..., h] for rate in RATES}
    return scores


def _compared(one: Measured, reference: Measured) -> dict[str, Score]:
    """Mean over seeds, intervals and difference to learned margins, by score."""
    scores = {}
    for name, values in one.test.items():
        apart = intervals.percentiles(one.drawn[name] - reference.drawn[name])
        scores[name] = Score(
            mean=_number(np.mean(values)),
            interval=_numbers(intervals.percentiles(one.drawn[name])),
            difference=_number(np.mean(values) - np.mean(reference.test[name])),
            difference_interval=_numbers(apart),
        )
    return scores


def _decision_curve(
    splits: Sequence[Mapping[str, Predictions]], h: int
) -> tuple[dict[str, float | None], ...]:
    """Thresholds for each missed rate, chosen on validation, and what test says."""
    rows = [decisions.trade_off(s["val"], s["test"], h, TARGETS) for s in splits]
    keys = ("target", MISSED, ALARM, *OVERALL)
    return tuple(
        {key: _mean([r[i] for r in rows], key) for key in keys}
        for i in range(len(TARGETS))
    )


def _verdict(
    setting: str, one: Measured, learned: Measured, boundary: str, h: int, p: float
) -> ControlVerdict:
    key = f"{boundary} {CROSSING}"
    before, after = float(np.mean(learned.test[key])), float(np.mean(one.test[key]))
    apart = intervals.percentiles(one.drawn[key] - learned.drawn[key])
    is_sure = p < SURE and len(one.test[key]) > 1
    accuracy = float(np.mean(one.val["accuracy"]))
    equal = [
        decisions.at_accuracy(s["val"], s["test"], h, accuracy) for s in learned.splits
    ]
    # A run whose thresholds cannot reach that accuracy stays out.
    reached = [row for row in equal if row]
    return ControlVerdict(
        setting=setting,
        margin=one.margins[boundary],
        learned=learned.margins[boundary],
        before=before,
        after=after,
        difference_interval=_numbers(apart),
        p=p,
        outcome=("helped" if after < before else "hurt") if is_sure else "unclear",
        accuracy_before=float(np.mean(learned.test["accuracy"])),
        accuracy_after=float(np.mean(one.test["accuracy"])),
        missed_after=float(np.mean(one.test[f"{boundary} {MISSED}"])),
        decision_missed=_mean(reached, MISSED),
        decision_accuracy=_mean(reached, "accuracy"),
    )


def _sentence(boundary: str, v: ControlVerdict) -> str:
    low, high = v.difference_interval
    way = "Raising" if v.margin > v.learned else "Lowering"
    return (
        f"{way} the margin of {boundary} from {v.learned:.2f} (learned) to "
        f"{v.margin:.2f} {OUTCOMES[v.outcome]}: images on the wrong side went from "
        f"{v.before:.1%} to {v.after:.1%} of the test images (difference "
        f"{100 * (v.after - v.before):+.1f} points, 95% interval "
        f"{100 * (low or 0):+.1f} to {100 * (high or 0):+.1f}, p = {v.p:.2g}), while "
        f"accuracy went from {v.accuracy_before:.1%} to {v.accuracy_after:.1%}."
    )


def _notes(study: ControlStudy) -> tuple[str, ...]:
    notes = []
    for boundary, v in study.verdicts.items():
        if v.decision_missed is None:
            continue
        notes.append(
            f"With at least the validation accuracy of {v.setting}, moving the "
            f"threshold of the learned runs instead (decision control) misses "
            f"{v.decision_missed:.1%} of the images above {boundary} (accuracy "
            f"{v.decision_accuracy:.1%}); the margin misses {v.missed_after:.1%}."
        )
    for name, setting in study.settings.items():
        for rank, count, true in zip(
            study.ranks, setting.predicted_counts, study.true_counts, strict=True
        ):
            if true and count < true / 4:
                notes.append(
                    f"{name}: rank {rank} is predicted for {count:.0f} images, though "
                    f"{true} are of it; low errors beside it may mean only that."
                )
    if study.seeds < 5:
        notes.append(f"Only {study.seeds} seeds: the intervals are rough.")
    return tuple(notes)


def _table(study: ControlStudy) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Columns and rows of text, for the report."""
    keys = {"accuracy": "Accuracy", "mae": "MAE"}
    for boundary in study.boundary:
        for rate, title in RATES.items():
            keys[f"{boundary} {rate}"] = title.format(boundary)
    rows = []
    for name, setting in study.settings.items():
        known = [b for b in study.boundary if b in setting.margins]
        row = [name, ", ".join(f"{setting.margins[b]:.2f}" for b in known) or "–"]
        for score in (setting.scores[key] for key in keys):
            low, high = map(_text, score.interval)
            row.append(f"{_text(score.mean)} [{low}, {high}]")
        row.append(" ".join(f"{c:.0f}" for c in setting.predicted_counts))
        rows.append(tuple(row))
    true = " ".join(map(str, study.true_counts))
    rows.append(("true", "–", *["–"] * len(keys), true))
    return ("Setting", "Margin", *keys.values(), "Predicted by rank"), tuple(rows)


def _evidence(study: ControlStudy, *, is_biased: bool) -> Iterator[Evidence]:
    """For `claims`: errors where a margin was raised, and who is more accurate."""
    claimed = {"neighbour_errors": "error_rate", "crossings": CROSSING}
    if is_biased:
        claimed = {"biased_crossings": CROSSING}
    for claim, rate in claimed.items():
        for boundary, verdict in study.verdicts.items():
            if verdict.margin <= verdict.learned:
                continue  # nothing was raised
            key = f"{boundary} {rate}"
            before = study.settings[LEARNED].scores[key].mean or 0.0
            score = study.settings[verdict.setting].scores[key]
            apart = claims.signed(score.difference or 0.0, score.difference_interval)
            yield Evidence(
                claim,
                f"{boundary}, from {verdict.learned:.2f} to {verdict.margin:.2f}",
                f"{before:.3f} → {score.mean:.3f}, difference {apart}",
                claims.verdict_on(score.difference_interval, is_lower_better=True),
            )
    chosen = next(iter(study.verdicts.values())).setting
    better, other = (chosen, LEARNED) if is_biased else (LEARNED, ENTROPY)
    scores = [study.settings[name].scores["accuracy"] for name in (better, other)]
    # Intervals are kept for differences to the learned runs.
    sign, kept = (1, scores[0]) if is_biased else (-1, scores[1])
    ends = sorted(sign * (end or 0.0) for end in kept.difference_interval)
    apart = claims.signed(sign * (kept.difference or 0.0), ends)
    yield Evidence(
        "biased_accuracy" if is_biased else "beats_cross_entropy",
        f"{better} against {other}",
        f"accuracy {scores[0].mean:.3f} against {scores[1].mean:.3f}, difference "
        f"{apart}",
        claims.verdict_on(ends, is_lower_better=False),
    )


def _mean(rows: Sequence[TradeOff], key: str) -> float | None:
    known = [value for row in rows if (value := getattr(row, key)) is not None]
    return float(np.mean(known)) if known else None


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _numbers(values: Sequence[float]) -> tuple[float | None, ...]:
    return tuple(map(_number, values))


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
