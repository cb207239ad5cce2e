"""What the page shows of a run: its results, and the files beside them.

Only files of the run's folder are read, and the studies of margins beside it. Pictures
and thumbnails that are not there are None, and the page says so in their place.
"""

import base64
import functools
import io
import json
import math
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from PIL import Image

from cloc_jax.runtime import files, run_folder
from cloc_jax.runtime.files import Damaged
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import conformal_sets, decisions, predictions
from cloc_jax.scoring import results as run_results
from cloc_jax.scoring.conformal_sets import Fare
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import Intervals, RunResults, SplitScores

# What the page shows of a study.
STUDY = {
    "sentence": str,
    "notes": list[str],
    "columns": list[str],
    "rows": list[list[str]],
    "command": str,
}
THUMBNAILS = "thumbnails.npz"  # written by `evaluation`
NEAREST = 6  # images on each side of a boundary
DASH = "–"  # stands for a number that is not defined
# Of the headline cards: score, title, how it is written.
HEADLINES = (
    ("accuracy", "Accuracy", "percent"),
    ("mae", "MAE", "number"),
    ("qwk", "QWK", "number"),
    ("one_off_accuracy", "At most one rank off", "percent"),
)
# More of them where the commonest rank has IMBALANCE times the images of the rarest.
BY_RANK = (
    ("macro_mae", "MAE, mean over ranks", "number"),
    ("minimum_sensitivity", "Least recall of a rank", "percent"),
)
IMBALANCE = 3


# --- numbers ---


