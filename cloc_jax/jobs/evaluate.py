"""Evaluation: metrics, predictions, pictures and report of a finished run.

The only job that reads the test split, and it changes nothing that training reads.
"""

import json
import pathlib
from collections.abc import Callable
from typing import Any, NamedTuple

import cv2
import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from ml_collections import ConfigDict

from cloc_jax import losses
from cloc_jax.build import assembly, kept_features
from cloc_jax.data import carving, pipeline
from cloc_jax.report import html_page, pictures
from cloc_jax.runtime import checkpoint, environment, model_state, processes, sharding
from cloc_jax.runtime import run_folder as folders
from cloc_jax.runtime.console import console
from cloc_jax.scoring import (
    decisions,
    embedding_order,
    inference,
    intervals,
    metrics,
    predictions,
)

TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2)  # shares missed that the report shows
VIOLATIONS_OF = 2048  # test images whose triplets are looked at
TRAIN_DRAWN = 2000  # training images whose embeddings are drawn


def evaluate(config: ConfigDict, folder: folders.RunFolder) -> None:
    """Writes all results of a run whose stages are trained."""
    parts = assembly.build(config, folder)
    console.print("evaluating on validation and test data")
    results = score(config, folder, parts)
    train, test = (parts.dataset.splits[name] for name in ("train", "test"))
    some = np.random.default_rng(0).permutation(len(train))[:TRAIN_DRAWN]
    drawn = kept_features.Some(train, np.sort(some).tolist())
    of_train = results.embed(drawn)
    if not processes.is_first():
        return
    _write_examples(folder.path / "examples", parts.dataset)
    pictures.draw(
        folder.path,
        results.metrics,
        folder.read_history(),
        embeddings={
            "train": (of_train, drawn.labels),
            "test": (results.embeddings, test.labels),
        },
        found=results.test,
        images=getattr(test, "source", test),  # as they come, not as prepared
    )
    page = html_page.write_report(folder.path)
    _say(results.metrics, page)


class Results(NamedTuple):
    """What an evaluation finds."""

    metrics: dict[str, Any]
    test: predictions.Predictions
    embeddings: np.ndarray  # of the test images
    embed: Callable[[pipeline.Source], np.ndarray]  # of other ones


def score(
    config: ConfigDict, folder: folders.RunFolder, parts: assembly.Parts
) -> Results:
    """Writes metrics.json and predictions.csv of a run whose stages are trained."""
    folder.check_images(assembly.describe(parts))
    stages = [_stage_record(folder, s.name) for s in parts.method.stages]
    graph, like = model_state.split(nnx.eval_shape(parts.create.random))
    predict = inference.predictor(graph, parts.method, parts.mesh)
    results: dict[str, Any] = {}
    found: dict[str, predictions.Predictions] = {}
    for index, stage in enumerate(parts.method.stages):
        state = checkpoint.load_model(
            folder.stage(stage.name), like, sharding.copied(parts.mesh)
        )
        is_last = index + 1 == len(parts.method.stages)
        if not is_last and index:
            continue  # the report compares the first phase with the end
        scores = {}
        for split in ("val", "test", carving.CALIBRATION):
            is_scored = split != carving.CALIBRATION
            if split not in parts.dataset.splits or not (is_scored or is_last):
                continue
            source = parts.dataset.splits[split]
            outputs = inference.over(
                predict, state, source, parts.mesh, **_batching(config, source)
            )
            if is_scored:
                scores[split] = metrics.ordinal_metrics(
                    source.labels,
                    outputs["label"],
                    parts.dataset.ranks,
                    outputs.get("probabilities"),
                )
            if is_last:
                if is_scored:
                    scores[split]["intervals"] = intervals.of_scores(
                        scores[split]["confusion"], list(scores[split]["boundaries"])
                    )
                found[split] = predictions.Predictions(
                    list(source.ids),
                    source.labels,
                    outputs["label"],
                    outputs.get("probabilities"),
                )
        results["final" if is_last else "phase_one"] = scores
    trained = model_state.merge(graph, state)
    results |= _margins(trained, parts) | {
        "method": config.method.name,
        "dataset": config.data.name,
        "ranks": list(parts.dataset.ranks),
        "critical": list(parts.critical),
        "stages": stages,
        "seconds": _seconds(stages),
        "expect": config.expect,
        "environment": environment.environment(),
    }
    apply = inference.embedder(graph, parts.method, parts.mesh)

    def embed(source: pipeline.Source) -> np.ndarray:
        batching = _batching(config, source)
        outputs = inference.over(apply, state, source, parts.mesh, **batching)
        return outputs["embedding"]

    test = parts.dataset.splits["test"]
    embeddings = embed(test)
    ranks = parts.dataset.ranks
    results["trade_off"] = _trade_off(found, results)
    results["order_score"] = embedding_order.order_score(embeddings, test.labels, ranks)
    if results["margins"] and config.method.contrast == "embedding":
        results["violated"] = _violated(embeddings, test.labels, results["margins"])
    if processes.is_first():
        predictions.write(folder.path / predictions.NAME, found, parts.dataset.ranks)
        folders.write_json(folder.metrics, results)  # last: the run is now finished
    return Results(results, found["test"], embeddings, embed)


