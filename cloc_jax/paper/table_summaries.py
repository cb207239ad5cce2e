"""What the runs behind the paper's tables found, one summary per dataset and protocol.

A summary holds scores, their variance over test images, epochs and times, and what the
runs were: enough to write the page again, without images, weights or predictions.
"""

import dataclasses
import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import jinja2
import numpy as np
from ml_collections import ConfigDict

from cloc_jax.report.view import View
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import intervals, metrics, results

REMEDY = "Put back a copy, or move it away; `launch.py tables` writes it again."
PROTOCOLS = {
    "frozen": "frozen encoder",
    "partial": "partly trained encoder",
    "whole": "whole network trained",
}
# Methods that augment images in their own way unless told otherwise, so that kept views
# are of no use.
OWN_VIEWS = ("rnc", "simclr", "supcon", "dino")
# The paper's and cross-entropy, and others that can be asked for.
COMPARED = ("orcnn", "poe", "gol", "mwr", *OWN_VIEWS, "cloc", "ce")
OF_SOFTMAX = ("soft_labels", "cdw_ce", "squared_emd", "slace", "weighted_kappa", "orcu")
METHODS = (*COMPARED, "coral", "corn", "sord", "clm", *OF_SOFTMAX)
SUMMARIES = "summaries"  # folder beside the runs
BIASED = "biased "  # before the name of a setting: with biased training labels
CONTROLLED = "cloc controlled"  # the critical margins are fixed, others learned
PHASE_ONE, FINAL = "phase_one", "final"  # stages that runs are scored after
Scores = dict[str, float | None]  # by name, such as "accuracy" and "error 1|2"


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
    # Shares of triplets by boundary: in training at its end; where that is not known,
    # among test images.
    kept_triplets: results.Shares = dataclasses.field(default_factory=dict)


@dataclasses.dataclass(frozen=True)
class Setting:
    """Runs that differ in seed and fold only."""

    runs: tuple[Run, ...]
    encoder: str
    max_epochs: int
    # What summaries of the first runs do not say has a default.
    dtype: str = "float32"
    device: str = ""
    together: int = 1  # runs that were trained as one program, and timed together
    # Of the mean over runs by stage and score; None with folds, whose images differ.
    images_variance: dict[str, dict[str, float]] | None = None
    # Of the difference to CLOC with the same labels, by score; None if it is not known.
    paired_variance: dict[str, Any] | None = None


@dataclasses.dataclass(frozen=True)
class About:
    """What most runs of a summary were, to be held against the paper's protocol."""

    encoder: str
    is_frozen: bool
    trainable_from: str
    size: tuple[int, ...]
    merge_val: bool
    images: dict[str, int]
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
    controlled: dict[str, str]  # by "" and BIASED: see `_chosen_control`
    settings: dict[str, Setting]
    unfinished: dict[str, str]  # why, by the name of the run


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
    return files.read_dataclass(TableSummary, path, remedy=REMEDY)


def write_summaries(found: Iterable[TableSummary], folder: pathlib.Path) -> None:
    """Writes each summary as <dataset>-<protocol>.json."""
    folder.mkdir(parents=True, exist_ok=True)
    for one in found:
        path = folder / f"{one.dataset}-{one.protocol}.json"
        files.write_sealed(path, files.to_plain(one))


