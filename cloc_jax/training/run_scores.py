"""The scores of a run whose stages are trained, written into its folder."""

from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cloc_jax import losses
from cloc_jax.data.splits import CALIBRATION
from cloc_jax.runtime import environment, files, processes
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import (
    embedding_order,
    intervals,
    metrics,
    predictions,
    trade_offs,
)
from cloc_jax.training.assembly import Parts
from cloc_jax.training.trained_run import TrainedRun

TARGETS = (0.01, 0.02, 0.05, 0.1, 0.2)  # shares missed that the report shows
VIOLATIONS_OF = 2048  # test images whose triplets are looked at


class Results(NamedTuple):
    """What an evaluation finds."""

    metrics: dict[str, Any]
    splits: dict[str, predictions.Predictions]
    embeddings: np.ndarray  # of the test images

    @property
    def test(self) -> predictions.Predictions:
        """The predictions for the test images."""
        return self.splits["test"]


def score(run: TrainedRun, parts: Parts) -> Results:
    """Writes metrics.json and predictions.csv of a run whose stages are trained."""
    results = compute(run, parts)
    if processes.is_first():
        write_predictions(run.folder, results)
        finish(run.folder, results)
    return results


def write_predictions(folder: RunFolder, results: Results) -> None:
    """Writes predictions.csv."""
    path = folder.path / predictions.NAME
    predictions.write(path, results.splits, results.metrics["ranks"])


def finish(folder: RunFolder, results: Results) -> None:
    """Writes metrics.json, last: the run is now finished."""
    path = folder.path / predictions.NAME
    checksums = {predictions.NAME: files.sha256(path)}
    folder.write_metrics(results.metrics | {"files": checksums})


def compute(run: TrainedRun, parts: Parts) -> Results:
    """What metrics.json and predictions.csv of a trained run hold."""
    folder = run.folder
    ranks, splits, stages = (
        parts.dataset.ranks,
        parts.dataset.splits,
        parts.method.stages,
    )
    records = [folder.read_stage(s.name) | {"title": s.title} for s in stages]
    results: dict[str, Any] = {}
    for stage in stages[:-1]:
        if stage.is_scored:
            early = run.at(stage.name)
            results[stage.key] = {
                split: predictions.score(
                    early.predict(splits[split]), splits[split].labels, ranks
                )
                for split in ("val", "test")
            }
    found: dict[str, predictions.Predictions] = {}
    results["final"] = {}
    for split in ("val", "test", CALIBRATION):
        if split not in splits:
            continue
        source = splits[split]
        prediction = run.predict(source)
        found[split] = predictions.Predictions(
            list(source.ids),
            source.labels,
            np.asarray(prediction.label),
            predictions.rank_probabilities(prediction),
            None if prediction.value is None else np.asarray(prediction.value),
        )
        if split != CALIBRATION:
            scores = predictions.score(prediction, source.labels, ranks)
            results["final"][split] = scores | {
                "intervals": _intervals(scores, found[split])
            }
    readouts = _readouts(run, ranks)
    test, embeddings = splits["test"], run.embed(splits["test"])
    results |= {
        "margins": readouts.get("margins", {}).get("values", {}),
        "readouts": readouts,
        **run.about(),
        "ranks": list(ranks),
        "critical": list(parts.critical),
        "stages": records,
        "seconds": _seconds(records),
        "environment": environment.environment(),
        "order_score": embedding_order.order_score(embeddings, test.labels, ranks),
    }
    results["trade_off"] = _trade_off(found, results)
    for readout in readouts.values():
        if readout["is_of_embeddings"]:
            margins = readout["values"]
            results["violated"] = _violated(embeddings, test.labels, margins)
    return Results(results, found, embeddings)


def _intervals(
    scores: dict[str, Any], found: predictions.Predictions
) -> dict[str, Any]:
    ends = intervals.of_scores(scores["confusion"], list(scores["boundaries"]))
    if found.values is not None:
        errors = metrics.absolute_errors(found.true, found.values)
        ends["mae"] = intervals.of_mean(errors)
        ends.pop("macro_mae")  # of labels, which is not what is reported
    return ends


def _readouts(run: TrainedRun, ranks) -> dict[str, dict[str, Any]]:
    """The method's values for people, as plain data."""
    return {
        name: {
            "per": readout.per,
            "values": metrics.named_values(readout.values, readout.per, ranks),
            "kinds": dict(
                zip(metrics.boundary_names(ranks), readout.kinds, strict=False)
            ),
            "limit": readout.limit,
            "is_of_embeddings": readout.is_of_embeddings,
        }
        for name, readout in run.method.readouts(run.model()).items()
    }


def _trade_off(
    found: dict[str, predictions.Predictions], results: dict[str, Any]
) -> dict[str, list[trade_offs.Row]]:
    """What decision control would cost at the boundaries that matter, by name."""
    val, test = found["val"], found["test"]
    if val.probabilities is None:
        return {}
    boundaries = results["final"]["test"]["boundaries"]
    crossed = {name: rates["crossing_rate"] for name, rates in boundaries.items()}
    rows = {}
    for name in metrics.boundaries_that_matter(crossed, results["critical"]):
        h = list(boundaries).index(name)
        if (val.true > h).any():  # else there is nothing to choose a threshold by
            rows[name] = trade_offs.trade_off(val, test, h, TARGETS)
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


def _seconds(records: list[dict[str, Any]]) -> dict[str, float]:
    spent = {(r["title"] or r["name"]).replace(" ", "_"): r["seconds"] for r in records}
    return spent | {"total": sum(spent.values())}
