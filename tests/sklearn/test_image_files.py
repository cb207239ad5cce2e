"""ImageOrdinalClassifier: a run from a list of images, and what it then says."""

import pickle

import cv2
import numpy as np
import pytest

from cloc_jax.data import drawn_knees
from cloc_jax.sklearn import ImageOrdinalClassifier

KNEES = drawn_knees.Knees(400, start=0, seed=0, size=(32, 32))
# Twelve of each rank.
ITEMS = [i for rank in range(5) for i in np.flatnonzero(KNEES.labels == rank)[:12]]
ARRAYS = [KNEES[i] for i in ITEMS]
ORDER = ["none", "doubtful", "mild", "moderate", "severe"]
GRADES = [ORDER[label] for label in KNEES.labels[ITEMS]]
SMALL = {
    "size": (32, 32),
    "channels": 1,
    "settings": {
        "encoder.widths": (2, 4, 4, 4),
        "head.hidden": 8,
        "train.batch_size": 8,
        "train.max_epochs": 1,
    },
    "random_state": 0,
}


def test_mistakes_are_named(tmp_path):
    (tmp_path / "notes.txt").touch()
    model = ImageOrdinalClassifier(ORDER, run=tmp_path, **SMALL)
    with pytest.raises(FileExistsError, match="already holds files"):
        model.fit(ARRAYS, GRADES)
    with pytest.raises(ValueError, match="59 images, but 60 labels"):
        model.fit(ARRAYS[1:], GRADES)
    with pytest.raises(ValueError, match="list of paths"):
        model.fit("image.png", ["none"])
    with pytest.raises(ValueError, match="order the classes have is not known"):
        ImageOrdinalClassifier(None, **SMALL).fit(ARRAYS, GRADES)
    with pytest.raises(ValueError, match="severe"):
        ImageOrdinalClassifier(ORDER[:4], **SMALL).fit(ARRAYS, GRADES)


@pytest.mark.slow
@pytest.mark.parametrize("frozen", [False, True])
def test_trains_a_run_that_the_command_line_knows(tmp_path, frozen):
    run = None if frozen else tmp_path / "run"
    model = ImageOrdinalClassifier(ORDER, run=run, frozen=frozen, **SMALL)
    paths = []
    for i, image in enumerate(ARRAYS):
        paths.append(tmp_path / f"{i:02}.png")
        cv2.imwrite(str(paths[-1]), image)
    model.fit(paths, GRADES)
    chances = model.predict_proba(ARRAYS)
    assert chances.shape == (60, 5) and (model.classes_ == ORDER).all()
    assert (model.predict(ARRAYS) == model.predict(paths)).all()
    assert (model.classes_[chances.argmax(1)] == model.predict(paths)).all()
    again = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(again.predict_proba(ARRAYS), chances)
    if not frozen:
        assert (run / "report.html").exists() and (run / "metrics.json").exists()
