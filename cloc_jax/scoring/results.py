"""What a run and a sweep found, typed: metrics.json and summary.json.

Numbers that are not defined (the recall of a rank with no image) are None.
"""

import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from cloc_jax.runtime import files
from cloc_jax.runtime.files import Damaged
from cloc_jax.runtime.run_folder import RunFolder

Ends = list[float] | None  # of a 95% interval
Shares = dict[str, float | None]  # by boundary
MOST_BOUNDARIES = 3  # that get thresholds and pictures of their own
NO_TRIPLETS = 0.001  # a share of the triplets that counts as none of them


@dataclasses.dataclass(frozen=True)
class BoundaryRates:
    """Errors at one boundary; see `metrics` for their definitions."""

    error_rate: float | None
    missed_rate: float | None
    false_alarm_rate: float | None
    crossing_rate: float | None
    crossing_missed_rate: float | None
    crossing_false_alarm_rate: float | None
    missed_count: int
    false_alarm_count: int


@dataclasses.dataclass(frozen=True)
class Intervals:
    """Intervals of the scores of a split."""

    accuracy: Ends = None
    mae: Ends = None
    qwk: Ends = None
    one_off_accuracy: Ends = None
    macro_mae: Ends = None
    max_mae: Ends = None
    minimum_sensitivity: Ends = None
    # By boundary, of its `BoundaryRates`.
    boundaries: dict[str, dict[str, Ends]] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class SplitScores:
    """The scores of one split; see `metrics.ordinal_metrics` for their definitions."""

    count: int
    accuracy: float
    mae: float
    qwk: float | None
    one_off_accuracy: float
    macro_mae: float
    recall: dict[str, float | None]  # by rank
    true_counts: dict[str, int]
    predicted_counts: dict[str, int]
    confusion: list[list[int]]  # rows true, columns predicted
    boundaries: dict[str, BoundaryRates]
    max_mae: float | None = None
    minimum_sensitivity: float | None = None
    gmsec: float | None = None
    nll: float | None = None  # where the method has probabilities
    rps: float | None = None  # as well
    intervals: Intervals | None = None  # of the final scores only

    def chosen(
        self, names: Iterable[str], boundaries: Iterable[str] = ()
    ) -> dict[str, float | None]:
        """Scores by name, and rates of boundaries as "error 1|2" and "crossing 1|2"."""
        found = {name: getattr(self, name) for name in names}
        for boundary in boundaries:
            found[f"error {boundary}"] = self.boundaries[boundary].error_rate
            found[f"crossing {boundary}"] = self.boundaries[boundary].crossing_rate
        return found


@dataclasses.dataclass(frozen=True)
class ReadoutValues:
    """Values of the model that people read, such as margins."""

    per: str  # "boundary" or "rank"
    values: dict[str, float]
    kinds: dict[str, str] = dataclasses.field(default_factory=dict)
    limit: float | None = None  # the largest sum that can be met
    is_of_embeddings: bool = False


@dataclasses.dataclass(frozen=True)
class StageResult:
    """How a stage ended."""

    name: str
    epochs: int
    steps: int
    stop_rule: str
    stop_reason: str
    seconds: float
    title: str = ""
    # Share of the triplets across each boundary that kept their margin, in the batches
    # of the last epoch.
    kept_triplets: Shares = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class OrderScore:
    """How well distances of embeddings tell ranks; see `metrics.order_score`."""

    overall: float | None
    by_rank: dict[str, float | None]
    images: int


