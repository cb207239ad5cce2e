"""The picture of what is trained on: the right images, before anything is trained."""

import numpy as np
import pytest
from launching import TINY
from PIL import Image
from tiny_runs import tiny

from cloc_jax.cli import main, show
from cloc_jax.data.source import Source
from cloc_jax.report.figures import style
from cloc_jax.training import encoder
from cloc_jax.training.assembly import build_dataset


@pytest.fixture
def drawn(monkeypatch):
    """What the sheets were made of, in place of the sheets."""
    made = []

    def sheet(rows, colours, **texts):
        made.append((rows, list(colours), texts))

    monkeypatch.setattr(show, "sheet", sheet)
    monkeypatch.setattr(style, "save", lambda _, path: path.write_text("a picture"))
    return made


def unaugmented(config):
    for name in config.augment:
        config.augment[name] = 0.0
    return config


def test_rows_hold_the_image_and_views_of_it(drawn, tmp_path):
    config = tiny()
    config.augment.random_crop = 0.25
    for config.seed in (1, 0, 0):
        show.show(config, tmp_path)
    marks = [
        [p.image.tobytes() for row in rows for p in row.pictures]
        for rows, _, _ in drawn
    ]
    assert marks[0] != marks[1] == marks[2]
    rows, ranks, texts = drawn[-1]
    train = build_dataset(config).splits["train"]
    by_id = {item: i for i, item in enumerate(train.ids)}
    assert [row.rank for row in rows] == sorted(row.rank for row in rows)
    assert set(row.rank for row in rows) == set(ranks)
    for row in rows:
        first, *views = row.pictures
        item = by_id[first.caption]
        assert ranks[train.labels[item]] == row.rank
        np.testing.assert_array_equal(first.image, train[item])
        assert len(views) == show.COLUMNS - 1
        assert len({view.image.tobytes() for view in views}) == len(views)
        assert {view.image.shape for view in views} == {train[item].shape}
    captions = [row.pictures[0].caption for row in rows]
    assert len(set(captions)) == len(captions)
    assert "rotate_degrees 8" in texts["note"] and "random_crop" in texts["note"]
    assert texts["headings"] == ("as evaluated", "as training may see it")


def test_without_augmentation_there_are_more_images(drawn, tmp_path):
    show.show(unaugmented(tiny()), tmp_path)
    ((rows, ranks, texts),) = drawn
    assert [row.rank for row in rows] == list(ranks)
    for row in rows:
        captions = [picture.caption for picture in row.pictures]
        assert all(captions) and len(set(captions)) == len(captions)
    assert texts["note"] == "without augmentation" and not any(texts["headings"])


def test_ranks_that_are_too_many_or_absent(drawn, tmp_path, monkeypatch, capsys):
    class Blank(Source):
        ids = [f"item {i}" for i in range(200)]
        labels = np.arange(200, dtype=np.int32) // 2
        labels[:2] = 1  # rank 0 has none
        paths = None

        def __getitem__(self, index):
            return np.zeros((16, 16, 1), np.uint8)

    config = tiny()
    real = build_dataset(config)
    ages = real._replace(
        ranks=tuple(str(age) for age in range(100)),
        splits=dict.fromkeys(real.splits, Blank()),
    )
    monkeypatch.setattr(show, "build_dataset", lambda config: ages)
    show.show(config, tmp_path)
    rows = drawn[0][0]
    assert rows[0].rank == "1" and 10 < len(rows) <= show.MOST_ROWS
    assert f"the picture has {len(rows)} of 100 ranks" in capsys.readouterr().out


def test_never_over_another_picture(drawn, tmp_path):
    paths = [show.show(unaugmented(tiny()), tmp_path / "new") for _ in range(3)]
    assert " ".join(p.name for p in paths) == "images.png images-2.png images-3.png"


def test_frozen_encoders_see_only_the_views_that_are_kept(drawn, tmp_path):
    for views, note in ((1, "without augmentation"), (3, "rotate_degrees 8")):
        show.show(tiny(encoder__frozen=True, encoder__views=views), tmp_path)
        assert note in drawn[-1][2]["note"]


def test_no_weights_are_needed(drawn, tmp_path, monkeypatch):
    def refuse(*_, **__):
        raise AssertionError("an encoder was built")

    monkeypatch.setattr(encoder, "weights_of", refuse)
    monkeypatch.setattr(encoder, "build", refuse)
    config = tiny(encoder__name="resnet50", encoder__weights="nobody/has.this")
    show.show(config, tmp_path)
    assert drawn


def test_from_the_command_line(tmp_path, monkeypatch, capsys):
    monkeypatch.chdir(tmp_path)
    assert main.main(["show", *TINY]) == 0
    said = capsys.readouterr()
    assert said.err == "" and "drawn images of knees" in said.out
    assert "train  48 images" in said.out
    assert "runs/quickstart-show/images.png" in said.out
    with Image.open(tmp_path / "runs/quickstart-show/images.png") as image:
        assert image.format == "PNG" and min(image.size) > 800
    assert list(tmp_path.iterdir()) == [tmp_path / "runs"]
