"""The control curve: what a margin set by hand buys at its boundary, and its cost.

Errors at a boundary also fall when a rank is simply never predicted, or when mistakes
move further off. So the curve counts every image on the wrong side, both directions
apart, and shows beside it accuracy, MAE and how often each rank is predicted. Learned
margins and cross-entropy are the references; decision control, which moves the
threshold of a finished run instead, is drawn on the same axes.
"""

import dataclasses
import pathlib
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.paper import claims, studies
from cloc_jax.paper.studies import Evidence, Runs, Study
from cloc_jax.report.figures import studies as pictures
from cloc_jax.report.view import View
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import decisions, intervals, metrics
from cloc_jax.scoring.decisions import Graded
from cloc_jax.sweeps.sweep import Setting
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


@dataclasses.dataclass(frozen=True)
class ControlVerdict:
    """What the margin that validation chose did at a boundary."""

    setting: str
    outcome: str  # of OUTCOMES
    # By thresholds of the learned runs instead, with its accuracy on validation.
    decision_missed: float | None
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

    splits: Sequence[Mapping[str, Graded]]  # one per seed
    margins: dict[str, float]  # at the end, mean over seeds; {} without
    means: dict[str, dict[str, float]]  # over seeds, by split and score
    drawn: dict[str, np.ndarray]  # by score, [draw]: seeds and test images drawn again
    counts: tuple[float, ...]  # how often each rank was predicted, mean over seeds

    def difference(self, other: "Measured", score: str) -> intervals.Interval:
        """95% interval of its score minus another setting's."""
        return intervals.percentiles(self.drawn[score] - other.drawn[score])


def control(
    runs: Runs, *, boundaries: Sequence[str], values: Sequence[float | int]
) -> ControlStudy:
    """Trains a run for each value and seed, and writes the control curve.

    Its other margins are those of the configuration. `boundaries` are those whose
    margins are set to `values`.
    """
    if not values:
        raise ValueError(
            "--values is not given; give margins with commas between them, such as "
            "0.1,0.3,0.6."
        )
    ranks = build_dataset(runs.config).ranks
    at = _boundary_index(boundaries, ranks)
    settings = _settings(runs.config, at, len(ranks) - 1, values)
    plans = runs.train(settings)
    first = plans[LEARNED][0]
    measured = {
        name: _measure([runs.folder / plan.name for plan in own], at, ranks)
        for name, own in plans.items()
    }
    study = _analyse(
        measured,
        at,
        ranks,
        studies.about(first),
        is_biased=bool(runs.config.data.relabel),
    )
    runs.finish("control", study, first, pictures.control)
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
    is_list = isinstance(given, list | tuple)
    entries = list(given) if is_list else [given] * num_boundaries
    reference = ["learn" if h in at else e for h, e in enumerate(entries)]
    settings = [Setting(LEARNED, {"method.cloc.margins": reference})]
    for value in values:
        raised = [float(value) if h in at else e for h, e in enumerate(reference)]
        settings.append(Setting(f"margin={value:g}", {"method.cloc.margins": raised}))
    return [*settings, Setting(ENTROPY, {"method.name": "ce"})]


def _analyse(
    measured: Mapping[str, Measured],
    at: Sequence[int],
    ranks: Sequence[str],
    about: Mapping[str, Any],
    *,
    is_biased: bool,
) -> ControlStudy:
    """Everything that the runs say."""
    names = metrics.boundary_names(ranks)
    learned = measured[LEARNED]
    _, true = learned.splits[0]["test"]
    verdicts = {names[h]: _verdict(measured, names[h], h) for h in at}
    columns, rows = _table(measured, list(verdicts))
    return ControlStudy(
        **about,
        seeds=len(learned.splits),
        boundary=tuple(verdicts),
        ranks=tuple(ranks),
        images=len(true),
        settings={
            name: ControlSetting(one.margins, _compared(one, learned), one.counts)
            for name, one in measured.items()
        },
        true_counts=tuple(np.bincount(true, minlength=len(ranks)).tolist()),
        decision={
            name: {names[h]: _decision_curve(measured[name].splits, h) for h in at}
            for name in (LEARNED, ENTROPY)
        },
        verdicts=verdicts,
        sentence=" ".join(_sentence(measured, b, v) for b, v in verdicts.items()),
        notes=tuple(_notes(measured, verdicts)),
        evidence=tuple(_evidence(measured, verdicts, is_biased=is_biased)),
        columns=columns,
        rows=rows,
    )


