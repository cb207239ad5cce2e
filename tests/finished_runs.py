"""Folders of finished runs without the time that training takes.

`finished_run` writes what training and evaluation leave, from drawn probabilities:
metrics.json, predictions.csv, history.jsonl, config.json, dataset.json, thumbnails and
pictures. Results are computed by the package from those predictions.
"""

import dataclasses

import numpy as np
from drawn_probabilities import drawn
from PIL import Image

from cloc_jax.report import evaluation, view
from cloc_jax.runtime import files
from cloc_jax.runtime.run_folder import RunFolder
from cloc_jax.scoring import intervals, metrics, predictions
from cloc_jax.scoring.predictions import Predictions
from cloc_jax.scoring.results import (
    OrderScore,
    ReadoutValues,
    RunResults,
    StageResult,
    read_results,
)

RANKS = ("none", "mild", "clear", "severe")
PICTURES = ("confusion.png", "embedding.png", "similarity.png")
SPLITS = ("val", "test", "calibration")


def image_name(split, i):
    return f"{split}/{i:05d} & <i>.png"


def drawn_predictions(
    seed, count, num_ranks, split="test", *, is_coarse=False, item=image_name
):
    """Predictions that are too sure; with `is_coarse` many probabilities are equal."""
    p, true = drawn(seed, count=count, ranks=num_ranks)
    p = np.round(20 * p) / 20 if is_coarse else p**2
    p[p.sum(1) == 0] = 1
    p /= p.sum(1, keepdims=True)
    names = [item(split, i) for i in range(count)]
    return Predictions(names, true, p.argmax(1), p)


def split_scores(found, ranks, *, has_intervals=True):
    """The scores of predictions, as metrics.json has them."""
    scores = metrics.ordinal_metrics(
        found.true, found.predicted, ranks, found.probabilities
    )
    ends = intervals.of_scores(scores["confusion"], list(scores["boundaries"]))
    return scores | ({"intervals": ends} if has_intervals else {})


def run_results(splits, ranks, *, method="cloc", critical=(), margins=None, **changes):
    """Results of a run with these predictions; `changes` replace fields of them."""
    ranks, is_cloc = list(ranks), method == "cloc"
    if margins is None:
        margins = dict.fromkeys(metrics.boundary_names(ranks), 0.2) if is_cloc else {}
    kinds = dict.fromkeys(margins, "learned")
    readout = ReadoutValues("boundary", margins, kinds, 1.0)
    stages = [StageResult("joint", 9, 279, "train_accuracy", "it was enough", 61.2)]
    stages[0] = dataclasses.replace(stages[0], title="phase one" if is_cloc else "")
    if is_cloc:
        more = StageResult("refine", 6, 186, "patience", "no gain", 30.1, "phase two")
        stages.append(more)
    scored = {split: found for split, found in splits.items() if split != "calibration"}
    by_rank = {rank: 0.5 + 0.25 / (1 + i) for i, rank in enumerate(ranks)}
    plain = {
        "final": {split: split_scores(found, ranks) for split, found in scored.items()},
        "ranks": ranks,
        "critical": list(critical),
        "method": method,
        "dataset": "drawn",
        "readouts": {"margins": dataclasses.asdict(readout)} if margins else {},
        "stages": [dataclasses.asdict(stage) for stage in stages],
        "seconds": {"total": 95.0},
        "environment": {"jax": "0.10.2", "device": "cpu x1"},
        "order_score": dataclasses.asdict(OrderScore(0.8125, by_rank, 300)),
    }
    if is_cloc:
        plain["phase_one"] = {
            split: split_scores(found, ranks, has_intervals=False)
            for split, found in scored.items()
        }
    return dataclasses.replace(RunResults.from_json(plain), **changes)


def finished_run(
    path,
    *,
    ranks=RANKS,
    critical=("mild|clear", "clear|severe"),
    count=300,
    splits=SPLITS,
    is_coarse=False,
    has_probabilities=True,
    epochs=(2, 4),
    shown=40,
    item=image_name,
    pictures=PICTURES,
    config=None,
    **changes,
):
    """The folder of a finished run, with so many images of each split.

    With `is_coarse` probabilities are twentieths, so that many are equal. So many as
    `shown` have a thumbnail, `item` names one by its split and number, and `pictures`
    are what evaluation would draw. `changes` are of `run_results`.
    """
    folder, ranks = RunFolder(path), list(ranks)
    found = {
        split: drawn_predictions(
            seed, count, len(ranks), split, is_coarse=is_coarse, item=item
        )
        for seed, split in enumerate(splits)
    }
    if not has_probabilities:
        found = {s: one._replace(probabilities=None) for s, one in found.items()}
    results = run_results(found, ranks, critical=critical, **changes)
    folder.create(config or {"seed": 7}, {"ranks": ranks, "images": {}, "sha256": ""})
    table = folder.path / predictions.NAME
    predictions.write(table, found, ranks)
    digests = {predictions.NAME: files.sha256(table)}
    folder.write(folder.metrics, dataclasses.replace(results, files=digests).to_json())
    for row in history(results, epochs):
        folder.append_history(row)
    if shown:
        write_thumbnails(folder, found["test"], shown)
    for name in pictures:
        Image.new("RGB", (300, 150), "white").save(folder.path / name, dpi=(150, 150))
    return folder


def change_results(folder, **changes):
    """Writes the results of a run again with other fields, and returns them."""
    results = dataclasses.replace(read_results(folder), **changes)
    folder.write(folder.metrics, results.to_json())
    return results


def history(results, epochs):
    """A row for each epoch, in which the loss and the margins fall."""
    rows = []
    for stage, count in zip(("joint", "refine"), epochs, strict=True):
        for epoch in range(1, count + 1):
            done = len(rows) + 1
            margins = {name: m - done / 100 for name, m in results.margins.items()}
            row = {"stage": stage, "epoch": epoch, "seconds": 6.5}
            row["train"] = {"loss": 2 / done, "accuracy": 0.4 + done / 40}
            row["train_eval"] = {"accuracy": 0.5 + done / 20}
            row["val"] = {"accuracy": 0.5 + done / 40, "mae": 0.5, "qwk": None}
            row["readouts"] = {"margins": margins} if margins else {}
            rows.append(row)
    return rows


def write_thumbnails(folder, test, count):
    """Thumbnails of the most interesting images, which show noise."""
    places = [0, 1] if len(set(test.true.tolist())) > 2 else [0]
    order = evaluation.by_interest(test, places)
    noise = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 1), np.uint8)
    images = [noise[i % 8] for i in range(len(test.items))]
    path = folder.path / view.THUMBNAILS
    evaluation.write_thumbnails(path, images.__getitem__, test.items, order[:count])