def _batching(config: ConfigDict, source: pipeline.Source) -> dict[str, Any]:
    return {
        "batch_size": min(config.train.eval_batch_size, len(source)),
        "threads": config.data.threads,
    }


def _stage_record(folder: folders.RunFolder, name: str) -> dict[str, Any]:
    path = folder.stage(name).with_suffix(".json")
    if not path.is_file():
        raise FileNotFoundError(
            f"{folder.path} has not finished stage {name}, so there is nothing to "
            "evaluate yet. Continue it with the command that started it and --resume."
        )
    return json.loads(path.read_text())


def _margins(model: nnx.Module, parts: assembly.Parts) -> dict[str, Any]:
    """Values and kinds of the margins, and the largest sum that cosines allow."""
    view = parts.method.margins(model)
    if view is None:
        return {"margins": {}, "margin_kinds": {}, "margin_limit": None}
    names = metrics.boundary_names(parts.dataset.ranks)
    values = [float(v) for v in np.asarray(view.values)]
    return {
        "margins": dict(zip(names, values, strict=True)),
        "margin_kinds": dict(zip(names, view.kinds, strict=True)),
        "margin_limit": view.limit,
    }


def _trade_off(
    found: dict[str, predictions.Predictions], results: dict[str, Any]
) -> dict[str, list[decisions.Row]]:
    """What decision control would cost at the boundaries that matter, by name."""
    val, test = found["val"], found["test"]
    if val.probabilities is None:
        return {}
    boundaries = results["final"]["test"]["boundaries"]
    rows = {}
    for name in pictures.boundaries_to_show(boundaries, results["critical"]):
        h = list(boundaries).index(name)
        if (val.true > h).any():  # else there is nothing to choose a threshold by
            rows[name] = decisions.trade_off(val, test, h, TARGETS)
    return rows


def _violated(
    embeddings: np.ndarray, labels: np.ndarray, margins: dict[str, float]
) -> dict[str, float | None]:
    """Share of the triplets across each boundary that miss the margin.

    None where a boundary has no triplets. Of a random sample, as files come by rank.
    """
    some = np.random.default_rng(0).permutation(len(labels))[:VIOLATIONS_OF]
    counts = np.bincount(labels[some], minlength=len(margins) + 1)
    shares = jax.jit(losses.violations)(
        jnp.asarray(embeddings[some]),
        jnp.asarray(labels[some]),
        jnp.asarray(list(margins.values()), jnp.float32),
    ).share
    violated: dict[str, float | None] = {}
    for h, (name, share) in enumerate(zip(margins, np.asarray(shares), strict=True)):
        below, above = counts[: h + 1], counts[h + 1 :]
        has_pairs = max(below.max() if above.any() else 0, above.max() * below.any())
        violated[name] = float(share) if has_pairs > 1 else None
    return violated


def _seconds(stages: list[dict[str, Any]]) -> dict[str, float]:
    spent = [stage["seconds"] for stage in stages]
    names = (
        ["phase_one", "phase_two"] if len(stages) == 2 else [s["name"] for s in stages]
    )
    return dict(zip(names, spent, strict=True)) | {"total": sum(spent)}


def _write_examples(path: pathlib.Path, dataset) -> None:
    """One test image a rank, to try `predict` on where the data are not files."""
    source = dataset.splits["test"]
    if source.paths is not None:
        return
    path.mkdir(exist_ok=True)
    for rank, name in enumerate(dataset.ranks):
        for item in np.flatnonzero(source.labels == rank)[:1]:
            image = source.source[int(item)]  # not yet prepared: `predict` does that
            colours_swapped = np.ascontiguousarray(image[..., ::-1])  # OpenCV's BGR
            cv2.imwrite(str(path / f"grade-{name}.png"), colours_swapped)


def _say(results: dict[str, Any], page: pathlib.Path) -> None:
    test = results["final"]["test"]
    qwk = "undefined" if test["qwk"] is None else f"{test['qwk']:.3f}"
    console.print(
        f"test  accuracy {test['accuracy']:.3f}  MAE {test['mae']:.3f}  QWK {qwk}  "
        f"at most one grade off {test['one_off_accuracy']:.3f}"
    )
    for name in results["critical"]:
        rates = test["boundaries"][name]
        console.print(
            f"boundary {name}  crossed by {rates['crossing_rate']:.3f} of all images, "
            f"error rate between neighbours {rates['error_rate'] or 0:.3f}"
        )
    console.print(f"report  {page}", soft_wrap=True)
