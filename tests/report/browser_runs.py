"""Run folders whose report has something to move: predictions and thumbnails."""

import json

import numpy as np
from drawn_probabilities import drawn

from cloc_jax.report import html_page, thumbnails
from cloc_jax.runtime import files
from cloc_jax.scoring import intervals, metrics, predictions
from cloc_jax.scoring.predictions import Predictions


def make_run(
    path,
    *,
    count=300,
    ranks=("none", "mild", "clear", "severe"),
    critical=("mild|clear", "clear|severe"),
    is_coarse=False,
    pictures=40,
    splits=("val", "test", "calibration"),
):
    """A finished run, and its report; with `is_coarse` many probabilities are equal."""
    path.mkdir(parents=True)
    ranks, found, final = list(ranks), {}, {}
    for seed, split in enumerate(splits):
        p, true = drawn(seed, count=count, ranks=len(ranks))
        p = np.round(20 * p) / 20 if is_coarse else p**2
        p[p.sum(1) == 0] = 1
        p /= p.sum(1, keepdims=True)
        names = [f"{split}/{i:05d} & <i>.png" for i in range(count)]
        found[split] = Predictions(names, true, p.argmax(1), p)
        scores = metrics.ordinal_metrics(true, p.argmax(1), ranks, p)
        boundaries = metrics.boundary_names(ranks)
        ends = intervals.of_scores(scores["confusion"], boundaries)
        if split != "calibration":
            final[split] = scores | {"intervals": ends}
    predictions.write(path / predictions.NAME, found, ranks)
    margins = {name: 0.2 for name in metrics.boundary_names(ranks)}
    readout = {"per": "boundary", "values": margins, "kinds": {}, "limit": 1.0}
    results = {
        "method": "cloc",
        "dataset": "drawn",
        "ranks": ranks,
        "critical": list(critical),
        "final": final,
        "readouts": {"margins": readout},
    }
    files.write_sealed(path / "metrics.json", results)
    files.write_sealed(path / "config.json", {})
    files.write_sealed(path / "dataset.json", {"ranks": ranks})
    rows = [
        {
            "stage": "joint" if epoch < 3 else "refine",
            "epoch": epoch,
            "train": {"loss": 2 / epoch},
            "train_eval": {"accuracy": 0.5 + epoch / 20},
            "val": {"accuracy": 0.5 + epoch / 40, "mae": 0.5},
            "readouts": {"margins": {k: v - epoch / 100 for k, v in margins.items()}},
        }
        for epoch in range(1, 7)
    ]
    text = "".join(json.dumps(files.sealed(row)) + "\n" for row in rows)
    (path / "history.jsonl").write_text(text)
    if pictures:
        test = found["test"]
        order = thumbnails.by_interest(
            test.true, test.predicted, test.probabilities, [0, 1]
        )
        noise = np.random.default_rng(0).integers(0, 256, (8, 32, 32, 1), np.uint8)
        wanted = [noise[i % 8] for i in range(count)]
        thumbnails.write(
            path / thumbnails.NAME, wanted.__getitem__, test.items, order[:pictures]
        )
    html_page.write_report(path)
    return path
