"""The control curve: what a margin set by hand buys at its boundary, and its cost.

Errors at a boundary also fall when a rank is simply never predicted, or when mistakes
move further off. So the curve counts every image on the wrong side, both directions
apart, and shows beside it accuracy, MAE and how often each rank is predicted. Learned
margins and cross-entropy are the references; decision control, which moves the
threshold of a finished run instead, is drawn on the same axes.
"""

import pathlib
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.paper import conclusion
from cloc_jax.report import figures
from cloc_jax.scoring import intervals, metrics, trade_offs
from cloc_jax.sweeps.engines import LOCAL, Options
from cloc_jax.sweeps.run_plan import Plan, Setting, plan_runs
from cloc_jax.training.dataset import build_dataset

LEARNED, ENTROPY = "learned", "cross-entropy"
CROSSING = "crossing_rate"  # every image on the wrong side of the boundary
MISSED, ALARM = "crossing_missed_rate", "crossing_false_alarm_rate"
OVERALL = ("accuracy", "mae", "qwk")
RATES = (CROSSING, MISSED, ALARM, "error_rate")
KINDS = ("fixed", "floor")
SURE = 0.05
TARGETS = (0.01, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.2, 0.25, 0.3, 0.4, 0.5)


class Measured(NamedTuple):
    """One setting, over its seeds."""

    margins: dict[str, float]  # at the end, mean over seeds; {} without
    test: dict[str, list[float]]  # by metric, one number per seed
    val: dict[str, list[float]]
    drawn: dict[str, np.ndarray]  # by metric, [draw]: seeds and test images drawn again
    counts: list[float]  # how often each rank was predicted, mean over seeds


