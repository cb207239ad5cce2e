"""Thumbnails: the ones that are asked for, small enough, and safe to keep."""

import io

import numpy as np
import pytest
from drawn_probabilities import drawn
from PIL import Image

from cloc_jax.report import thumbnails
from cloc_jax.runtime.files import Damaged


def test_wrong_and_near_ones_come_first():
    p = np.array([[0.9, 0.1, 0], [0.1, 0.9, 0], [0.48, 0.52, 0], [0.8, 0, 0.2]])
    true, predicted = np.array([0, 0, 1, 2]), p.argmax(1)
    order = thumbnails.by_interest(true, predicted, p, [0])
    assert order == [1, 2, 3, 0]  # wrong and sure, near, far off, right
    assert thumbnails.by_interest(true, predicted, None, [0])[-1] in (0, 2)


@pytest.mark.parametrize("has_probabilities", [True, False])
def test_every_image_comes_once(has_probabilities):
    p, true = drawn(0, count=200)
    given = p if has_probabilities else None
    order = thumbnails.by_interest(true, p.argmax(1), given, [1, 3])
    assert sorted(order) == list(range(200))


@pytest.mark.parametrize("shape", [(40, 60, 1), (40, 60, 3), (600, 400, 3), (30, 30)])
def test_pictures_are_small_jpegs_in_proportion(tmp_path, shape):
    pixels = np.full(shape, 200, np.uint8)
    count = thumbnails.write(
        tmp_path / "t.npz", [pixels].__getitem__, ["é & <b>.png"], [0]
    )
    found = thumbnails.read(tmp_path / "t.npz")
    assert count == 1 and list(found) == ["é & <b>.png"]
    image = Image.open(io.BytesIO(found["é & <b>.png"]))
    assert image.format == "JPEG" and max(image.size) <= thumbnails.SIDE
    height, width = shape[:2]
    assert image.width / image.height == pytest.approx(width / height, 0.02)
    assert abs(np.asarray(image).mean() - 200) < 3


def test_those_that_do_not_fit_are_left_out(tmp_path, monkeypatch):
    images = [np.full((32, 32), 30 * i, np.uint8) for i in range(8)]
    names = [f"{i}.png" for i in range(8)]
    thumbnails.write(tmp_path / "t.npz", images.__getitem__, names, range(8))
    sizes = [len(data) for data in thumbnails.read(tmp_path / "t.npz").values()]
    monkeypatch.setattr(thumbnails, "MOST_BYTES", sum(sizes[3:6]))
    assert (
        thumbnails.write(tmp_path / "t.npz", images.__getitem__, names, [5, 3, 4, 0])
        == 3
    )
    assert list(thumbnails.read(tmp_path / "t.npz")) == ["5.png", "3.png", "4.png"]
    assert thumbnails.write(tmp_path / "t.npz", images.__getitem__, names, []) == 0
    assert thumbnails.read(tmp_path / "t.npz") == {}


@pytest.mark.parametrize("damage", ["cut", "bit"])
def test_damage_is_named(tmp_path, damage):
    path = tmp_path / thumbnails.NAME
    images = [np.full((32, 32), 30 * i, np.uint8) for i in range(3)]
    thumbnails.write(path, images.__getitem__, ["a", "b", "c"], range(3))
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 1
    path.write_bytes(data[:200] if damage == "cut" else data)
    with pytest.raises(Damaged, match=f"{path} is damaged: .* evaluate"):
        thumbnails.read(path)


def test_older_runs_have_none(tmp_path):
    assert thumbnails.read(tmp_path / "t.npz") is None
