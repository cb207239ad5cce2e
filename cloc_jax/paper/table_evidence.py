"""What the runs behind the paper's tables say about its claims.

Settings are compared on the same test images. The interval of a difference covers other
seeds and other test images (`cloc_jax.scoring.intervals`), with the images paired
where one machine has trained both settings.
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from cloc_jax.paper import verdicts
from cloc_jax.paper.table_rows import (
    BIASED,
    FINAL,
    METHODS,
    PHASE_ONE,
    SCORES,
)
from cloc_jax.paper.verdicts import Evidence
from cloc_jax.scoring import intervals
from cloc_jax.scoring.intervals import Interval

KIND = "tables"
Summary = Mapping[str, Any]
Finder = Callable[[str, Summary], Iterator[Evidence]]


def as_study(summary: Summary) -> dict[str, Any]:
    """A summary of runs with what every study says of itself."""
    about = summary["about"]
    return {
        **summary,
        "command": summary["commands"][-1],
        "size": about["size"],
        "encoder": about["encoder"],
        "is_frozen": about["is_frozen"],
        "trainable_from": about["trainable_from"],
        "seeds": max(
            len({run["seed"] for run in one["runs"]})
            for one in summary["settings"].values()
        ),
    }


def outperforms(
    others: Sequence[str], *, is_biased: bool = False, is_whole: bool = False
) -> Finder:
    """CLOC against other methods, by accuracy and MAE.

    Args:
      others: their names.
      is_biased: whether the training labels were made wrong.
      is_whole: whether to take only runs that trained the whole network, as the paper.
    """
    prefix = BIASED if is_biased else ""

    def find(kind: str, study: Summary) -> Iterator[Evidence]:
        if kind != KIND or (is_whole and study["protocol"] != "whole"):
            return
        for method in others:
            names = f"{prefix}cloc", prefix + method
            yield from _compared(study, *names, METHODS[method])

    return find


def margins_matter(kind: str, study: Summary) -> Iterator[Evidence]:
    """A margin for each boundary against fewer of them."""
    if kind == KIND:
        yield from _compared(study, "cloc", "cloc shared", "one shared margin")
        yield from _compared(study, "cloc", "cloc ones", "all margins 1")


def phases_matter(kind: str, study: Summary) -> Iterator[Evidence]:
    """Both phases against phase one alone, run by run; images are the same."""
    if kind != KIND or "cloc" not in study["settings"]:
        return
    runs = [r["scores"] for r in study["settings"]["cloc"]["runs"]]
    if not all(PHASE_ONE in scores for scores in runs):
        return
    found = {}
    for score in SCORES:
        after, before = (
            np.array([scores[stage][score] for scores in runs])
            for stage in (FINAL, PHASE_ONE)
        )
        folds = [run["fold"] for run in study["settings"]["cloc"]["runs"]]
        apart = intervals.mean_by_fold(list(after - before), folds)
        ends = intervals.of_run_mean(apart, 0.0)
        found[score] = (float(after.mean()), float(before.mean()), ends)
    title = "both phases against phase one, over seeds only"
    yield _evidence(title, found, ("cloc",))


def lower_errors(rate: str, *, is_biased: bool) -> Finder:
    """Learned margins against the value that validation chose, where it matters.

    Args:
      rate: "error" among neighbours, or "crossing" of all images.
      is_biased: whether the training labels were made wrong.
    """
    kept = BIASED if is_biased else ""

    def find(kind: str, study: Summary) -> Iterator[Evidence]:
        fixed = study["controlled"].get(kept) if kind == KIND else None
        if fixed is None or f"{kept}cloc" not in study["settings"]:
            return
        # With biased labels only the first of them has a fixed margin.
        for boundary in study["critical"][: 1 if is_biased else None]:
            if not is_biased and not _is_raised(study, fixed, boundary):
                continue
            score = f"{rate} {boundary}"
            after, before, ends = _difference(study, fixed, f"{kept}cloc", score)
            yield Evidence(
                f"{boundary}, {fixed.removeprefix(kept)}"
                + _pairing(study, fixed, f"{kept}cloc"),
                f"{before:.3f} → {after:.3f}, difference "
                f"{verdicts.signed(after - before, ends)}",
                verdicts.of_interval(ends, is_lower_better=True),
                (fixed, f"{kept}cloc"),
            )

    return find


def fixed_is_better(kind: str, study: Summary) -> Iterator[Evidence]:
    """With biased labels, a fixed critical margin against learned ones."""
    fixed = study["controlled"].get(BIASED) if kind == KIND else None
    if fixed is not None:
        title = "learned margins"
        yield from _compared(study, fixed, f"{BIASED}cloc", title, "fixed margin")


_LOWER = {"accuracy": False, "mae": True}  # whether a lower score is the better one


def _compared(
    study: Summary, first: str, second: str, title: str, own: str = "CLOC"
) -> Iterator[Evidence]:
    """Two settings by accuracy and MAE, where both have runs."""
    if first in study["settings"] and second in study["settings"]:
        found = {score: _difference(study, first, second, score) for score in SCORES}
        more = _pairing(study, first, second)
        yield _evidence(f"{own} against {title}{more}", found, (first, second))


def _evidence(
    setting: str,
    found: Mapping[str, tuple[float, float, Interval]],
    runs: tuple[str, ...],
) -> Evidence:
    parts, said = [], {}
    for score, (first, second, ends) in found.items():
        parts.append(
            f"{SCORES[score] if score == 'mae' else score} {first:.3f} against "
            f"{second:.3f}, difference {verdicts.signed(first - second, ends)}"
        )
        said[score] = verdicts.of_interval(ends, is_lower_better=_LOWER[score])
    by_score = [f"{text} ({SCORES[score].lower()})" for score, text in said.items()]
    is_same = len(set(said.values())) == 1
    verdict = said["accuracy"] if is_same else ", ".join(by_score)
    said_of = verdict.replace("(mae)", "(MAE)")
    return Evidence(setting, "; ".join(parts), said_of, runs)


def _difference(
    study: Summary, first: str, second: str, score: str
) -> tuple[float, float, Interval]:
    """Both means, and the interval of the first minus the second."""
    own, other = (_scores(study, name, score) for name in (first, second))
    images = _over_images(study, first, second, score)
    ends = intervals.of_run_difference(own, other, images)
    return float(np.mean(own)), float(np.mean(other)), ends


def _scores(study: Summary, setting: str, score: str) -> list[float]:
    """One per run or, with several folds, per fold; NaN where it has none."""
    runs = study["settings"][setting]["runs"]
    found = [run["scores"][FINAL][score] for run in runs]
    scores = [math.nan if value is None else value for value in found]
    return list(intervals.mean_by_fold(scores, [run["fold"] for run in runs]))


def _is_raised(study: Summary, fixed: str, boundary: str) -> bool:
    """Whether the fixed margin is larger than the learned one, as the claim has it."""
    means = [
        np.mean([run["margins"][boundary] for run in study["settings"][name]["runs"]])
        for name in (fixed, "cloc")
    ]
    return bool(means[0] > means[1])


def _over_images(study: Summary, first: str, second: str, score: str) -> float:
    """Variance of the difference of two settings over other test images.

    Where the machines that trained them shared no folder, it is not known; then as if
    each had its own test images, which is more, as images that are hard for one tend to
    be hard for the other.
    """
    settings = study["settings"]
    alone = [settings[name].get("images_variance") for name in (first, second)]
    if not any(alone):
        return 0.0  # folds: the runs had other test images each
    kept = _kept_pair(settings, first, second)
    if kept:
        return float(kept.get(score, math.nan))
    known = [one[FINAL] if one else {} for one in alone]
    return float(sum(one.get(score, math.nan) for one in known))


def _pairing(study: Summary, first: str, second: str) -> str:
    """What the evidence says where the images of two settings are not paired."""
    settings = study["settings"]
    has_images = any("images_variance" in settings[name] for name in (first, second))
    is_paired = not has_images or _kept_pair(settings, first, second)
    return "" if is_paired else ", images not paired"


def _kept_pair(
    settings: Mapping[str, Any], first: str, second: str
) -> Mapping[str, Any]:
    """What is known of the difference of two settings on the same images.

    One of the two is what all others are held against, so it is kept by the other.
    """
    for name, other in ((first, second), (second, first)):
        kept: Mapping[str, Any] = settings[name].get("paired_variance", {})
        if kept.get("with") == other:
            return kept
    return {}
