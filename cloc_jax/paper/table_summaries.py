"""What the runs behind the paper's tables found, one summary per dataset and protocol.

A summary holds scores, their variance over test images, epochs and times, and what the
runs were: enough to write the page again, without images, weights or predictions.
Summaries of runs that were trained on several machines can be merged.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np
from ml_collections import ConfigDict

from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import intervals, metrics, predictions, results

REMEDY = "Put back a copy, or move it away; `launch.py tables` writes it again."
PROTOCOLS = {
    "frozen": "frozen encoder",
    "partial": "partly trained encoder",
    "whole": "whole network trained",
}
METHODS = {
    "orcnn": "ORCNN",
    "poe": "POE",
    "gol": "GOL",
    "mwr": "MWR",
    "rnc": "RnC",
    "simclr": "SimCLR",
    "supcon": "SupCon",
    "dino": "DINO",
    "cloc": "CLOC",
    "ce": "Cross-entropy",  # not in the paper
    "coral": "CORAL",
    "corn": "CORN",
    "sord": "SORD",
    "clm": "CLM",
}
# Methods that augment images in their own way unless told otherwise, so that kept views
# are of no use.
OWN_VIEWS = ("rnc", "simclr", "supcon", "dino")
BIASED = "biased "  # before the name of a setting: with biased training labels
CONTROLLED = "cloc controlled"  # the critical margins are fixed, others learned
PHASE_ONE, FINAL = "phase_one", "final"  # stages that runs are scored after
SCORES = ("accuracy", "mae", "qwk", "one_off_accuracy", "macro_mae")
Scores = dict[str, float | None]  # by name, such as "accuracy" and "error 1|2"


@dataclasses.dataclass(frozen=True)
class ListedRun:
    """A run of the tables, as the list of runs in their folder has it."""

    name: str
    setting: str
    seed: int
    fold: int | None
    dataset: str
    protocol: str
    command: str


@dataclasses.dataclass(frozen=True)
class Stage:
    """How long a stage of a run took."""

    title: str
    epochs: int
    seconds: float


@dataclasses.dataclass(frozen=True)
class Run:
    """What one run found."""

    scores: dict[str, Scores]  # on test images, by stage
    val: Scores
    stages: tuple[Stage, ...]
    margins: dict[str, float]
    seed: int
    fold: int | None
    violated: dict[str, float | None] = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Runs that differ in seed and fold only."""

    runs: tuple[Run, ...]
    encoder: str
    views: int
    max_epochs: int
    # What summaries of the first runs do not say has a default.
    dtype: str = "float32"
    batch_size: int | None = None
    device: str = ""
    commands: tuple[str, ...] = ()
    together: int = 1  # runs that were trained as one program, and timed together
    # Of the mean over runs by stage and score; None with folds, whose images differ.
    images_variance: dict[str, dict[str, float]] | None = None
    # Of the difference to the setting that is named as "with", by score.
    paired_variance: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class About:
    """What most runs of a summary were, to be held against the paper's protocol."""

    encoder: str
    is_frozen: bool
    trainable_from: str
    views: int
    size: tuple[int, ...]
    equalize: bool
    merge_val: bool
    images: dict[str, int]
    batch_size: int
    max_epochs: int
    device: str


@dataclasses.dataclass(frozen=True)
class TableSummary:
    """The runs of one dataset and protocol."""

    dataset: str
    protocol: str
    commands: tuple[str, ...]
    ranks: tuple[str, ...]
    critical: tuple[str, ...]
    about: About
    controlled: dict[str, str]  # by "" and BIASED: see `chosen_control`
    settings: dict[str, Setting]
    unfinished: dict[str, str]  # why, by the name of the run

    @property
    def title(self) -> str:
        """By which its file is called."""
        return f"{self.dataset}-{self.protocol}"

    def variance_of_pair(self, first: str, second: str) -> Mapping[str, Any]:
        """Variance of the difference of two settings, by score; {} if unknown.

        One of the two is what all others are held against, so the other has it.
        """
        for name, other in ((first, second), (second, first)):
            paired = self.settings[name].paired_variance or {}
            if paired.get("with") == other:
                return paired
        return {}


# --- files ---


