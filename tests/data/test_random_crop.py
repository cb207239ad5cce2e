"""A random crop from the configuration on: every job sees the window it should."""

import cv2
import numpy as np
from tiny_runs import tiny

from cloc_jax.training import assembly
from cloc_jax.training.assembly import build_dataset, network_input


def config(**changes):
    found = tiny(**changes)
    found.data.size = (24, 28)
    found.augment.random_crop = 0.125
    return found


def test_every_job_sees_images_of_the_size_of_the_network():
    settings = config()
    parts = assembly.build(settings)
    test = parts.dataset.splits["test"]
    assert test.whole(0).shape == (27, 32, 1)
    assert test.original()[0].shape == (27, 32, 1)  # drawn at that size, not stretched
    np.testing.assert_array_equal(test[0], test.whole(0)[1:25, 2:30])
    (draw,) = assembly.draws(settings, parts.dataset, parts.method.stages[0])
    drawn = draw(0, np.random.default_rng(0))
    assert drawn.shape == test[0].shape == (24, 28, 1)


def test_predict_sees_what_evaluation_sees(tmp_path):
    settings = config(data__crop=(20, 30), data__equalize=True)
    test = build_dataset(settings).splits["test"]
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), test.original()[3])
    np.testing.assert_array_equal(network_input(settings).of(path), test[3])
