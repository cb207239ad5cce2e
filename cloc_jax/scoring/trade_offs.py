"""What each choice at a boundary would buy and cost, before one is made."""

import math
from collections.abc import Sequence

import numpy as np

from cloc_jax.scoring import calibration, decisions, metrics
from cloc_jax.scoring.predictions import Predictions

Row = dict[str, float | None]


def trade_off(
    val: Predictions, test: Predictions, h: int, targets: Sequence[float]
) -> list[Row]:
    """What each share missed at a boundary, asked for on validation, costs on test.

    Temperature and thresholds come from `val` alone.

    Returns:
      One row per target: `target`, `threshold`, `temperature`, `accuracy`, `mae`,
      `qwk`, `crossing_missed_rate` and `crossing_false_alarm_rate` of `test`, and the
      same five of `val` as `val_…`; None where a number is not defined.
    """
    temperature, on_val, on_test = _calibrated(val, test)
    rows = []
    for target in targets:
        fitted = decisions.fit_thresholds(on_val, val.true, {"the boundary": h}, target)
        row: Row = {"target": float(target)}
        threshold = fitted["the boundary"]
        rows.append(row | _row(temperature, threshold, h, val, on_val, test, on_test))
    return rows


def at_accuracy(
    val: Predictions, test: Predictions, h: int, accuracy: float
) -> Row | None:
    """The fewest images missed at a boundary while validation accuracy is kept.

    Looks at all thresholds, and at none: the most probable rank. Of those with which
    `val` has at least the given accuracy, the one that misses least there is taken; of
    several such the one with the best accuracy, then the largest threshold. Nothing,
    None, where no choice has it.

    Returns:
      A row as in `trade_off`, whose `target` is the accuracy; its `threshold` is None
      where the most probable rank is the best choice.
    """
    temperature, on_val, on_test = _calibrated(val, test)
    labels = on_val.argmax(1)
    right = int((labels == val.true).sum())
    plain = int(((val.true > h) & (labels <= h)).sum()), -right
    choices: list[tuple[tuple[int, int], float | None]] = []
    if right / len(labels) >= accuracy:
        choices.append((plain, None))
    if (best := _keeping(on_val, val.true, h, accuracy)) is not None:
        choices.append(best)
    if not choices:
        return None
    _, threshold = min(choices, key=lambda choice: choice[0])
    row: Row = {"target": float(accuracy)}
    return row | _row(temperature, threshold, h, val, on_val, test, on_test)


def _keeping(
    probabilities: np.ndarray, true: np.ndarray, h: int, accuracy: float
) -> tuple[tuple[int, int], float] | None:
    """The best threshold of `at_accuracy`, behind how many it misses and how many are
    right, as a negative number."""
    scores = calibration.probability_above(probabilities, h)
    order = np.argsort(scores, kind="stable")
    ordered, sorted_true = scores[order], true[order]
    if_below = probabilities[order, : h + 1].argmax(1) == sorted_true
    if_above = probabilities[order, h + 1 :].argmax(1) + h + 1 == sorted_true
    # Entry i: the i images with the lowest scores go below, all others above.
    right = np.append(0, np.cumsum(if_below)) + if_above.sum()
    right = right - np.append(0, np.cumsum(if_above))
    missed = np.append(0, np.cumsum(sorted_true > h))
    last = len(ordered)
    splits_ties = np.append(False, ordered[1:] == ordered[:-1])
    possible = np.append(~splits_ties, True) & (right / last >= accuracy)
    if not possible.any():
        return None
    # Least missed, then most right, then the most put below.
    best = min(np.flatnonzero(possible), key=lambda i: (missed[i], -right[i], -i))
    threshold = 1.0  # everything is below
    if best < last:
        threshold = decisions.just_below(float(ordered[best]), scores)
    return (int(missed[best]), -int(right[best])), threshold


def _calibrated(
    val: Predictions, test: Predictions
) -> tuple[float, np.ndarray, np.ndarray]:
    if val.probabilities is None or test.probabilities is None:
        raise ValueError(
            "there are no probabilities, and without them nothing can be decided; the "
            "method gives labels only."
        )
    temperature = calibration.fit_temperature(val.probabilities, val.true)
    return (
        temperature,
        calibration.apply_temperature(val.probabilities, temperature),
        calibration.apply_temperature(test.probabilities, temperature),
    )


def _row(
    temperature: float,
    threshold: float | None,
    h: int,
    val: Predictions,
    on_val: np.ndarray,
    test: Predictions,
    on_test: np.ndarray,
) -> Row:
    row: Row = {"threshold": threshold, "temperature": temperature}
    for prefix, true, p in (("", test.true, on_test), ("val_", val.true, on_val)):
        labels = decisions.by_thresholds(p, {} if threshold is None else {h: threshold})
        counts = metrics.confusion_matrix(true, labels, p.shape[1])
        scores = metrics.scores(counts)
        scores |= {k: rates[h] for k, rates in metrics.boundary_rates(counts).items()}
        for name in (
            "accuracy",
            "mae",
            "qwk",
            "crossing_missed_rate",
            "crossing_false_alarm_rate",
        ):
            value = float(scores[name])
            row[prefix + name] = value if math.isfinite(value) else None
    return row