def page(name: str, **values: Any) -> str:
    """A page of Markdown, by the template of that name."""
    environment = jinja2.Environment(
        loader=jinja2.FileSystemLoader(pathlib.Path(__file__).parent),
        undefined=jinja2.StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    environment.filters["piped"] = _piped
    return environment.get_template(f"{name}.md.jinja").render(values)


def _piped(cells: Sequence[str]) -> str:
    """A row of a table of Markdown."""
    return "| " + " | ".join(cell.replace("|", "\\|") for cell in cells) + " |"


# --- from runs ---


def summarize(folder: pathlib.Path, command: str = "") -> list[TableSummary]:
    """Of every dataset and protocol that a folder has finished runs of.

    Runs are called DATASET,PROTOCOL,SETTING,seed=N. The command that trained some of
    them is listed behind those before it.
    """
    groups: dict[tuple[str, str], list[RunFolder]] = {}
    for path in sorted(folder.glob("*,*,*,seed=*")):
        dataset, protocol, *_ = path.name.split(",")
        groups.setdefault((dataset, protocol), []).append(RunFolder(path))
    made = []
    for (dataset, protocol), runs in groups.items():
        before = folder / SUMMARIES / f"{dataset}-{protocol}.json"
        commands = read_summary(before).commands if before.exists() else ()
        if command:
            commands = tuple(dict.fromkeys((*commands, command)))
        if summary := _summary(dataset, protocol, runs, commands):
            made.append(summary)
    return made


def _summary(
    dataset: str, protocol: str, runs: Sequence[RunFolder], commands: tuple[str, ...]
) -> TableSummary | None:
    finished: dict[str, list[View]] = {}
    unfinished = {}
    for run in runs:
        name = run.path.name
        if run.metrics.exists():
            setting = name.split(",")[2].replace("_", " ")
            finished.setdefault(setting, []).append(View(run))
        else:
            reason = run.read_failure() or "not trained yet"
            # Summaries are passed on; folders of this machine are not.
            unfinished[name] = re.sub(r"(?<![\w:/.])/[^\s:]*/", "…/", reason)
    if not finished:
        return None
    # Some settings differ in their encoder or ranks; CLOC's own say what is usual.
    usual = min(finished, key=lambda name: (name != "cloc", name not in METHODS))
    first = finished[usual][0]
    config = _config(first)
    data, encoder = config.data, config.encoder
    settings = {}
    for name, own in finished.items():
        cloc = f"{BIASED}cloc" if name.startswith(BIASED) else "cloc"
        paired = None
        if name != cloc and cloc in finished:
            paired = _paired_variance(own, finished[cloc])
        settings[name] = _setting(own, paired)
    return TableSummary(
        dataset=dataset,
        protocol=protocol,
        commands=commands,
        ranks=tuple(first.results.ranks),
        critical=tuple(first.results.critical),
        about=About(
            encoder=encoder.name,
            is_frozen=encoder.frozen,
            trainable_from=encoder.trainable_from,
            size=tuple(data.size),
            merge_val=data.merge_val,
            images=first.folder.read_dataset()["images"],
            max_epochs=config.train.max_epochs,
            device=first.results.environment["device"],
        ),
        controlled=_chosen_control(settings, first.results.critical),
        settings=settings,
        unfinished=unfinished,
    )


def _config(run: View) -> ConfigDict:
    return ConfigDict(run.folder.read_config())


def _chosen_control(
    settings: Mapping[str, Setting], critical: Sequence[str]
) -> dict[str, str]:
    """Of the margins that were tried the one with the fewest errors on validation."""
    chosen = {}
    # With biased labels only the first critical boundary has a fixed margin.
    for kind, at in (("", critical), (BIASED, critical[:1])):
        errors = {
            name: [run.val[f"error {b}"] or 0.0 for run in one.runs for b in at]
            for name, one in settings.items()
            if name.startswith(kind + CONTROLLED)
        }
        if errors:
            chosen[kind] = min(errors, key=lambda name: np.mean(errors[name]))
    return chosen


def _setting(runs: Sequence[View], paired: dict[str, Any] | None) -> Setting:
    configs = [_config(run) for run in runs]
    config = configs[0]
    devices = {run.results.environment["device"] for run in runs}
    # With folds the runs have other test images each: their spread says it all.
    has_same_images = len({one.data.fold for one in configs}) == 1
    return Setting(
        runs=tuple(_run(run) for run in runs),
        encoder=config.encoder.name,
        max_epochs=config.train.max_epochs,
        dtype=config.encoder.dtype,
        device=" and ".join(sorted(devices)),
        images_variance=_images_variance(runs) if has_same_images else None,
        paired_variance=paired,
    )


def _run(run: View) -> Run:
    found, config = run.results, _config(run)
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
        seed=config.seed,
        fold=config.data.fold,
        kept_triplets=found.kept_in_training or found.kept_triplets,
    )


def _scores(split: results.SplitScores) -> Scores:
    return split.chosen(("accuracy", "mae"), split.boundaries)


# --- variance over test images ---


def _images_variance(runs: Sequence[View]) -> dict[str, dict[str, float]]:
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
    runs: Sequence[View], reference: Sequence[View]
) -> dict[str, float] | None:
    """Of the difference of two settings' means, by score.

    None where their ranks or test images are not the same, as with other bins or folds.
    """
    for run in (*runs, *reference):
        about = run.results.ranks, run.test.items
        if about != (runs[0].results.ranks, runs[0].test.items):
            return None
    own, other = _final_parts(runs), _final_parts(reference)
    return _variances(
        {
            name: part.mean(0, keepdims=True) - other[name].mean(0, keepdims=True)
            for name, part in own.items()
        }
    )


def _final_parts(runs: Sequence[View]) -> dict[str, np.ndarray]:
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
