"""From finished runs to a summary of one dataset and protocol, as plain JSON.

It holds scores, their variance over test images, epochs and times, and what the runs
were: enough to make the page again, without images, weights or predictions.
"""

import pathlib
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from cloc_jax.paper.table_rows import (
    BIASED,
    COLLAPSE,
    CONTROLLED,
    FINAL,
    METHODS,
    OWN_VIEWS,
    PHASE_ONE,
)
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import intervals, metrics, predictions
from cloc_jax.sweeps.run_plan import FOLD, SEED

VERSION = 1
REMEDY = "Put back a copy, or move it away; `launch.py tables` writes it again."
SCORES = ("accuracy", "mae", "qwk", "one_off_accuracy", "macro_mae")
Run = Mapping[str, Any]  # an entry of the list of runs


def summarize(
    folder: pathlib.Path, runs: Sequence[Run], failed: Mapping[str, str]
) -> dict[str, Any] | None:
    """The summary of runs of one dataset and protocol; None where none is finished.

    Args:
      folder: of the runs.
      runs: entries of its list.
      failed: why runs did not finish, by name.
    """
    by_setting: dict[str, list[Run]] = {}
    unfinished = {}
    for run in runs:
        if RunFolder(folder / run["name"]).metrics.exists():
            by_setting.setdefault(run["setting"], []).append(run)
        else:
            reason = failed.get(run["name"], "not trained yet")
            # Summaries are passed on; folders of this machine are not.
            unfinished[run["name"]] = re.sub(r"(?<![\w:/.])/[^\s:]*/", "…/", reason)
    if not by_setting:
        return None
    settings = {name: _setting(folder, own) for name, own in by_setting.items()}
    for name, setting in settings.items():
        reference = f"{BIASED}cloc" if name.startswith(BIASED) else "cloc"
        pair = by_setting[name], by_setting.get(reference, ())
        if name != reference and all(pair):
            found = _paired(*([RunFolder(folder / r["name"]) for r in p] for p in pair))
            if found:
                setting["paired_variance"] = {"with": reference, **found}
    first = RunFolder(folder / by_setting[_typical(settings)][0]["name"])
    scores = first.read_metrics()
    return {
        "version": VERSION,
        "dataset": runs[0]["dataset"],
        "protocol": runs[0]["protocol"],
        "commands": list(
            dict.fromkeys(run["command"] for own in by_setting.values() for run in own)
        ),
        "ranks": scores["ranks"],
        "critical": scores["critical"],
        "about": _about(first, scores),
        "controlled": controlled(settings, scores["critical"]),
        "settings": settings,
        "unfinished": unfinished,
    }


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
            name.startswith(COLLAPSE),
        )

    return min(settings, key=unlike)


def _setting(folder: pathlib.Path, runs: Sequence[Run]) -> dict[str, Any]:
    """What one setting's runs say."""
    found = [RunFolder(folder / run["name"]) for run in runs]
    ranks = found[0].read_metrics()["ranks"]
    configs = [run.read_config() for run in found]
    folds = [run.get(FOLD) for run in runs]
    devices = {run.read_metrics()["environment"]["device"] for run in found}
    summary = {
        "runs": [
            _one(run) | {"seed": entry[SEED], "fold": fold}
            for run, entry, fold in zip(found, runs, folds, strict=True)
        ],
        "encoder": configs[0]["encoder"]["name"],
        "views": configs[0]["encoder"]["views"],
        "dtype": configs[0]["encoder"]["dtype"],
        "max_epochs": configs[0]["train"]["max_epochs"],
        "batch_size": configs[0]["train"]["batch_size"],
        "device": " and ".join(sorted(devices)),
        "commands": list(dict.fromkeys(run["command"] for run in runs)),
        "together": len(found) if configs[0]["encoder"]["frozen"] else 1,
    }
    # With folds the runs have other test images each: their spread says it all.
    if all(fold is None for fold in folds) or len(set(folds)) == 1:
        summary["images_variance"] = _variance(found, ranks)
    return summary


def _one(run: RunFolder) -> dict[str, Any]:
    found = run.read_metrics()
    stages = [stage for stage in (PHASE_ONE, FINAL) if stage in found]
    return {
        "scores": {stage: _scores(found[stage]["test"]) for stage in stages},
        "val": _scores(found[FINAL]["val"]),
        "stages": [
            {
                "title": stage["title"] or stage["name"],
                "epochs": stage["epochs"],
                "seconds": round(stage["seconds"], 1),
            }
            for stage in found["stages"]
        ],
        "margins": found["margins"],
        "violated": found.get("violated", {}),
    }


def _scores(found: Mapping[str, Any]) -> dict[str, Any]:
    scores = {name: found[name] for name in SCORES}
    for boundary, rates in found["boundaries"].items():
        scores[f"error {boundary}"] = rates["error_rate"]
        scores[f"crossing {boundary}"] = rates["crossing_rate"]
    return scores


def _variance(
    runs: Sequence[RunFolder], ranks: Sequence[str]
) -> dict[str, dict[str, float]]:
    """Over test images, of the mean over runs, by stage and score."""
    metric = [run.read_metrics() for run in runs]
    found = {FINAL: _variances(_final_parts(_tested(runs, ranks), ranks))}
    if all(PHASE_ONE in one for one in metric):
        # Only counts are kept of phase one: as if all runs erred on the same images.
        early = [
            _of_confusion(np.array(one[PHASE_ONE]["test"]["confusion"]), ranks)
            for one in metric
        ]
        found[PHASE_ONE] = {
            name: float(np.mean([one[name] for one in early])) for name in early[0]
        }
    names = metrics.boundary_names(ranks)
    return {
        stage: {_named(key, names): value for key, value in of.items()}
        for stage, of in found.items()
    }