def percent(value: float | int | None) -> str:
    """A rate, such as "12.5%"."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{100 * value:.1f}%"


def number(value: float | int | None) -> str:
    """Three digits, with a proper minus."""
    if value is None or not math.isfinite(value):
        return DASH
    return f"{value:.3f}".replace("-", "−")


def duration(seconds: float | int | None) -> str:
    """A time in the unit that reads best."""
    if seconds is None:
        return DASH
    if seconds < 100:
        return f"{seconds:.1f} s"
    return f"{seconds / 60:.1f} min" if seconds < 6000 else f"{seconds / 3600:.1f} h"


def interval(ends: Sequence[float | int] | None, kind: str = "percent") -> str | None:
    """An interval in words; None where there is none."""
    if not ends:
        return None
    low, high = (FORMATS[kind](end) for end in ends)
    return f"{low.removesuffix('%')} to {high}"


FORMATS = {"percent": percent, "number": number}


# --- parts of the page ---


class Picture(NamedTuple):
    """A picture as a data URI, and its width in CSS pixels."""

    uri: str
    width: int


class View:
    """A finished run as the page shows it; `results` where metrics.json is not there
    yet."""

    def __init__(self, folder: RunFolder, results: RunResults | None = None):
        self.folder = folder
        self.results = results or run_results.read_results(folder)
        self.splits = predictions.read(folder.path, self.results)

    @functools.cached_property
    def decision(self) -> Decision | None:
        """The saved one."""
        folder = self.folder
        return Decision.read(folder.decision, self.results.ranks, folder.mark)

    @functools.cached_property
    def history(self) -> Sequence[Mapping[str, Any]]:
        """What was logged, by epoch."""
        return self.folder.read_history()

    @functools.cached_property
    def thumbnails(self) -> Mapping[str, bytes] | None:
        """JPEGs by image."""
        return read_thumbnails(self.folder.path / THUMBNAILS)

    @functools.cached_property
    def temperature(self) -> float:
        """The one that fits validation data best; 1 without probabilities."""
        true, probabilities = self.splits["val"].true, self.splits["val"].probabilities
        if probabilities is None:
            return 1.0
        return decisions.fit_temperature(probabilities, true)

    @functools.cached_property
    def calibrated(self) -> dict[str, np.ndarray]:
        """Probabilities at that temperature by split; {} without."""
        return {
            split: decisions.apply_temperature(one.probabilities, self.temperature)
            for split, one in self.splits.items()
            if one.probabilities is not None
        }

    @property
    def scores(self) -> SplitScores:
        """Of the test images."""
        return self.results.final["test"]

    @property
    def intervals(self) -> Intervals:
        """Of those scores."""
        assert self.scores.intervals is not None, "evaluation finds them"
        return self.scores.intervals

    @property
    def test(self) -> Predictions:
        """The predictions for the test images."""
        return self.splits["test"]

    # --- scores ---

    def cards(self) -> list[tuple[str, str, str | None, str]]:
        """Title, score, interval and the validation score of each headline."""
        counts = [count for count in self.scores.true_counts.values() if count]
        is_imbalanced = max(counts) >= IMBALANCE * min(counts)
        return [
            (
                title,
                FORMATS[kind](getattr(self.scores, key)),
                interval(getattr(self.intervals, key), kind),
                FORMATS[kind](getattr(self.results.final["val"], key)),
            )
            for key, title, kind in HEADLINES + BY_RANK * is_imbalanced
            # Of two ranks, all mistakes are one off.
            if len(self.results.ranks) > 2 or key != "one_off_accuracy"
        ]

    def commonest(self) -> tuple[str, float, float]:
        """The commonest rank, and accuracy and MAE of always answering it."""
        counts = np.array([self.scores.true_counts[r] for r in self.results.ranks])
        rank = int(counts.argmax())
        off = np.abs(np.arange(len(counts)) - rank) @ counts
        count = self.scores.count
        return self.results.ranks[rank], counts[rank] / count, off / count

    # --- images and decisions ---

    def nearest(self) -> list[tuple[str, dict[str, list[tuple[int, float]]]]]:
        """By boundary that matters, the images for which both of its sides are about
        as likely, those put on the right and on the wrong side apart; with the
        probability of all ranks above the boundary."""
        test = self.test
        if test.probabilities is None:
            return []
        found = []
        for name, h in self.results.boundaries_that_matter.items():
            above = decisions.probability_above(test.probabilities, h)
            sides: dict[str, list[tuple[int, float]]] = {"right": [], "wrong": []}
            for i in abs(above - 0.5).argsort(kind="stable").tolist():
                is_right = (test.predicted[i] > h) == (test.true[i] > h)
                side = sides["right" if is_right else "wrong"]
                if len(side) < NEAREST:
                    side.append((i, float(above[i])))
            found.append((name, {side: rows for side, rows in sides.items() if rows}))
        return found

    def sets(self) -> tuple[Fare, list[tuple[str, Fare]], list[tuple[int, int]]] | None:
        """How the saved prediction sets fare on the test images: all, by true rank, and
        how many sets have how many ranks."""
        if self.decision is None or not self.decision.sets:
            return None
        assert self.test.probabilities is not None, "or there were no sets"
        ranks = self.results.ranks
        low, high = self.decision.apply_sets(self.test.probabilities)
        overall, by_rank = conformal_sets.fare(low, high, self.test.true, len(ranks))
        sizes = sorted(Counter((high - low + 1).tolist()).items())
        return overall, list(zip(ranks, by_rank, strict=True)), sizes

    # --- files ---

    def picture(self, name: str) -> Picture | None:
        """A picture of the run; None where there is none."""
        return read_picture(self.folder.path / name)

    def study(self, name: str, drawing: str) -> dict[str, Any] | None:
        """A study of several runs, from the folder that this one is in."""
        place = self.folder.path.resolve().parent
        if not (place / name).is_file():
            return None
        remedy = "Move it away, or repeat the study."
        study = files.read_sealed(place / name, remedy=remedy, fields=STUDY)
        return study | {"picture": read_picture(place / drawing)}

    def settings(self) -> list[tuple[str, str, str]]:
        """The configuration: the group, the dotted name and the value of each field."""
        return [
            (
                name.split(".")[0] if "." in name else "general",
                name,
                value if isinstance(value, str) else json.dumps(value),
            )
            for name, value in run_folder.flatten(self.folder.read_config()).items()
        ]


def unmet_margins(kept: Mapping[str, float | None]) -> str:
    """What it means that next to no triplet keeps its margin; "" where some do."""
    if not run_results.are_margins_unmet(dict(kept)):
        return ""
    return (
        "Margins had no influence: next to no triplet of training images kept its "
        "margin, and so learned, fixed and raised ones train the same network. A "
        "bounded sum (method.cloc.margin_budget=0.25), a projection "
        "(head.projection=64), smaller margins or longer training change that."
    )


def read_thumbnails(path: pathlib.Path) -> Mapping[str, bytes] | None:
    """JPEGs by the name of their image, the most interesting first; None without."""
    if not path.is_file():
        return None
    file = files.read_arrays(path, remedy="`launch.py evaluate` makes it again.")
    names, sizes, data = file["names"], file["sizes"], file["bytes"].tobytes()
    return {
        str(name): data[end - size : end]
        for name, size, end in zip(names, sizes, np.cumsum(sizes), strict=True)
    }


def read_picture(path: pathlib.Path) -> Picture | None:
    """A PNG; None where there is no such file."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content), formats=["PNG"]) as image:
            image.verify()
            width = image.width * 96 / image.info.get("dpi", (96, 96))[0]
    except Exception as error:  # Pillow has many for a file that is damaged
        raise Damaged(
            path,
            f"it is no picture ({error})",
            f"`launch.py evaluate --run={path.parent}` draws it again.",
        ) from None
    return Picture(data_uri(content, "png"), round(width))


def data_uri(content: bytes | None, kind: str) -> str:
    """A picture as a text that a page can show; "" where there is none."""
    if not content:
        return ""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
