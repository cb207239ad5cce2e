"""What evaluation draws and keeps of a run: its pictures and its thumbnails."""

import io

import numpy as np
import pytest
from finished_runs import drawn_predictions, run_results
from matplotlib.figure import Figure
from PIL import Image

from cloc_jax.report import evaluation, view
from cloc_jax.runtime.files import Damaged
from cloc_jax.scoring.predictions import Predictions


def test_the_maps_of_many_embeddings_have_some(tmp_path, monkeypatch):
    test = drawn_predictions(0, 60, 4)
    drawn = []
    monkeypatch.setattr(evaluation, "MOST_DRAWN", 50)
    monkeypatch.setattr(
        "cloc_jax.report.figures.runs.embedding_figure",
        lambda splits, ranks: drawn.append(splits) or Figure(),
    )
    vectors = np.arange(120.0).reshape(60, 2)
    results = run_results({"test": test}, "0123")
    evaluation.draw(tmp_path, results, {"test": (vectors, test.true)})
    points, labels = drawn[0]["test"]
    assert len(points) == 50
    places = (points[:, 0] / 2).astype(int)
    assert labels.tolist() == test.true[places].tolist()


def test_far_and_near_ones_come_first():
    p = np.array([[0.9, 0.1, 0], [0.1, 0.9, 0], [0.48, 0.52, 0], [0.8, 0, 0.2]])
    found = Predictions(list("abcd"), np.array([0, 0, 1, 2]), p.argmax(1), p)
    # The furthest mistake, the nearest to the boundary, the other mistake, the rest.
    assert evaluation.by_interest(found, [0]) == [3, 2, 1, 0]
    labels_only = found._replace(probabilities=None)
    assert evaluation.by_interest(labels_only, [0])[:2] == [3, 1]
    order = evaluation.by_interest(drawn_predictions(0, 200, 5), [1, 3])
    assert sorted(order) == list(range(200))  # each once


@pytest.mark.parametrize("shape", [(40, 60, 1), (40, 60, 3), (600, 400, 3), (30, 30)])
def test_thumbnails_are_small_jpegs_in_proportion(tmp_path, shape):
    pixels, name = np.full(shape, 200, np.uint8), "é & <b>.png"
    path = tmp_path / view.THUMBNAILS
    assert view.read_thumbnails(path) is None
    evaluation.write_thumbnails(path, [pixels].__getitem__, [name], [0])
    found = view.read_thumbnails(path)
    assert list(found) == [name]
    image = Image.open(io.BytesIO(found[name]))
    assert image.format == "JPEG" and max(image.size) <= evaluation.THUMBNAIL
    height, width = shape[:2]
    assert image.width / image.height == pytest.approx(width / height, 0.02)
    assert abs(np.asarray(image).mean() - 200) < 3


def test_thumbnails_that_do_not_fit_are_left_out(tmp_path, monkeypatch):
    images = [np.full((32, 32), 30 * i, np.uint8) for i in range(8)]
    names = [f"{i}.png" for i in range(8)]

    def kept(order):
        path = tmp_path / view.THUMBNAILS
        evaluation.write_thumbnails(path, images.__getitem__, names, order)
        return view.read_thumbnails(path)

    sizes = [len(data) for data in kept(range(8)).values()]
    monkeypatch.setattr(evaluation, "MOST_BYTES", sum(sizes[3:6]))
    assert list(kept([5, 3, 4, 0])) == ["5.png", "3.png", "4.png"]
    assert kept([]) == {}


@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_damage_is_named(tmp_path, damage):
    path = tmp_path / view.THUMBNAILS
    images = [np.full((32, 32), 30 * i, np.uint8) for i in range(3)]
    evaluation.write_thumbnails(path, images.__getitem__, ["a", "b", "c"], range(3))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[:200] if damage == "cut" else data)
    with pytest.raises(Damaged, match=f"{path} is damaged: .* evaluate"):
        view.read_thumbnails(path)