def _paired(
    runs: Sequence[RunFolder], reference: Sequence[RunFolder]
) -> dict[str, float]:
    """Over test images, of the difference of two settings' means, by score.

    {} where their ranks or test images are not the same, as with other bins or folds.
    """
    ranks = runs[0].read_metrics()["ranks"]
    if any(run.read_metrics()["ranks"] != ranks for run in reference):
        return {}
    read = [_tested(those, ranks) for those in (runs, reference)]
    if any(one.items != read[0][0].items for those in read for one in those):
        return {}
    own, other = (_final_parts(those, ranks) for those in read)
    differences = {
        name: part.mean(0, keepdims=True) - other[name].mean(0, keepdims=True)
        for name, part in own.items()
        if part.shape[1] == other[name].shape[1]
    }
    names = metrics.boundary_names(ranks)
    return {_named(key, names): v for key, v in _variances(differences).items()}


def _tested(
    runs: Sequence[RunFolder], ranks: Sequence[str]
) -> list[predictions.Predictions]:
    """Predictions of the test images."""
    return [predictions.read(r.path / predictions.NAME, ranks)["test"] for r in runs]


def _final_parts(
    read: Sequence[predictions.Predictions], ranks: Sequence[str]
) -> dict[str, np.ndarray]:
    predicted = np.stack([one.predicted for one in read])
    values = np.stack(
        [one.predicted if one.values is None else one.values for one in read]
    )
    return _parts(read[0].true, predicted, values, len(ranks))


def _parts(
    true: np.ndarray, predicted: np.ndarray, values: np.ndarray, num_ranks: int
) -> dict[str, np.ndarray]:
    """[run, image], of which scores are means; boundaries are named by their place."""
    found = {
        "accuracy": (predicted == true).astype(float),
        "mae": np.abs(values - true),
    }
    for h in range(num_ranks - 1):
        is_of = (true == h) | (true == h + 1)
        other = np.where(true == h, h + 1, h)
        found[f"error {h}"] = (predicted == other)[:, is_of].astype(float)
        found[f"crossing {h}"] = ((predicted > h) != (true > h)).astype(float)
    return found


def _variances(parts: Mapping[str, np.ndarray]) -> dict[str, float]:
    """Variance by score, where there are images enough for one."""
    found = {
        name: intervals.variance_over_images(part)
        for name, part in parts.items()
        if part.shape[1] > 1
    }
    return {name: value for name, value in found.items() if np.isfinite(value)}


def _of_confusion(confusion: np.ndarray, ranks: Sequence[str]) -> dict[str, float]:
    """The same for one run of which only the counts are known."""
    true, predicted = (a.ravel() for a in np.indices(confusion.shape))
    counts = confusion.ravel()
    true, predicted = np.repeat(true, counts), np.repeat(predicted, counts)
    return _variances(_parts(true, predicted[None], predicted[None], len(ranks)))


def _named(key: str, boundaries: Sequence[str]) -> str:
    kind, _, place = key.partition(" ")
    return f"{kind} {boundaries[int(place)]}" if place else key


def _about(run: RunFolder, scores: Mapping[str, Any]) -> dict[str, Any]:
    """What most runs were, to be held against the paper's protocol."""
    config, dataset = run.read_config(), run.read_dataset()
    data, encoder = config["data"], config["encoder"]
    return {
        "encoder": encoder["name"],
        "is_frozen": encoder["frozen"],
        "trainable_from": encoder["trainable_from"],
        "views": encoder["views"],
        "size": list(data["size"]),
        "equalize": data["equalize"],
        "merge_val": data["merge_val"],
        "images": dataset["images"],
        "batch_size": config["train"]["batch_size"],
        "max_epochs": config["train"]["max_epochs"],
        "learning_rate": config["optimizer"]["learning_rate"],
        "encoder_learning_rate": config["optimizer"]["encoder_learning_rate"],
        "device": scores["environment"]["device"],
    }


def controlled(settings: Mapping[str, Any], critical: Sequence[str]) -> dict[str, str]:
    """Of the margins that were tried the one with the fewest errors on validation.

    Args:
      settings: by name.
      critical: boundaries; with biased labels only the first has a fixed margin.
    """
    found = {}
    for kind, at in (("", critical), (BIASED, critical[:1])):
        tried = [name for name in settings if name.startswith(kind + CONTROLLED)]

        def errors(name: str, at: Sequence[str] = at) -> tuple[float, float]:
            runs = [run["val"] for run in settings[name]["runs"]]
            rates = [run[f"error {b}"] or 0.0 for run in runs for b in at]
            accuracy = np.mean([run["accuracy"] for run in runs])
            return float(np.mean(rates)), -float(accuracy)

        if tried:
            found[kind] = min(tried, key=errors)
    return found


def read(folder: pathlib.Path) -> list[dict[str, Any]]:
    """The summaries in a folder."""
    paths = sorted(folder.glob("*.json"))
    found = [files.read_sealed(path, remedy=REMEDY) for path in paths]
    bad = [
        path
        for path, one in zip(paths, found, strict=True)
        if one.get("version") != VERSION
    ]
    if not found or bad:
        what = f"{bad[0].name} is not one" if bad else "there is none"
        raise ValueError(
            f"--from is {folder}, where summaries of `launch.py tables` are expected, "
            f"but {what}."
        )
    return found


def below(folder: pathlib.Path) -> list[dict[str, Any]]:
    """All summaries below a folder, by the names that `tables` gives them."""
    return [
        files.read_sealed(path, remedy=REMEDY)
        for path in sorted(folder.rglob("*.json"))
        if path.stem.endswith(("-frozen", "-partial", "-whole"))
    ]
