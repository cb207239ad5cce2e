"""A random crop from the configuration on: every job sees the window it should."""

import cv2
import numpy as np
from tiny_runs import tiny

from cloc_jax.data.images import NetworkInput
from cloc_jax.data.source import AugmentedOnce
from cloc_jax.training import assembly, encoder, kept_features
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
    settings = config()
    test = build_dataset(settings).splits["test"]
    path = tmp_path / "image.png"
    cv2.imwrite(str(path), test.original()[3])
    np.testing.assert_array_equal(network_input(settings).of(path), test[3])


def test_a_centre_crop_and_a_random_one_go_together(tmp_path):
    settings = config()
    settings.data.crop = (20, 30)
    settings.data.equalize = True
    test = build_dataset(settings).splits["test"]
    how = NetworkInput((27, 32), 1, crop=(20, 30), equalize=True)
    cut = how.prepare(test.original()[0])
    np.testing.assert_array_equal(test[0], cut[1:25, 2:30])


class NoTrunk(kept_features.Trunk):
    """Stands for frozen parts, where nothing is to be computed."""

    def __init__(self):
        pass

    def bytes_of_one(self, shape):
        return 1


def test_kept_views_of_a_frozen_encoder_are_random_windows(monkeypatch):
    settings = config(encoder__frozen=True, encoder__views=2)
    for name in settings.augment:
        settings.augment[name] = 0.0
    kept = []
    for fraction in (0.125, 0.25, 0.0):
        settings.augment.random_crop = fraction
        dataset = build_dataset(settings)
        calls = {}

        def derive(source, *_, name, calls=calls, **options):
            calls[name] = source, options
            return source

        monkeypatch.setattr(kept_features, "derive", derive)
        encoder.derive(settings, dataset, NoTrunk())
        source, options = calls["train"]
        kept.append(options["preparation"])
        seen = AugmentedOnce(source, 1, options["augment"])
        views = [seen[i] for i in range(20)]
        assert {view.shape for view in views} == {(24, 28, 1)}
        differ = [(source[i] != views[i]).any() for i in range(20)]
        assert any(differ) == bool(fraction)
    # The clean view is the centre, so another fraction makes another one.
    assert kept[0] != kept[1] != kept[2] != kept[0]
