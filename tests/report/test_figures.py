"""Pictures: what they show, and that nothing is cut off."""

import sys
import warnings

import numpy as np
import pytest
from drawn_figures import assert_nothing_cut_off, overlapping, words
from PIL import Image

from cloc_jax.report.figures import contact_sheet, runs, style
from cloc_jax.scoring import metrics

AGES = [
    "(0, 2) years",
    "(4, 6) years",
    "(8, 12) years",
    "(15, 20) years",
    "(25, 32) years",
    "(38, 43) years",
    "(48, 53) years",
    "(60, 100) years",
]
RANKS = {
    "two": ["healthy", "sick"],
    "five": list("01234"),
    "ages": AGES,
    "eighty": [str(age) for age in range(80)],
    "very long": [f"grade {i} of a scale that has a long name" for i in range(6)],
    "dollars": ["$5 & <less>", "$10", "10^$"],  # mathtext, if it were parsed
}


@pytest.fixture(autouse=True)
def warnings_are_errors():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


def counts(ranks):
    rng = np.random.default_rng(1)
    size = len(ranks)
    near = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= 1
    return rng.integers(1, 200, (size, size)) * near


@pytest.mark.parametrize("name", RANKS)
def test_confusion_fits(name):
    ranks = RANKS[name]
    critical = [metrics.boundary_names(ranks)[0]]
    figure = runs.confusion_figure(counts(ranks), ranks, critical)
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert not overlapping(axes.get_yticklabels())
    if len(ranks) > 20:
        assert len(axes.get_xticklabels()) <= 20 and not axes.texts


def test_confusion_shows_counts_and_shares_of_the_true_rank():
    figure = runs.confusion_figure([[3, 1, 0], [0, 8, 0], [0, 0, 0]], list("abc"))
    assert {"3\n75.0%", "1\n25.0%", "8\n100%"} <= set(words(figure))
    axes = figure.axes[0]
    np.testing.assert_allclose(
        axes.images[0].get_array(),
        np.zeros((3, 3)) + [[0.75, 0.25, 0], [0, 1, 0], [0, 0, 0]],
    )
    # True down: the upper left cell is (true a, predicted a).
    assert axes.yaxis_inverted() and axes.get_ylabel() == "True rank"
    cell = {text.get_text(): text.get_position() for text in axes.texts}
    assert cell["1\n25.0%"] == (1, 0)


def test_confusion_marks_critical_boundaries():
    ranks = list("01234")
    plain = runs.confusion_figure(counts(ranks), ranks)
    marked = runs.confusion_figure(counts(ranks), ranks, ["1|2"])
    lines = [
        line for line in marked.axes[0].lines if line.get_color() == style.VERMILION
    ]
    assert len(lines) == 2 and len(marked.axes[0].lines) == len(plain.axes[0].lines) + 2
    assert list(lines[0].get_ydata()) == [1.5, 1.5]
    assert list(lines[1].get_xdata()) == [1.5, 1.5]
    assert "1|2" in marked.axes[0].get_title()


@pytest.mark.parametrize("name", [*RANKS, "twenty"])
def test_similarity_fits(name):
    ranks = RANKS.get(name) or [f"{5 * i} to {5 * i + 4} years" for i in range(20)]
    count = len(ranks)
    cosines = np.cos(np.subtract.outer(np.arange(count), np.arange(count)) / 3.0)
    figure = runs.similarity_figure(cosines, ranks)
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert not overlapping(axes.get_yticklabels())
    assert len(axes.texts) == (count**2 if count <= 20 else 0)
    assert not overlapping(axes.texts)


def test_similarity_of_alike_or_unknown_ranks():
    for cosines in (np.full((2, 2), 0.99), np.full((2, 2), np.nan)):
        figure = runs.similarity_figure(cosines, "ab")
        low, high = figure.axes[0].images[0].get_clim()
        assert high - low > 0.05  # no scale of rounding errors


def ordered_embeddings(count, num_ranks):
    rng = np.random.default_rng(0)
    labels = np.sort(np.arange(count) % num_ranks)
    angle = 1.5 * labels / num_ranks
    directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    noise = rng.normal(0, 0.05, (count, 8))
    return np.pad(directions, ((0, 0), (0, 6))) + noise, labels


@pytest.mark.slow
def test_embedding_by_umap_repeats(tmp_path):
    embeddings, labels = ordered_embeddings(200, len(AGES))
    splits = {
        "val": (embeddings[:80], labels[:80]),
        "test": (embeddings[80:], labels[80:]),
    }
    first, second = (runs.embedding_figure(splits, AGES) for _ in range(2))
    assert_nothing_cut_off(first)
    assert "Embeddings by UMAP and PCA" in words(first)
    assert {"val: 80 images", "test: 120 images", *AGES} <= set(words(first))
    for axes, again in zip(first.axes[:4], second.axes[:4], strict=True):
        path = axes.lines[0].get_xydata()  # centroids in order
        np.testing.assert_array_equal(path, again.lines[0].get_xydata())
    assert path.shape[1] == 2
    assert "tensorflow" not in sys.modules

    style.save(first, tmp_path / "map.png")
    with Image.open(tmp_path / "map.png") as image:
        assert image.format == "PNG"


COLLAPSED = np.ones((200, 8)), np.arange(200) % 5


