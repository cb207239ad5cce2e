"""The scores of a run whose stages are trained, written into its folder."""

import dataclasses
from typing import NamedTuple

import jax
import jax.numpy as jnp
import numpy as np

from cloc_jax import losses
from cloc_jax.data.splits import CALIBRATION
from cloc_jax.methods import Prediction
from cloc_jax.runtime import environment, files, processes
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import intervals, metrics, predictions
from cloc_jax.scoring.results import (
    Intervals,
    OrderScore,
    ReadoutValues,
    RunResults,
    Shares,
    SplitScores,
    StageResult,
)
from cloc_jax.training import train_step
from cloc_jax.training.assembly import Parts
from cloc_jax.training.trained_run import TrainedRun

MOST_COUNTED = 2048  # test images whose triplets are looked at


class Evaluation(NamedTuple):
    """What an evaluation finds."""

    results: RunResults
    splits: dict[str, predictions.Predictions]
    embeddings: np.ndarray  # of the test images

    @property
    def test(self) -> predictions.Predictions:
        """The predictions for the test images."""
        return self.splits["test"]


def score(run: TrainedRun, parts: Parts) -> Evaluation:
    """Writes metrics.json and predictions.csv of a run whose stages are trained."""
    evaluation = compute(run, parts)
    if processes.is_first():
        results = write_predictions(run.folder, evaluation)
        run.folder.write(run.folder.metrics, results.to_json())
    return evaluation


def write_predictions(folder: RunFolder, evaluation: Evaluation) -> RunResults:
    """Writes predictions.csv; the results with its checksum."""
    path = folder.path / predictions.NAME
    predictions.write(path, evaluation.splits, evaluation.results.ranks)
    checksums = {predictions.NAME: files.sha256(path)}
    return dataclasses.replace(evaluation.results, files=checksums)


def compute(run: TrainedRun, parts: Parts) -> Evaluation:
    """What metrics.json and predictions.csv of a trained run hold."""
    ranks, splits = list(parts.dataset.ranks), parts.dataset.splits
    earlier = {}
    for stage in parts.method.stages[:-1]:
        if stage.is_scored:
            early = run.at(stage.name)
            earlier[stage.key] = {
                split: _scores(
                    early.predict(splits[split]), splits[split].labels, ranks
                )
                for split in ("val", "test")
            }
    predicted: dict[str, predictions.Predictions] = {}
    final: dict[str, SplitScores] = {}
    for split in ("val", "test", CALIBRATION):
        if split not in splits:
            continue
        source = splits[split]
        prediction = run.predict(source)
        predicted[split] = predictions.Predictions(
            list(source.ids),
            source.labels,
            np.asarray(prediction.label),
            predictions.rank_probabilities(prediction),
            None if prediction.value is None else np.asarray(prediction.value),
        )
        if split != CALIBRATION:
            scores = _scores(prediction, source.labels, ranks)
            ends = _intervals(scores, predicted[split])
            final[split] = dataclasses.replace(scores, intervals=ends)
    readouts = _readouts(run, ranks)
    stages = [
        files.from_plain(
            StageResult, run.folder.read_stage(stage.name) | {"title": stage.title}
        )
        for stage in parts.method.stages
    ]
    spent = {(s.title or s.name).replace(" ", "_"): s.seconds for s in stages}
    labels, embeddings = splits["test"].labels, run.embed(splits["test"])
    order = metrics.order_score(embeddings, labels, ranks)
    kept: Shares = {}
    for readout in readouts.values():
        if readout.is_of_embeddings:
            kept = _kept_triplets(embeddings, labels, readout.values)
    results = RunResults(
        final=final,
        ranks=ranks,
        critical=list(run.config.data.critical),
        method=run.config.method.name,
        dataset=run.config.data.name,
        readouts=readouts,
        stages=stages,
        seconds=spent | {"total": sum(spent.values())},
        environment=environment.environment(),
        order_score=files.from_plain(OrderScore, order),
        expect=run.config.expect,
        kept_triplets=kept,
        earlier=earlier,
    )
    return Evaluation(results, predicted, embeddings)


def _scores(
    prediction: Prediction, labels: np.ndarray, ranks: list[str]
) -> SplitScores:
    plain = predictions.score(prediction, labels, ranks)
    return files.from_plain(SplitScores, plain)


def _intervals(scores: SplitScores, predicted: predictions.Predictions) -> Intervals:
    ends = intervals.of_scores(scores.confusion, list(scores.boundaries))
    if predicted.values is not None:
        errors = np.abs(predicted.values - predicted.true)
        ends["mae"] = intervals.of_mean(errors)
        for name in ("macro_mae", "max_mae"):
            ends.pop(name)  # of labels, which is not what is reported
    return files.from_plain(Intervals, ends)


def _readouts(run: TrainedRun, ranks: list[str]) -> dict[str, ReadoutValues]:
    """The method's values for people."""
    return {
        name: ReadoutValues(
            readout.per,
            metrics.named_values(readout.values, readout.per, ranks),
            dict(zip(metrics.boundary_names(ranks), readout.kinds, strict=False)),
            readout.limit,
            readout.is_of_embeddings,
        )
        for name, readout in run.method.readouts(run.model()).items()
    }


def _kept_triplets(
    embeddings: np.ndarray, labels: np.ndarray, margins: dict[str, float]
) -> Shares:
    """Share of the triplets across each boundary that keep the margin.

    None where a boundary has no triplets. Of a random sample, as files come by rank.
    """
    some = np.random.default_rng(0).permutation(len(labels))[:MOST_COUNTED]
    counts = jax.jit(losses.kept_triplets)(
        jnp.asarray(embeddings[some]),
        jnp.asarray(labels[some]),
        jnp.asarray(list(margins.values()), jnp.float32),
    )
    shares = train_step.share(counts.kept, counts.triplets)
    return dict(zip(margins, shares, strict=True))