def _measure(
    runs: Sequence[pathlib.Path], at: Sequence[int], ranks: Sequence[str]
) -> Measured:
    names = metrics.boundary_names(ranks)
    views = [View(RunFolder(run)) for run in runs]
    read = [one.results for one in views]
    means: dict[str, dict[str, float]] = {}
    for split in ("val", "test"):
        confusions = np.array([one.final[split].confusion for one in read])
        by_name = _scores(confusions, at, names)
        means[split] = {name: float(np.mean(v)) for name, v in by_name.items()}
    predicted = np.stack([one.test.predicted for one in views])
    redrawn = intervals.redrawn(views[0].test.true, predicted, len(ranks))
    return Measured(
        [
            {split: (p, one.splits[split].true) for split, p in one.calibrated.items()}
            for one in views
        ],
        {n: float(np.mean([r.margins[n] for r in read])) for n in read[0].margins},
        means,
        _scores(redrawn, at, names),
        tuple(float((predicted == r).sum() / len(views)) for r in range(len(ranks))),
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
    return {
        name: Score(
            mean=metrics.defined(mean),
            interval=_ends(intervals.percentiles(one.drawn[name])),
            difference=metrics.defined(mean - reference.means["test"][name]),
            difference_interval=_ends(one.difference(reference, name)),
        )
        for name, mean in one.means["test"].items()
    }


def _decision_curve(
    splits: Sequence[Mapping[str, Graded]], h: int
) -> tuple[dict[str, float | None], ...]:
    """Thresholds for each missed rate, chosen on validation, and what test says."""
    rows = [decisions.trade_off(s["val"], s["test"], h, TARGETS) for s in splits]
    return tuple(
        {"accuracy": _mean(r.accuracy for r in at), MISSED: _mean(r.missed for r in at)}
        for at in zip(*rows, strict=True)
    )


def _verdict(measured: Mapping[str, Measured], boundary: str, h: int) -> ControlVerdict:
    """What the value did that validation chose: of those above the learned margin, if
    there are any."""
    learned = measured[LEARNED]
    key = f"{boundary} {CROSSING}"
    raised = [name for name in measured if name not in (LEARNED, ENTROPY)]
    margin = learned.margins[boundary]
    above = [name for name in raised if measured[name].margins[boundary] > margin]
    best = min(above or raised, key=lambda name: measured[name].means["val"][key])
    one = measured[best]
    low, high = one.difference(learned, key)
    outcome = "unclear"
    if len(one.splits) > 1 and (low > 0 or high < 0):
        outcome = "helped" if high < 0 else "hurt"
    accuracy = one.means["val"]["accuracy"]
    equal = [
        decisions.at_accuracy(s["val"], s["test"], h, accuracy) for s in learned.splits
    ]
    # A run whose thresholds cannot reach that accuracy stays out.
    reached = [row for row in equal if row]
    return ControlVerdict(
        setting=best,
        outcome=outcome,
        decision_missed=_mean(row.missed for row in reached),
        decision_accuracy=_mean(row.accuracy for row in reached),
    )


def _sentence(
    measured: Mapping[str, Measured], boundary: str, verdict: ControlVerdict
) -> str:
    learned, one = measured[LEARNED], measured[verdict.setting]
    key = f"{boundary} {CROSSING}"
    before, after = learned.means["test"], one.means["test"]
    low, high = one.difference(learned, key)
    margins = learned.margins[boundary], one.margins[boundary]
    return (
        f"{'Raising' if margins[1] > margins[0] else 'Lowering'} the margin of "
        f"{boundary} from {margins[0]:.2f} (learned) to {margins[1]:.2f} "
        f"{OUTCOMES[verdict.outcome]}: images on the wrong side went from "
        f"{before[key]:.1%} to {after[key]:.1%} of the test images (difference "
        f"{100 * (after[key] - before[key]):+.1f} points, 95% interval "
        f"{100 * low:+.1f} to {100 * high:+.1f}), while accuracy went from "
        f"{before['accuracy']:.1%} to {after['accuracy']:.1%}."
    )


def _notes(
    measured: Mapping[str, Measured], verdicts: Mapping[str, ControlVerdict]
) -> Iterator[str]:
    for boundary, verdict in verdicts.items():
        if verdict.decision_missed is None:
            continue
        missed = measured[verdict.setting].means["test"][f"{boundary} {MISSED}"]
        yield (
            f"With at least the validation accuracy of {verdict.setting}, moving the "
            f"threshold of the learned runs instead (decision control) misses "
            f"{verdict.decision_missed:.1%} of the images above {boundary} (accuracy "
            f"{verdict.decision_accuracy:.1%}); the margin misses {missed:.1%}."
        )


def _table(
    measured: Mapping[str, Measured], boundaries: Sequence[str]
) -> tuple[tuple[str, ...], tuple[tuple[str, ...], ...]]:
    """Columns and rows of text, for the report."""
    keys = {"accuracy": "Accuracy", "mae": "MAE"}
    for boundary in boundaries:
        for rate, title in RATES.items():
            keys[f"{boundary} {rate}"] = title.format(boundary)
    rows = []
    for name, one in measured.items():
        known = [b for b in boundaries if b in one.margins]
        row = [name, ", ".join(f"{one.margins[b]:.2f}" for b in known) or "–"]
        for key in keys:
            low, high = intervals.percentiles(one.drawn[key])
            row.append(f"{one.means['test'][key]:.3f} [{low:.3f}, {high:.3f}]")
        row.append(" ".join(f"{count:.0f}" for count in one.counts))
        rows.append(tuple(row))
    return ("Setting", "Margin", *keys.values(), "Predicted by rank"), tuple(rows)


def _evidence(
    measured: Mapping[str, Measured],
    verdicts: Mapping[str, ControlVerdict],
    *,
    is_biased: bool,
) -> Iterator[Evidence]:
    """For `claims`: errors where a margin was raised, and who is more accurate."""
    claimed = {"neighbour_errors": "error_rate", "crossings": CROSSING}
    if is_biased:
        claimed = {"biased_crossings": CROSSING}
    learned = measured[LEARNED]
    for claim, rate in claimed.items():
        for boundary, verdict in verdicts.items():
            one, key = measured[verdict.setting], f"{boundary} {rate}"
            before, after = learned.margins[boundary], one.margins[boundary]
            if after > before:  # else nothing was raised
                yield claims.lowered(
                    claim,
                    f"{boundary}, from {before:.2f} to {after:.2f}",
                    learned.means["test"][key],
                    one.means["test"][key],
                    one.difference(learned, key),
                )
    claim, better, other = "beats_cross_entropy", LEARNED, ENTROPY
    if is_biased:
        chosen = next(iter(verdicts.values())).setting
        claim, better, other = "biased_accuracy", chosen, LEARNED
    first, second = (measured[n].means["test"]["accuracy"] for n in (better, other))
    ends = measured[better].difference(measured[other], "accuracy")
    compared = {"accuracy": (first, second, ends)}
    yield claims.by_scores(claim, f"{better} against {other}", compared)


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def _ends(values: Sequence[float]) -> Ends:
    return tuple(map(metrics.defined, values))
