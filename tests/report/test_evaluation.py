"""What evaluation draws and keeps of a run, and what it leaves when a run fails."""

import numpy as np
from finished_runs import PICTURES, drawn_predictions, run_results
from PIL import Image

from cloc_jax.report import evaluation


def test_all_pictures_of_a_run(tmp_path, monkeypatch):
    monkeypatch.setattr(
        "cloc_jax.report.figures.embeddings._umap", lambda _, start: start
    )
    test = drawn_predictions(0, 60, 4)
    results = run_results({"test": test}, "0123", critical=["1|2", "2|3"])
    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    splits = {"train": (vectors[:40], test.true[:40]), "test": (vectors, test.true)}
    evaluation.draw(tmp_path, results, splits)
    assert {path.name for path in tmp_path.iterdir()} == set(PICTURES)
    for name in PICTURES:
        with Image.open(tmp_path / name) as image:
            assert min(image.size) > 300, name
