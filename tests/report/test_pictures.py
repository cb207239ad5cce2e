"""What is drawn of a run: which images, which bins."""

import numpy as np
import pytest
from PIL import Image

from cloc_jax.data.source import Source
from cloc_jax.report import pictures
from cloc_jax.scoring import calibration, metrics, predictions

RANKS = list("0123")


def made(count=200, seed=0):
    """Predictions that are right more often the surer they are."""
    rng = np.random.default_rng(seed)
    true = rng.integers(0, 4, count)
    logits = -np.abs(np.arange(4) - true[:, None]) + rng.normal(size=(count, 4))
    probabilities = np.exp(logits) / np.exp(logits).sum(axis=1, keepdims=True)
    items = [str(i) for i in range(count)]
    predicted = probabilities.argmax(axis=1)
    return predictions.Predictions(items, true, predicted, probabilities)


@pytest.mark.parametrize("h", [0, 1, 2])
def test_nearest_images_are_the_most_doubtful_of_each_side(h):
    found = made()
    above = found.probabilities[:, h + 1 :].sum(axis=1)
    chosen = pictures.nearest(above, found.true, found.predicted, h, count=5)
    for side, is_right in (("right", True), ("wrong", False)):
        own = [
            i
            for i in range(len(above))
            if ((found.predicted[i] > h) == (found.true[i] > h)) == is_right
        ]
        best = sorted(own, key=lambda i: abs(above[i] - 0.5))[:5]
        assert chosen[side] == best and len(best) == 5
    assert not set(chosen["right"]) & set(chosen["wrong"])


def test_nearest_images_may_be_fewer():
    true = np.array([0, 0, 1])
    above = np.array([0.1, 0.4, 0.9])
    chosen = pictures.nearest(above, true, (above > 0.5).astype(int), 0)
    assert chosen == {"right": [1, 0, 2], "wrong": []}


def test_bins_are_those_of_the_calibration():
    found = made(107)
    groups = calibration.reliability(found.probabilities, found.true, 10)
    bins = pictures._bins(groups)
    assert bins.images.sum() == 107 and len(bins.images) == 10
    top = found.probabilities.max(axis=1)
    assert bins.confidence @ bins.images == pytest.approx(top.sum())
    right = (found.predicted == found.true).sum()
    assert bins.accuracy @ bins.images == pytest.approx(right)
    assert (bins.low <= bins.accuracy).all() and (bins.accuracy <= bins.high).all()


class Images(Source):
    """Raw images of several shapes."""

    def __init__(self, labels):
        self.ids, self.labels = [str(i) for i in range(len(labels))], labels
        self.paths = None

    def __getitem__(self, index):
        return np.full((20 + index % 3, 30, 1), index % 256, np.uint8)


@pytest.mark.parametrize("has_probabilities", [True, False])
def test_all_pictures_of_a_run(tmp_path, monkeypatch, has_probabilities):
    found = made(60)
    scores = metrics.ordinal_metrics(found.true, found.predicted, RANKS)
    margins = dict.fromkeys(metrics.boundary_names(RANKS), 0.3)
    places = dict.fromkeys(RANKS, 1.0)
    results = {
        "ranks": RANKS,
        "critical": ["1|2", "2|3"],
        "final": {"test": scores},
        "readouts": {
            "margins": {
                "per": "boundary",
                "values": margins,
                "kinds": dict.fromkeys(margins, "learned"),
            },
            "places": {"per": "rank", "values": places, "kinds": {}},
        },
    }
    row = {
        "stage": "joint",
        "epoch": 1,
        "train": {"loss": 1.0},
        "readouts": {"margins": margins, "places": places},
    }
    monkeypatch.setattr(
        "cloc_jax.report.figures.embeddings._umap", lambda _, start: start
    )
    vectors = np.random.default_rng(0).normal(size=(60, 8)).astype(np.float32)
    pictures.draw(
        tmp_path,
        results,
        [row],
        embeddings={
            "train": (vectors[:40], found.true[:40]),
            "test": (vectors, found.true),
        },
        found=found if has_probabilities else found._replace(probabilities=None),
        images=Images(found.true),
    )
    expected = {"confusion", "curves", "margins", "places", "embedding", "similarity"}
    expected |= {"calibration"} if has_probabilities else set()
    names = {f"{name}.png" for name in expected}
    names |= {"nearest_1.jpg", "nearest_2.jpg"} if has_probabilities else set()
    assert {path.name for path in tmp_path.iterdir()} == names
    for name in names:
        with Image.open(tmp_path / name) as image:
            assert min(image.size) > 300, name
