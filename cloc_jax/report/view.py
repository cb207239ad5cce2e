"""What the page shows of a run: its results, and the files beside them.

Only files of the run's folder are read, and the studies of margins that lie in it or
beside it. What is not there is None or empty, and the page says so in its place.
"""

import base64
import dataclasses
import functools
import io
import json
import math
import pathlib
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from PIL import Image

from cloc_jax.report import published, thumbnails
from cloc_jax.runtime import files, run_folder
from cloc_jax.runtime.files import Damaged
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import conformal_sets, decisions, metrics, predictions
from cloc_jax.scoring import results as run_results
from cloc_jax.scoring.conformal_sets import Fare
from cloc_jax.scoring.decisions import Decision
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import (
    BoundaryRates,
    ReadoutValues,
    RunResults,
    SplitScores,
)

SPLITS = {"test": "test", "val": "validation"}  # as the page names them
WORST = 10  # mistakes shown
NEAREST = 6  # images on each side of a boundary
COLLAPSED = 0.02  # a margin below it asks for next to nothing
DASH = "–"  # stands for a number that is not defined
# Of the headline cards: score, title, how it is written.
HEADLINES = (
    ("accuracy", "Accuracy", "percent"),
    ("mae", "MAE", "number"),
    ("qwk", "QWK", "number"),
    ("one_off_accuracy", "At most one rank off", "percent"),
)
COMPARED = (*HEADLINES, ("macro_mae", "Macro MAE", "number"), ("nll", "NLL", "number"))


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
    """Seconds, minutes or hours."""
    if seconds is None or not math.isfinite(seconds):
        return DASH
    if seconds < 59.95:  # rounds to less than a minute
        return f"{seconds:.1f} s"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes} min" if hours else f"{minutes} min {rest} s"


def interval(ends: Sequence[float | int] | None, kind: str = "percent") -> str | None:
    """An interval in words; None where there is none."""
    if not ends:
        return None
    low, high = (FORMATS[kind](end) for end in ends)
    return f"{low.removesuffix('%')} to {high}"


FORMATS = {"percent": percent, "number": number}


# --- parts of the page ---


class Boundary(NamedTuple):
    """A boundary between two ranks and its errors."""

    name: str
    low: str
    high: str
    is_critical: bool
    rates: BoundaryRates
    intervals: Mapping[str, Sequence[float] | None]  # of the rates


class Picture(NamedTuple):
    """A picture as a data URI, and its width in CSS pixels."""

    uri: str
    width: int


class Shown(NamedTuple):
    """An image of the split with what was predicted."""

    item: str
    true: str
    predicted: str
    off: int  # ranks
    probability: float | None  # of what the section is about
    uri: str | None  # of its thumbnail


class Sets(NamedTuple):
    """How the saved prediction sets fare on the test images."""

    overall: Fare
    by_rank: list[tuple[str, Fare]]
    sizes: list[tuple[int, int]]  # ranks in a set, and how many have so many