def control(
    config: ConfigDict,
    folder: pathlib.Path,
    *,
    boundaries: Sequence[str],
    values: Sequence[float | int],
    seeds: int,
    kind: str = "fixed",
    options: Options = LOCAL,
) -> dict[str, Any]:
    """Trains a run for each value and seed, and writes the control curve.

    Args:
      config: what all runs have in common; its margins are those of the reference.
      folder: of the study; each run has its own below it.
      boundaries: whose margins are set, such as "1|2".
      values: of those margins.
      seeds: runs per value.
      kind: "fixed" at the value, or "floor": learned above it.
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
    if kind not in KINDS:
        raise ValueError(f"--kind is {kind!r}; use one of {', '.join(KINDS)}.")
    ranks = build_dataset(config).ranks
    at = conclusion.boundary_index(boundaries, ranks)
    settings = _settings(config, at, len(ranks) - 1, values, kind)
    runs = plan_runs(config, settings, seeds=seeds, is_resolved=options.is_in_process)
    plans = conclusion.train(runs, folder, options)
    study = _analyse(folder, plans, at, ranks, kind)
    figures.control(folder / "control.png", study)
    conclusion.finish(folder, "control", study, plans[LEARNED][0])
    return study


def _settings(
    config: ConfigDict,
    at: Sequence[int],
    num_boundaries: int,
    values: Sequence[float | int],
    kind: str,
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
        entry: Any = float(value)
        if kind == "floor":
            # A high floor lies above the range that starts are drawn from.
            is_high = value + 0.01 >= config.method.cloc.margin_start[1]
            start = f"={value + 0.5:g}" if is_high else ""
            entry = f"learn{start}>={value:g}"
        raised = [entry if h in at else e for h, e in enumerate(reference)]
        settings.append(Setting(f"margin={value:g}", {"method.cloc.margins": raised}))
    return [*settings, Setting(ENTROPY, {"method.name": "ce"})]


def _analyse(
    folder: pathlib.Path,
    plans: Mapping[str, Sequence[Plan]],
    at: Sequence[int],
    ranks: Sequence[str],
    kind: str,
) -> dict[str, Any]:
    """Everything that the runs say, as plain data."""
    found = {
        name: [conclusion.read_predictions(folder, p) for p in runs]
        for name, runs in plans.items()
    }
    measured = {
        name: _measure(
            splits, [conclusion.read_metrics(folder, p) for p in plans[name]], at, ranks
        )
        for name, splits in found.items()
    }
    names = metrics.boundary_names(ranks)
    boundaries = [names[h] for h in at]
    raised = [name for name in measured if name not in (LEARNED, ENTROPY)]
    study: dict[str, Any] = {
        "boundary": boundaries,
        "kind": kind,
        "ranks": list(ranks),
        "seeds": len(plans[LEARNED]),
        "images": len(found[LEARNED][0]["test"].true),
        "settings": {},
        "true_counts": np.bincount(
            found[LEARNED][0]["test"].true, minlength=len(ranks)
        ).tolist(),
        "decision": {
            name: {
                boundary: _decision_curve(found[name], h)
                for boundary, h in zip(boundaries, at, strict=True)
            }
            for name in (LEARNED, ENTROPY)
        },
        "sentence": "",
        "notes": [],
        "verdicts": {},
    }
    for name, one in measured.items():
        study["settings"][name] = _as_json(one, measured[LEARNED])
    for boundary, h in zip(boundaries, at, strict=True):
        key = f"{boundary} {CROSSING}"
        p_values = [
            intervals.two_sided(measured[n].drawn[key] - measured[LEARNED].drawn[key])
            for n in raised
        ]
        adjusted = dict(zip(raised, intervals.holm(p_values), strict=True))
        for name, p in adjusted.items():
            study["settings"][name].setdefault("p", {})[boundary] = p
        # Which value to speak of is chosen on validation, then told on test: of those
        # above the learned margin, if there are any.
        learned = measured[LEARNED].margins[boundary]
        above = [n for n in raised if measured[n].margins[boundary] > learned]
        best = min(above or raised, key=lambda n: float(np.mean(measured[n].val[key])))
        verdict = _verdict(best, measured, boundary, adjusted[best])
        accuracy = float(np.mean(measured[best].val["accuracy"]))
        equal = [
            trade_offs.at_accuracy(s["val"], s["test"], h, accuracy)
            for s in found[LEARNED]
        ]
        # A run whose thresholds cannot reach that accuracy stays out.
        reached = [row for row in equal if row]
        verdict["decision_runs"] = len(reached)
        verdict["decision_missed"] = _mean(reached, MISSED)
        verdict["decision_accuracy"] = _mean(reached, "accuracy")
        study["verdicts"][boundary] = verdict
    study["sentence"] = " ".join(_sentence(b, v) for b, v in study["verdicts"].items())
    study["notes"] = _notes(study)
    return study | _table(study)


def _measure(splits, results, at: Sequence[int], ranks: Sequence[str]) -> Measured:
    names = metrics.boundary_names(ranks)
    scored: dict[str, dict[str, list[float]]] = {}
    for split in ("val", "test"):
        confusions = np.stack(
            [
                metrics.confusion_matrix(s[split].true, s[split].predicted, len(ranks))
                for s in splits
            ]
        )
        scored[split] = {
            k: v.tolist() for k, v in _scores(confusions, at, names).items()
        }
    test = [s["test"] for s in splits]
    predicted = np.stack([t.predicted for t in test])
    redrawn = intervals.redrawn(test[0].true, predicted, len(ranks))
    margins = [r["margins"] for r in results]
    return Measured(
        {n: float(np.mean([m[n] for m in margins])) for n in margins[0]},
        scored["test"],
        scored["val"],
        _scores(redrawn, at, names),
        [float((predicted == r).sum() / len(test)) for r in range(len(ranks))],
    )


def _scores(confusions: np.ndarray, at, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Overall scores, and rates of each boundary as "1|2 crossing_rate"."""
    found = {k: v for k, v in intervals.scores(confusions).items() if k in OVERALL}
    for h in at:
        rates = metrics.boundary_rates(confusions, h)
        found |= {f"{names[h]} {rate}": rates[rate] for rate in RATES}
    return found


def _as_json(one: Measured, reference: Measured) -> dict[str, Any]:
    """Mean, standard deviation over seeds, intervals and difference to learned."""
    scores = {}
    for name, values in one.test.items():
        mine = intervals.percentiles(one.drawn[name])
        apart = intervals.percentiles(one.drawn[name] - reference.drawn[name])
        scores[name] = {
            "mean": _number(np.mean(values)),
            "std": _number(np.std(values, ddof=1)) if len(values) > 1 else None,
            "seeds": [_number(v) for v in intervals.over_seeds(values)],
            "interval": [_number(v) for v in mine],
            "difference": _number(np.mean(values) - np.mean(reference.test[name])),
            "difference_interval": [_number(v) for v in apart],
        }
    return {"margins": one.margins, "scores": scores, "predicted_counts": one.counts}


def _decision_curve(splits, h: int) -> list[dict[str, float | None]]:
    """Thresholds for each missed rate, chosen on validation, and what test says."""
    rows = [trade_offs.trade_off(s["val"], s["test"], h, TARGETS) for s in splits]
    keys = ("target", MISSED, ALARM, *OVERALL)
    return [
        {key: _mean([r[i] for r in rows], key) for key in keys}
        for i in range(len(TARGETS))
    ]