def read_summaries(folder: pathlib.Path) -> list[TableSummary]:
    """The summaries in a folder."""
    paths = [p for p in sorted(folder.glob("*.json")) if is_summary(p)]
    if not paths:
        raise ValueError(
            f"--from is {folder}, where summaries of `launch.py tables` are expected, "
            "such as koa-frozen.json, but there is none."
        )
    return [read_summary(path) for path in paths]


def is_summary(path: pathlib.Path) -> bool:
    """Whether a file is called as `write_summaries` calls them."""
    return path.stem.endswith(tuple(f"-{protocol}" for protocol in PROTOCOLS))


def read_summary(path: pathlib.Path) -> TableSummary:
    """The summary in a file; Damaged where it is not one."""
    plain = files.read_sealed(path, remedy=REMEDY)
    try:
        return files.from_plain(TableSummary, plain)
    except ValueError as error:
        raise files.Damaged(path, str(error), REMEDY) from None


def write_summaries(found: Iterable[TableSummary], folder: pathlib.Path) -> None:
    """Writes each summary as <dataset>-<protocol>.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in found:
        path = folder / f"{one.title}.json"
        files.write_sealed(path, files.to_plain(one))


# --- several machines ---


def merge(found: Iterable[TableSummary]) -> list[TableSummary]:
    """One summary for each dataset and protocol, with the settings of all of them.

    ValueError where they cannot stand in one table: other images or another encoder, or
    other runs of the same setting.
    """
    merged: dict[str, TableSummary] = {}
    for one in found:
        before = merged.get(one.title)
        merged[one.title] = _both(before, one) if before else one
    return list(merged.values())


# In which runs of one dataset and protocol have to agree.
_SAME = (
    *("ranks", "critical", "encoder", "is_frozen", "trainable_from"),
    *("size", "equalize", "merge_val", "images"),
)


def _both(first: TableSummary, second: TableSummary) -> TableSummary:
    _check_same_data(first, second)
    settings = _with_commands(first)
    for name, setting in _with_commands(second).items():
        before = settings.get(name, setting)
        if _found(before) != _found(setting):
            raise ValueError(
                f"{first.title}: the summaries have other runs of {name!r}, of which "
                "the mean cannot be told without the runs themselves. Give only one "
                "folder with a summary that has this setting."
            )
        # Only a summary with CLOC's runs knows what is paired with them.
        settings[name] = before if before.paired_variance else setting
    finished = {
        run_name(first.dataset, first.protocol, name, run.seed, run.fold)
        for name, setting in settings.items()
        for run in setting.runs
    }
    left = first.unfinished | second.unfinished
    return dataclasses.replace(
        first,
        commands=tuple(dict.fromkeys((*first.commands, *second.commands))),
        controlled=chosen_control(settings, first.critical),
        settings=settings,
        unfinished={run: why for run, why in left.items() if run not in finished},
    )


def _with_commands(summary: TableSummary) -> dict[str, Setting]:
    return {
        name: dataclasses.replace(one, commands=one.commands or summary.commands)
        for name, one in summary.settings.items()
    }


def _check_same_data(first: TableSummary, second: TableSummary) -> None:
    one, other = ({**vars(s), **vars(s.about)} for s in (first, second))
    for name in _SAME:
        if one[name] != other[name]:
            raise ValueError(
                f"{first.title}: {name} is {one[name]} in one summary and "
                f"{other[name]} in another, so that they cannot stand in one table."
            )


def _found(setting: Setting) -> list[tuple[Any, ...]]:
    """What its runs found; times differ by machine."""
    runs = sorted(setting.runs, key=lambda run: (run.seed, run.fold or 0))
    return [(r.seed, r.fold, r.scores, r.val, r.margins) for r in runs]


def run_name(
    dataset: str, protocol: str, setting: str, seed: int, fold: int | None
) -> str:
    """The name of the folder of a run."""
    from cloc_jax.sweeps import plan  # late: readers of summaries need no runs

    return f"{dataset},{protocol},{plan.run_name(setting, seed, fold)}"


def chosen_control(
    settings: Mapping[str, Setting], critical: Sequence[str]
) -> dict[str, str]:
    """Of the margins that were tried the one with the fewest errors on validation.

    Args:
      settings: by name.
      critical: boundaries; with biased labels only the first has a fixed margin.
    """
    chosen = {}
    for kind, at in (("", critical), (BIASED, critical[:1])):
        tried = [name for name in settings if name.startswith(kind + CONTROLLED)]

        def errors(name: str, at: Sequence[str] = at) -> tuple[float, float]:
            runs = [run.val for run in settings[name].runs]
            rates = [run[f"error {b}"] or 0.0 for run in runs for b in at]
            accuracy = np.mean([run["accuracy"] or 0.0 for run in runs])
            return float(np.mean(rates)), -float(accuracy)

        if tried:
            chosen[kind] = min(tried, key=errors)
    return chosen


# --- from runs ---


@dataclasses.dataclass(frozen=True)
class _Finished:
    """A finished run and what it wrote."""

    listed: ListedRun
    results: results.RunResults
    config: ConfigDict
    test: predictions.Predictions
    images: dict[str, int]  # by split


def summarize(
    folder: pathlib.Path, runs: Sequence[ListedRun], failed: Mapping[str, str]
) -> TableSummary | None:
    """The summary of runs of one dataset and protocol; None where none is finished.

    Args:
      folder: of the runs.
      runs: that were started.
      failed: why runs did not finish, by name.
    """
    finished: dict[str, list[_Finished]] = {}
    unfinished = {}
    for run in runs:
        if RunFolder(folder / run.name).metrics.exists():
            finished.setdefault(run.setting, []).append(_read(folder, run))
        else:
            reason = failed.get(run.name, "not trained yet")
            # Summaries are passed on; folders of this machine are not.
            unfinished[run.name] = re.sub(r"(?<![\w:/.])/[^\s:]*/", "…/", reason)
    if not finished:
        return None
    settings = {}
    for name, own in finished.items():
        reference = f"{BIASED}cloc" if name.startswith(BIASED) else "cloc"
        paired = {}
        if name != reference and reference in finished:
            paired = _paired_variance(own, finished[reference])
        settings[name] = _setting(
            own, {"with": reference, **paired} if paired else None
        )
    first = finished[_typical(settings)][0]
    commands = [one.listed.command for own in finished.values() for one in own]
    return TableSummary(
        dataset=runs[0].dataset,
        protocol=runs[0].protocol,
        commands=tuple(dict.fromkeys(commands)),
        ranks=tuple(first.results.ranks),
        critical=tuple(first.results.critical),
        about=_about(first),
        controlled=chosen_control(settings, first.results.critical),
        settings=settings,
        unfinished=unfinished,
    )


def _read(folder: pathlib.Path, listed: ListedRun) -> _Finished:
    run = RunFolder(folder / listed.name)
    found = results.read_results(run)
    tested = predictions.read(run.path, found)["test"]
    config = ConfigDict(run.read_config())
    return _Finished(listed, found, config, tested, run.read_dataset()["images"])


def _typical(settings: Iterable[str]) -> str:
    """The setting that is most like the others: CLOC, else another method.

    Some differ in their encoder, views or ranks, and the order in which settings were
    trained is chance.
    """

    def unlike(name: str) -> tuple[bool, ...]:
        method = name.removeprefix(BIASED)
        return (
            method != "cloc",
            method not in METHODS or method in OWN_VIEWS,
            method not in METHODS,
        )

    return min(settings, key=unlike)


def _setting(runs: Sequence[_Finished], paired: dict[str, Any] | None) -> Setting:
    config = runs[0].config
    devices = {run.results.environment["device"] for run in runs}
    # With folds the runs have other test images each: their spread says it all.
    has_same_images = len({run.listed.fold for run in runs}) == 1
    return Setting(
        runs=tuple(_run(run) for run in runs),
        encoder=config.encoder.name,
        views=config.encoder.views,
        max_epochs=config.train.max_epochs,
        dtype=config.encoder.dtype,
        batch_size=config.train.batch_size,
        device=" and ".join(sorted(devices)),
        commands=tuple(dict.fromkeys(run.listed.command for run in runs)),
        images_variance=_images_variance(runs) if has_same_images else None,
        paired_variance=paired,
    )


def _run(run: _Finished) -> Run:
    found = run.results
    stages = {FINAL: found.final} | found.earlier
    return Run(
        scores={
            name: _scores(stages[name]["test"])
            for name in (PHASE_ONE, FINAL)
            if name in stages
        },
        val=_scores(found.final["val"]),
        stages=tuple(
            Stage(stage.title or stage.name, stage.epochs, round(stage.seconds, 1))
            for stage in found.stages
        ),
        margins=found.margins,
        seed=run.listed.seed,
        fold=run.listed.fold,
        violated=found.violated,
    )


def _scores(split: results.SplitScores) -> Scores:
    scores = {name: split.headline(name) for name in SCORES}
    for boundary, rates in split.boundaries.items():
        scores[f"error {boundary}"] = rates.error_rate
        scores[f"crossing {boundary}"] = rates.crossing_rate
    return scores


def _about(run: _Finished) -> About:
    data, encoder = run.config.data, run.config.encoder
    return About(
        encoder=encoder.name,
        is_frozen=encoder.frozen,
        trainable_from=encoder.trainable_from,
        views=encoder.views,
        size=tuple(data.size),
        equalize=data.equalize,
        merge_val=data.merge_val,
        images=run.images,
        batch_size=run.config.train.batch_size,
        max_epochs=run.config.train.max_epochs,
        device=run.results.environment["device"],
    )


# --- variance over test images ---


def _images_variance(runs: Sequence[_Finished]) -> dict[str, dict[str, float]]:
    """Of the mean over runs, by stage and score."""
    variance = {FINAL: _variances(_final_parts(runs))}
    early = [
        run.results.earlier[PHASE_ONE]["test"]
        for run in runs
        if PHASE_ONE in run.results.earlier
    ]
    if len(early) == len(runs):
        # Only counts are kept of phase one: as if all runs erred on the same images.
        ranks = runs[0].results.ranks
        each = [_of_confusion(np.array(one.confusion), ranks) for one in early]
        variance[PHASE_ONE] = {
            name: float(np.mean([one[name] for one in each])) for name in each[0]
        }
    return variance


def _paired_variance(
    runs: Sequence[_Finished], reference: Sequence[_Finished]
) -> dict[str, float]:
    """Of the difference of two settings' means, by score.

    {} where their ranks or test images are not the same, as with other bins or folds.
    """
    first = runs[0]
    for run in (*runs, *reference):
        is_same = run.results.ranks == first.results.ranks
        if not is_same or run.test.items != first.test.items:
            return {}
    own, other = _final_parts(runs), _final_parts(reference)
    return _variances(
        {
            name: part.mean(0, keepdims=True) - other[name].mean(0, keepdims=True)
            for name, part in own.items()
        }
    )


def _final_parts(runs: Sequence[_Finished]) -> dict[str, np.ndarray]:
    tested = [run.test for run in runs]
    predicted = np.stack([one.predicted for one in tested])
    values = np.stack(
        [one.predicted if one.values is None else one.values for one in tested]
    )
    return _parts(tested[0].true, predicted, values, runs[0].results.ranks)


def _of_confusion(confusion: np.ndarray, ranks: Sequence[str]) -> dict[str, float]:
    """The same for one run of which only the counts are known."""
    true, predicted = (a.ravel() for a in np.indices(confusion.shape))
    counts = confusion.ravel()
    true, predicted = np.repeat(true, counts), np.repeat(predicted, counts)
    return _variances(_parts(true, predicted[None], predicted[None], ranks))


def _parts(
    true: np.ndarray, predicted: np.ndarray, values: np.ndarray, ranks: Sequence[str]
) -> dict[str, np.ndarray]:
    """[run, image], of which scores are means, by score."""
    parts = {
        "accuracy": (predicted == true).astype(float),
        "mae": np.abs(values - true),
    }
    for h, name in enumerate(metrics.boundary_names(ranks)):
        is_of = (true == h) | (true == h + 1)
        other = np.where(true == h, h + 1, h)
        parts[f"error {name}"] = (predicted == other)[:, is_of].astype(float)
        parts[f"crossing {name}"] = ((predicted > h) != (true > h)).astype(float)
    return parts


def _variances(parts: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Variance by score, where there are images enough for one."""
    found = {
        name: intervals.variance_over_images(part)
        for name, part in parts.items()
        if part.shape[1] > 1
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}