@dataclasses.dataclass(frozen=True)
class View:
    """A finished run as the page shows it."""

    folder: RunFolder
    results: RunResults
    splits: Mapping[str, Predictions]  # predictions; none where the file is missing
    decision: Decision | None
    history: Sequence[Mapping[str, Any]]
    thumbnails: Mapping[str, bytes] | None  # JPEGs by image, most interesting first

    @classmethod
    def read(cls, folder: RunFolder, results: RunResults | None = None) -> "View":
        """Of a run's folder; `results` where metrics.json is not there yet."""
        results = results or run_results.read_results(folder)
        if not results.final:
            raise ValueError(
                f'{folder.metrics} has neither "final"/"test" nor "final"/"val" '
                "scores; wanted the file a finished run leaves."
            )
        try:
            splits = predictions.read(folder.path, results)
        except FileNotFoundError:
            splits = {}
        return cls(
            folder,
            results,
            splits,
            Decision.read(folder.decision, results.ranks),
            folder.read_history(),
            thumbnails.read(folder.path / thumbnails.NAME),
        )

    @property
    def name(self) -> str:
        """Of the run's folder."""
        return self.folder.path.resolve().name

    @property
    def split(self) -> str:
        """The split that is shown: "test", or "val" where there is no test data."""
        return "test" if "test" in self.results.final else "val"

    @property
    def split_name(self) -> str:
        """The split's name in sentences."""
        return SPLITS[self.split]

    @property
    def scores(self) -> SplitScores:
        """Of the split that is shown."""
        return self.results.final[self.split]

    @property
    def shown(self) -> Predictions | None:
        """The predictions of the split that is shown."""
        return self.splits.get(self.split)

    # --- scores ---

    def cards(self) -> list[tuple[str, str, str | None, str | None]]:
        """Title, score, interval and the validation score of each headline."""
        val = self.results.final.get("val") if self.split == "test" else None
        ends = self.scores.intervals
        return [
            (
                title,
                FORMATS[kind](self.scores.headline(key)),
                interval(getattr(ends, key), kind) if ends else None,
                FORMATS[kind](val.headline(key)) if val else None,
            )
            for key, title, kind in HEADLINES
            # Of two ranks, all mistakes are one off.
            if len(self.results.ranks) > 2 or key != "one_off_accuracy"
        ]

    def commonest(self) -> tuple[str, float, float]:
        """The commonest rank, and accuracy and MAE of always answering it."""
        counts = [self.scores.true_counts[rank] for rank in self.results.ranks]
        rank = counts.index(max(counts))
        off = sum(count * abs(i - rank) for i, count in enumerate(counts))
        count = self.scores.count
        return self.results.ranks[rank], max(counts) / count, off / count

    @functools.cached_property
    def paper(self) -> published.Published | None:
        """The paper's result on this dataset."""
        return published.find(self.results.dataset, len(self.results.ranks))

    @functools.cached_property
    def boundaries(self) -> list[Boundary]:
        """All boundaries, low to high."""
        ranks, ends = self.results.ranks, self.scores.intervals
        return [
            Boundary(
                name,
                ranks[h],
                ranks[h + 1],
                name in self.results.critical,
                self.scores.boundaries[name],
                (ends.boundaries if ends else {}).get(name, {}),
            )
            for h, name in enumerate(metrics.boundary_names(ranks))
        ]

    @property
    def critical(self) -> list[Boundary]:
        """The boundaries that matter most to the user."""
        return [boundary for boundary in self.boundaries if boundary.is_critical]

    def comparison(self) -> tuple[str, list[tuple[str, list[str]]]] | None:
        """The last earlier stage that was scored against the end: its name, and by
        score the values of both, on validation and on test data."""
        if not self.results.earlier:
            return None
        key, earlier = list(self.results.earlier.items())[-1]
        columns = [
            scores.get(split)
            for split in ("val", "test")
            for scores in (earlier, self.results.final)
        ]
        rows = [
            (title, [FORMATS[kind](c.headline(score) if c else None) for c in columns])
            for score, title, kind in COMPARED
            if any(c and c.headline(score) is not None for c in columns)
        ]
        return key.replace("_", " "), rows

    # --- images ---

    def mistakes(self) -> list[Shown]:
        """The furthest, then most confident mistakes."""
        if self.shown is None:
            return []
        p, label = self.shown.probabilities, self.shown.predicted
        wrong = [
            self._image(i, None if p is None else float(p[i, label[i]]))
            for i in (self.shown.true != label).nonzero()[0].tolist()
        ]
        wrong.sort(key=lambda m: (-m.off, -(m.probability or 0), m.item))
        return wrong[:WORST]

    def nearest(self) -> list[tuple[str, dict[str, list[Shown]]]]:
        """By boundary that matters, the images for which both of its sides are about
        as likely, those put on the right and on the wrong side apart."""
        if self.shown is None or self.shown.probabilities is None:
            return []
        names = metrics.boundary_names(self.results.ranks)
        chosen = []
        for name in self.boundaries_that_matter:
            h = names.index(name)
            above = decisions.probability_above(self.shown.probabilities, h)
            by_doubt = abs(above - 0.5).argsort(kind="stable")
            is_right = (self.shown.predicted > h) == (self.shown.true > h)
            sides = {
                side: [self._image(i, float(above[i])) for i in items[:NEAREST]]
                for side, items in (
                    ("right", by_doubt[is_right[by_doubt]].tolist()),
                    ("wrong", by_doubt[~is_right[by_doubt]].tolist()),
                )
            }
            chosen.append((name, {side: rows for side, rows in sides.items() if rows}))
        return chosen

    def _image(self, i: int, probability: float | None) -> Shown:
        assert self.shown is not None
        item, ranks = self.shown.items[i], self.results.ranks
        true, predicted = int(self.shown.true[i]), int(self.shown.predicted[i])
        jpeg = (self.thumbnails or {}).get(item)
        uri = data_uri(jpeg, "jpeg") if jpeg else None
        off = abs(true - predicted)
        return Shown(item, ranks[true], ranks[predicted], off, probability, uri)

    @property
    def boundaries_that_matter(self) -> list[str]:
        """The critical boundaries, or those most often crossed where none is."""
        rates = self.scores.crossing_rates()
        return metrics.boundaries_that_matter(rates, self.results.critical)

    # --- decisions ---

    def sets(self) -> Sets | None:
        """How the saved prediction sets fare on the test images."""
        test = self.splits.get("test")
        if self.decision is None or self.decision.sets is None or test is None:
            return None
        if test.probabilities is None:
            return None
        ranks = self.results.ranks
        low, high = self.decision.apply_sets(test.probabilities)
        overall, by_rank = conformal_sets.fare(low, high, test.true, len(ranks))
        sizes = sorted(Counter((high - low + 1).tolist()).items())
        return Sets(overall, list(zip(ranks, by_rank, strict=True)), sizes)

    # --- what was learned ---

    @property
    def margins(self) -> ReadoutValues | None:
        """The margins; None where the method has none."""
        return self.results.readouts.get("margins")

    @property
    def has_too_wide_margins(self) -> bool:
        """Whether the margins sum to more than the cosine geometry allows."""
        if self.margins is None or self.margins.limit is None:
            return False
        return sum(self.margins.values.values()) > self.margins.limit + 1e-6

    @property
    def unmet(self) -> str:
        """What it means that next to no triplet keeps its margin; "" where some do."""
        return unmet_margins(self.results.violated)

    def collapsed(self) -> list[str]:
        """Boundaries whose margin training has all but removed."""
        if self.margins is None:
            return []
        return [
            name
            for name, value in self.margins.values.items()
            if self.margins.kinds.get(name) != "fixed" and value < COLLAPSED
        ]

    def order_ends(self) -> list[tuple[str, float]]:
        """The ranks with the lowest and the highest order score."""
        by_rank = self.results.order_score.by_rank
        known = [(rank, score) for rank, score in by_rank.items() if score is not None]
        if not known:
            return []
        by_score = [min(known, key=lambda k: k[1]), max(known, key=lambda k: k[1])]
        return by_score if by_score[0][0] != by_score[1][0] else []

    # --- files ---

    def picture(self, name: str) -> Picture | None:
        """A picture of the run; None where there is none."""
        return read_picture(self.folder.path / name)

    def study(self, name: str, drawing: str) -> dict[str, Any] | None:
        """A study of several runs: from the run's folder or from the one it is in."""
        for place in (self.folder.path, self.folder.path.resolve().parent):
            if (place / name).is_file():
                remedy = "Move it away, or repeat the study."
                study = files.read_sealed(place / name, remedy=remedy)
                return study | {"picture": read_picture(place / drawing)}
        return None

    def config_tables(self) -> dict[str, list[tuple[str, str]]]:
        """The config by its top-level groups, as (dotted name, value) rows."""
        if not self.folder.config.is_file():
            return {}
        tables: dict[str, list[tuple[str, str]]] = {}
        for name, value in self.folder.read_config().items():
            group = name if isinstance(value, dict) else "general"
            tables.setdefault(group, []).extend(
                (field, text if isinstance(text, str) else json.dumps(text))
                for field, text in run_folder.flatten({name: value}).items()
            )
        return tables


def unmet_margins(violated: Mapping[str, float | None]) -> str:
    """What it means that next to no triplet keeps its margin; "" where some do."""
    if not run_results.are_margins_unmet(violated):
        return ""
    return (
        "Next to no triplet of test images keeps its margin. While that is so in "
        "training, the contrast between images treats all other ranks alike and does "
        "not depend on the margins: learned, fixed and raised ones train the same "
        "network. Smaller margins, a projection (head.projection) or longer training "
        "may change that."
    )


def read_picture(path: pathlib.Path) -> Picture | None:
    """A PNG; None where there is no such file."""
    if not path.is_file():
        return None
    content = path.read_bytes()
    try:
        with Image.open(io.BytesIO(content)) as image:
            image.verify()
            width = image.width * 96 / image.info.get("dpi", (96, 96))[0]
    except Exception as error:  # Pillow has many for a file that is damaged
        raise Damaged(
            path,
            f"it is no picture ({error})",
            f"`launch.py evaluate --run={path.parent}` draws it again.",
        ) from None
    return Picture(data_uri(content, "png"), round(width))


def data_uri(content: bytes, kind: str) -> str:
    """A picture as a text that a page can show."""
    return f"data:image/{kind};base64,{base64.b64encode(content).decode()}"