def _mean(rows: Sequence[Mapping[str, float | None]], key: str) -> float | None:
    known = [value for row in rows if (value := row[key]) is not None]
    return float(np.mean(known)) if known else None


def _verdict(
    best: str, measured: Mapping[str, Measured], boundary: str, p: float
) -> dict[str, Any]:
    key = f"{boundary} {CROSSING}"
    one, learned = measured[best], measured[LEARNED]
    before, after = float(np.mean(learned.test[key])), float(np.mean(one.test[key]))
    apart = intervals.percentiles(one.drawn[key] - learned.drawn[key])
    is_sure = p < SURE and len(one.test[key]) > 1
    return {
        "setting": best,
        "margin": one.margins[boundary],
        "learned": learned.margins[boundary],
        "before": before,
        "after": after,
        "relative": (after - before) / before if before else None,
        "difference_interval": [_number(v) for v in apart],
        "p": p,
        "is_sure": is_sure,
        "outcome": ("helped" if after < before else "hurt") if is_sure else "unclear",
        "accuracy_before": float(np.mean(learned.test["accuracy"])),
        "accuracy_after": float(np.mean(one.test["accuracy"])),
        "missed_before": float(np.mean(learned.test[f"{boundary} {MISSED}"])),
        "missed_after": float(np.mean(one.test[f"{boundary} {MISSED}"])),
    }


def _sentence(boundary: str, v: Mapping[str, Any]) -> str:
    said = {
        "helped": "helped",
        "hurt": "made it worse",
        "unclear": "made no difference that these runs can show",
    }[v["outcome"]]
    low, high = v["difference_interval"]
    way = "Raising" if v["margin"] > v["learned"] else "Lowering"
    return (
        f"{way} the margin of {boundary} from {v['learned']:.2f} (learned) to "
        f"{v['margin']:.2f} {said}: images on the wrong side went from "
        f"{v['before']:.1%} to {v['after']:.1%} of the test images (difference "
        f"{100 * (v['after'] - v['before']):+.1f} points, 95% interval "
        f"{100 * low:+.1f} to {100 * high:+.1f}, p = {v['p']:.2g}), while accuracy "
        f"went from {v['accuracy_before']:.1%} to {v['accuracy_after']:.1%}."
    )


def _notes(study: Mapping[str, Any]) -> list[str]:
    notes = []
    for boundary, v in study["verdicts"].items():
        if v["decision_missed"] is None:
            continue
        notes.append(
            f"With at least the validation accuracy of {v['setting']}, moving the "
            f"threshold of the learned runs instead (decision control) misses "
            f"{v['decision_missed']:.1%} of the images above {boundary} (accuracy "
            f"{v['decision_accuracy']:.1%}); the margin misses {v['missed_after']:.1%}."
        )
    for name, setting in study["settings"].items():
        for rank, count, true in zip(
            study["ranks"],
            setting["predicted_counts"],
            study["true_counts"],
            strict=True,
        ):
            if true and count < true / 4:
                notes.append(
                    f"{name}: rank {rank} is predicted for {count:.0f} images, though "
                    f"{true} are of it; low errors beside it may mean only that."
                )
    if study["seeds"] < 5:
        notes.append(f"Only {study['seeds']} seeds: the intervals are rough.")
    return notes


def _table(study: Mapping[str, Any]) -> dict[str, Any]:
    """Columns and rows of text, for the report."""
    keys = {"accuracy": "Accuracy", "mae": "MAE"}
    for boundary in study["boundary"]:
        keys |= {
            f"{boundary} {CROSSING}": f"Wrong side of {boundary}",
            f"{boundary} {MISSED}": "Missed",
            f"{boundary} {ALARM}": "False alarms",
            f"{boundary} error_rate": "Neighbours mistaken",
        }
    rows = []
    for name, setting in study["settings"].items():
        margins = ", ".join(
            f"{setting['margins'][b]:.2f}"
            for b in study["boundary"]
            if b in setting["margins"]
        )
        row = [name, margins or "–"]
        for key in keys:
            low, high = setting["scores"][key]["interval"]
            row.append(
                f"{setting['scores'][key]['mean']:.3f} [{_text(low)}, {_text(high)}]"
            )
        row.append(" ".join(f"{c:.0f}" for c in setting["predicted_counts"]))
        rows.append(row)
    rows.append(
        ["true", "–", *["–"] * len(keys), " ".join(map(str, study["true_counts"]))]
    )
    return {
        "columns": ["Setting", "Margin", *keys.values(), "Predicted by rank"],
        "rows": rows,
    }


def _number(value: Any) -> float | None:
    return float(value) if np.isfinite(value) else None


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:.3f}"