@dataclasses.dataclass(frozen=True)
class RunResults:
    """What metrics.json holds.

    Earlier stages that were scored have keys of their own at the top of the file, such
    as `phase_one`; here they are `earlier`.
    """

    final: dict[str, SplitScores]  # "val" and "test"
    ranks: list[str]
    critical: list[str]  # boundaries where a mistake matters most
    method: str
    dataset: str
    readouts: dict[str, ReadoutValues]
    stages: list[StageResult]
    seconds: dict[str, float]  # by stage, and "total"
    environment: dict[str, str]
    order_score: OrderScore
    expect: str = ""
    # Share of the test triplets across each boundary that keep their margin.
    kept_triplets: Shares = dataclasses.field(default_factory=dict)
    files: dict[str, str] = dataclasses.field(default_factory=dict)  # checksums
    earlier: dict[str, dict[str, SplitScores]] = dataclasses.field(default_factory=dict)

    @property
    def margins(self) -> dict[str, float]:
        """The margin of each boundary; {} where the method has none."""
        readout = self.readouts.get("margins")
        return readout.values if readout else {}

    @property
    def boundaries_that_matter(self) -> dict[str, int]:
        """Places, by name, of the critical boundaries or those most often crossed."""
        rates = self.final["test"].boundaries
        chosen = [name for name in rates if name in self.critical]
        if not self.critical:
            chosen = sorted(rates, key=lambda name: -(rates[name].crossing_rate or 0))
        chosen = chosen[:MOST_BOUNDARIES]
        return {name: h for h, name in enumerate(rates) if name in chosen}

    @property
    def kept_in_training(self) -> Shares:
        """`kept_triplets` of the last stage that has them; {} where none has."""
        return next((s.kept_triplets for s in self.stages[::-1] if s.kept_triplets), {})

    def to_json(self) -> dict[str, Any]:
        """The content of metrics.json, without its checksum."""
        plain = files.to_plain(self)
        return plain.pop("earlier") | {"margins": self.margins} | plain

    @classmethod
    def from_json(cls, plain: Mapping[str, Any]) -> "RunResults":
        """What `to_json` wrote; ValueError names the field that is not as it wrote."""
        known = {field.name for field in dataclasses.fields(cls)} | {"margins"}
        earlier = {
            key: value
            for key, value in plain.items()
            if key not in known and isinstance(value, Mapping)
        }
        return files.from_plain(cls, {**plain, "earlier": earlier})


def are_margins_unmet(kept: Shares) -> bool:
    """Whether next to no triplet keeps its margin, at any boundary.

    The hinge max(0, s_ik + margin - s_ij) has a gradient of 1 wherever it is above 0.
    Where all of them are, the gradient of the loss by the embeddings is the same for
    any margins.
    """
    shares = [share for share in kept.values() if share is not None]
    return bool(shares) and max(shares) <= NO_TRIPLETS


def read_results(folder: RunFolder) -> RunResults:
    """The results of a finished run; Damaged where they are not as written."""
    plain = folder.read_metrics()
    try:
        found = RunResults.from_json(plain)
        for split in ("val", "test"):
            if split not in found.final:
                raise ValueError(f"final.{split} is missing")
        return found
    except ValueError as error:
        remedy = f"`launch.py evaluate --run={folder.path}` makes it again."
        raise Damaged(folder.metrics, str(error), remedy) from None


@dataclasses.dataclass(frozen=True)
class Spread:
    """A score over the seeds and folds of one setting."""

    mean: float | None
    std: float | None
    count: int

    def __str__(self) -> str:
        std = "" if self.std is None else f" ± {self.std:.3f}"
        return "" if self.mean is None else f"{self.mean:.3f}{std}"


@dataclasses.dataclass(frozen=True)
class SummaryRun:
    """One finished run of a sweep."""

    name: str
    val: dict[str, float | None]
    margins: dict[str, float]
    kept_triplets: Shares  # in training
    test: dict[str, float | None] | None = None  # not where settings are being chosen


@dataclasses.dataclass(frozen=True)
class SummaryCell:
    """The runs of one setting."""

    settings: dict[str, Any]
    runs: list[SummaryRun]
    unfinished: list[str]  # names of runs
    val: dict[str, Spread]
    test: dict[str, Spread] | None = None


@dataclasses.dataclass(frozen=True)
class Summary:
    """What summary.json of a sweep holds."""

    cells: list[SummaryCell]

    def to_json(self) -> dict[str, Any]:
        """The content of summary.json, without its checksum."""
        plain = files.to_plain(self)
        for cell in plain["cells"]:
            for part in (cell, *cell["runs"]):
                if part["test"] is None:
                    del part["test"]
        return plain