@pytest.mark.parametrize("count", [1, 2, 99, 100, 200])
def test_few_or_collapsed_embeddings_are_shown_by_pca(count, monkeypatch):
    monkeypatch.setitem(sys.modules, "umap", None)  # it cannot be imported
    splits = {"test": COLLAPSED if count == 200 else ordered_embeddings(count, 5)}
    figure = runs.embedding_figure(splits, list("01234"))
    assert_nothing_cut_off(figure)
    why = "for UMAP, install umap-learn" if count == 100 else "too few or too alike"
    assert any(f"Embeddings by PCA ({why}" in text for text in words(figure))
    assert len(figure.axes) == 2  # one map and the bar


@pytest.fixture
def mapped(monkeypatch):
    """Embeddings that were mapped, in place of UMAP, which takes seconds."""
    seen = []

    def fake_umap(embeddings, start):
        seen.append(embeddings)
        return start + 100

    monkeypatch.setattr(runs, "_umap", fake_umap)
    return seen


@pytest.mark.parametrize("name", RANKS)
def test_embedding_maps_splits_together_and_shows_them_apart(mapped, name):
    ranks = RANKS[name]
    embeddings, labels = ordered_embeddings(200, len(ranks))
    splits = np.array(["train", "test"])[np.arange(200) // 3 % 2]
    by_name = {
        name: (embeddings[splits == name], labels[splits == name])
        for name in ("train", "test")
    }
    figure = runs.embedding_figure(by_name, ranks)
    assert_nothing_cut_off(figure)
    assert len(mapped) == 1 and len(mapped[0]) == 200
    grid = figure.axes[:4]  # UMAP above PCA, train left of test
    # Training images come first in what is mapped.
    order = np.argsort(splits == "test", kind="stable")
    points, _ = runs._pca(np.asarray(embeddings, np.float32)[order])
    for i, axes in enumerate(grid):
        own = splits[order] == ("train", "test")[i % 2]
        drawn = axes.collections[0].get_offsets()
        expected = points[own] + (100 if i < 2 else 0)
        np.testing.assert_allclose(drawn, expected, atol=1e-5)
        of = labels[order][own]
        shades = style.rank_colours(len(ranks))[of, :3]
        colours = axes.collections[0].get_facecolors()[:, :3]
        np.testing.assert_allclose(colours, shades)
        lowest = expected[of == of.min()].mean(axis=0)
        np.testing.assert_allclose(axes.lines[0].get_xydata()[0], lowest, atol=1e-4)
    assert grid[0].get_xlim() == grid[1].get_xlim() != grid[2].get_xlim()
    assert grid[0].get_ylabel() == "UMAP" and grid[2].get_ylabel().startswith("PCA (")


def pictures(ranks, shape=(20, 20, 1), columns=4, rows=2, captions=1):
    rng = np.random.default_rng(0)
    made = []
    for rank in ranks:
        for row in range(rows):
            name = f"train/{rank}/a rather long name of a\nfile {row}.png"
            images = rng.integers(0, 256, (columns, *shape), dtype=np.uint8)
            some = [
                contact_sheet.Picture(image, name if i < captions else "")
                for i, image in enumerate(images)
            ]
            made.append(contact_sheet.Row(rank, some))
    return made


def test_long_names_keep_their_ends():
    assert style.short("a very long name of a rank", 11) == "a ver… rank"


def colours(ranks):
    return dict(zip(ranks, style.rank_colours(len(ranks)), strict=True))


def assert_apart(axes):
    boxes = [image.get_window_extent() for image in axes.images]
    boxes += [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


@pytest.mark.parametrize(
    ("name", "shape", "captions"),
    [
        ("two", (20, 20, 1), 3),
        ("very long", (9, 60, 3), 1),
        ("ages", (12, 20, 1), 3),
        ("dollars", (90, 10, 1), 1),
    ],
)
def test_sheet_fits(name, shape, captions):
    ranks = RANKS[name]
    figure = contact_sheet.sheet(
        pictures(ranks, shape, columns=3, captions=captions),
        colours(ranks),
        title="somewhere: training images",
        note="one 0.5, " * 40,
        headings=("as it is", "as it may be"),
    )
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert_apart(axes)
    said = [text.get_text() for text in axes.texts]
    assert said.count("file 0.png") == captions * len(ranks)
    assert sum(said.count(style.short(rank, 18)) for rank in ranks) == 2 * len(ranks)
    assert len(axes.images) == 6 * len(ranks)
    if 1 / 4 < shape[1] / shape[0] < 4:  # beyond, pictures are squeezed
        box = axes.images[0].get_window_extent()
        assert box.width / box.height == pytest.approx(shape[1] / shape[0], rel=0.02)


def test_sheet_shows_the_pictures_in_their_places():
    for channels in (1, 3):
        rows = pictures(["b", "a"], (8, 8, channels), rows=1)
        axes = contact_sheet.sheet(rows, colours("ab"), title="t").axes[0]
        expected = [picture.image for row in rows for picture in row.pictures]
        for image, drawn in zip(expected, axes.images, strict=True):
            shown = np.broadcast_to(image, (8, 8, 3))
            np.testing.assert_array_equal(shown, drawn.get_array())
    left, right, bottom, top = np.array([i.get_extent() for i in axes.images]).T
    assert (np.diff(left.reshape(2, 4), axis=1) > 0).all()
    assert top[0] < top[4] and (bottom > top).all()  # from the top down
