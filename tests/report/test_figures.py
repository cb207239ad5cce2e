"""Pictures: what they show, and that nothing is cut off."""

import concurrent.futures
import sys
import types
import warnings

import matplotlib as mpl
import numpy as np
import pytest
from drawn_figures import assert_nothing_cut_off, overlapping, words
from PIL import Image

from cloc_jax.report import figures
from cloc_jax.report.figures import embeddings as maps
from cloc_jax.report.figures import style
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


def history(ranks, epochs=(6, 4), fixed=()):
    rng = np.random.default_rng(0)
    names = metrics.boundary_names(ranks)
    values = {name: float(rng.uniform(0.5, 1)) for name in names}
    rows = []
    for stage, count in zip(("joint", "refine"), epochs, strict=True):
        for epoch in range(1, count + 1):
            if stage == "joint":
                for name in names:
                    values[name] *= 1.0 if name in fixed else 0.9
            rows.append(
                {
                    "stage": stage,
                    "epoch": epoch,
                    "train": {"loss": 1 / (1 + len(rows)), "accuracy": 0.5},
                    "train_eval": {"accuracy": 0.5 + 0.04 * len(rows)},
                    "val": {"accuracy": 0.4 + 0.03 * len(rows), "qwk": None},
                    "readouts": {"margins": dict(values)},
                }
            )
    return rows


def counts(ranks):
    rng = np.random.default_rng(1)
    size = len(ranks)
    near = np.abs(np.subtract.outer(np.arange(size), np.arange(size))) <= 1
    return rng.integers(1, 200, (size, size)) * near


@pytest.mark.parametrize("name", RANKS)
def test_confusion_fits(name):
    ranks = RANKS[name]
    critical = [metrics.boundary_names(ranks)[0]]
    figure = figures.confusion_figure(counts(ranks), ranks, critical)
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert not overlapping(axes.get_yticklabels())
    if len(ranks) > 20:
        assert len(axes.get_xticklabels()) <= 20 and not axes.texts


def test_confusion_shows_counts_and_shares_of_the_true_rank():
    figure = figures.confusion_figure([[3, 1], [0, 8]], ["a", "b"])
    assert {"3\n75.0%", "1\n25.0%", "8\n100%"} <= set(words(figure))
    axes = figure.axes[0]
    np.testing.assert_allclose(axes.images[0].get_array(), [[0.75, 0.25], [0, 1]])
    # True down: the upper left cell is (true a, predicted a).
    assert axes.yaxis_inverted() and axes.get_ylabel() == "True rank"
    cell = {text.get_text(): text.get_position() for text in axes.texts}
    assert cell["1\n25.0%"] == (1, 0)


def test_confusion_marks_critical_boundaries():
    ranks = list("01234")
    plain = figures.confusion_figure(counts(ranks), ranks)
    marked = figures.confusion_figure(counts(ranks), ranks, ["1|2"])
    lines = [
        line for line in marked.axes[0].lines if line.get_color() == style.VERMILION
    ]
    assert len(lines) == 2 and len(marked.axes[0].lines) == len(plain.axes[0].lines) + 2
    assert list(lines[0].get_ydata()) == [1.5, 1.5]
    assert list(lines[1].get_xdata()) == [1.5, 1.5]
    assert "1|2" in marked.axes[0].get_title()
    with pytest.raises(ValueError, match="no boundary is called '1-2'"):
        figures.confusion_figure(counts(ranks), ranks, ["1-2"])


def test_confusion_of_an_empty_row_and_a_wrong_shape():
    figure = figures.confusion_figure([[0, 0], [1, 1]], "ab")
    assert np.all(np.isfinite(figure.axes[0].images[0].get_array()))
    with pytest.raises(ValueError, match=r"\(2, 2\); 3 ranks"):
        figures.confusion_figure([[1, 0], [0, 1]], "abc")


@pytest.mark.parametrize("name", [*RANKS, "twenty"])
def test_similarity_fits(name):
    ranks = RANKS.get(name) or [f"{5 * i} to {5 * i + 4} years" for i in range(20)]
    count = len(ranks)
    cosines = np.cos(np.subtract.outer(np.arange(count), np.arange(count)) / 3.0)
    figure = figures.similarity_figure(cosines, ranks)
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert not overlapping(axes.get_yticklabels())
    assert len(axes.texts) == (count**2 if count <= 20 else 0)
    assert not overlapping(axes.texts)


def test_similarity_writes_the_cosines_in_a_legible_colour():
    cosines = [[0.9, -0.001, np.nan], [-0.4, 0.7, 0.1], [np.nan, 0.1, np.nan]]
    figure = figures.similarity_figure(cosines, "abc")
    axes = figure.axes[0]
    cells = {text.get_position(): text for text in axes.texts}
    assert cells[0, 0].get_text() == "0.90" and cells[1, 0].get_text() == "0.00"
    assert cells[0, 1].get_text() == "−0.40" and (2, 2) not in cells
    image = axes.images[0]
    for (column, row), text in cells.items():
        colour = np.array(image.to_rgba(cosines[row][column])[:3])
        light = (colour**2.2) @ [0.2126, 0.7152, 0.0722]
        ink = np.array(mpl.colors.to_rgb(text.get_color()))
        own = (ink**2.2) @ [0.2126, 0.7152, 0.0722]
        contrast = (max(light, own) + 0.05) / (min(light, own) + 0.05)
        assert contrast > 3, (row, column, contrast)
    with pytest.raises(ValueError, match=r"\(1, 1\); 2 ranks"):
        figures.similarity_figure([[1]], "ab")


def test_similarity_of_alike_or_unknown_ranks():
    for cosines in (np.full((2, 2), 0.99), np.full((2, 2), np.nan)):
        figure = figures.similarity_figure(cosines, "ab")
        low, high = figure.axes[0].images[0].get_clim()
        assert high - low > 0.05  # no scale of rounding errors


def panel(title="Above 1|2", count=10):
    confidence = np.linspace(0.05, 0.95, count)
    accuracy = confidence**2
    ends = np.clip([accuracy - 0.1, accuracy + 0.1], 0, 1)
    images = np.arange(20, 20 + count)
    bins = figures.Bins(confidence, accuracy, *ends, images)
    return figures.Panel(title, "P(above)", "it was above", bins)


@pytest.mark.parametrize("count", [1, 2, 3, 4])
def test_calibration_fits_and_shows_every_bin(tmp_path, count):
    panels = [panel(f"Above grade $1 |{i}", count=11 - i) for i in range(count)]
    figure = figures.calibration_figure(panels)
    assert_nothing_cut_off(figure)
    assert len(figure.axes) == count
    for axes, shown in zip(figure.axes, panels, strict=True):
        assert axes.get_title() == shown.title
        assert (axes.get_xlabel(), axes.get_ylabel()) == ("P(above)", "it was above")
        diagonal, line = axes.lines[:2]
        np.testing.assert_array_equal(diagonal.get_xydata(), [[0, 0], [1, 1]])
        np.testing.assert_allclose(
            line.get_xydata(), np.stack(shown.bins[:2], axis=1), atol=1e-12
        )
        bars = [path.vertices[:, 1] for path in axes.collections[0].get_paths()]
        np.testing.assert_allclose(
            bars, np.stack([shown.bins.low, shown.bins.high], axis=1), atol=1e-12
        )
    assert "20 to 30 images per point" in words(figure)
    figures.calibration(tmp_path / "calibration.png", panels)
    with Image.open(tmp_path / "calibration.png") as image:
        assert image.format == "PNG"


def test_calibration_needs_a_panel():
    with pytest.raises(ValueError, match="at least one"):
        figures.calibration_figure([])


@pytest.mark.parametrize("name", RANKS)
def test_margins_fit(name):
    ranks = RANKS[name]
    figure = figures.readout_figure(history(ranks), "margins", ranks)
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    lines = [line for line in axes.lines if line.get_gid() != "stage change"]
    assert [line.get_label() for line in lines] == metrics.boundary_names(ranks)
    ends = [text for text in axes.texts if "|" in text.get_text()]
    assert len(ends) == (len(ranks) - 1 if len(ranks) < 20 else 0)
    assert not overlapping(ends)


@pytest.mark.parametrize("are_kinds_given", [False, True])
def test_margins_dash_fixed_ones_and_mark_the_change(are_kinds_given):
    ranks = list("0123")
    rows = history(ranks, fixed=["1|2"])
    kinds = {"0|1": "learned", "1|2": "fixed", "2|3": "floored"}
    figure = figures.readout_figure(
        rows, "margins", ranks, kinds=kinds if are_kinds_given else None
    )
    axes = figure.axes[0]
    styles = {line.get_label(): line.get_linestyle() for line in axes.lines}
    assert styles["1|2"] == "--" and styles["0|1"] == styles["2|3"] == "-"
    changes = [line for line in axes.lines if line.get_gid() == "stage change"]
    assert [line.get_xdata()[0] for line in changes] == [6.5]
    course = next(line for line in axes.lines if line.get_label() == "0|1")
    np.testing.assert_allclose(course.get_xdata(), np.arange(1, 11))
    values = [row["readouts"]["margins"] for row in rows]
    np.testing.assert_allclose(course.get_ydata(), [v["0|1"] for v in values])
    found = " / ".join(words(figure))
    assert "joint" in found and "refine" in found
    assert f"0|1  {values[-1]['0|1']:.3f}" in found
    assert f"1|2  {values[-1]['1|2']:.3f} fixed" in found


def test_a_readout_per_rank_may_be_negative():
    ranks = ["none", "mild", "severe"]
    rows = [
        {
            "stage": "fit",
            "epoch": epoch,
            "readouts": {"places": {"none": -0.5, "mild": 0.1 * epoch, "severe": 2}},
        }
        for epoch in (1, 2, 3)
    ]
    figure = figures.readout_figure(rows, "places", ranks, per="rank")
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert [line.get_label() for line in axes.lines] == ranks
    np.testing.assert_allclose(axes.lines[1].get_ydata(), [0.1, 0.2, 0.3])
    assert axes.get_ylim()[0] <= -0.5
    found = words(figure)
    assert "Place of each rank" in found and "mild  0.300" in found


def test_a_readout_has_to_be_in_the_history():
    rows = [{"stage": "train", "epoch": 1, "readouts": {}}]
    with pytest.raises(ValueError, match="no row of the history has margins"):
        figures.readout_figure(rows, "margins", "ab")


def test_spread_keeps_apart_and_moves_little():
    placed = style.spread([0.5, 0.1, 0.5, 0.52], 0.1, 0.0, 1.0)
    assert np.all(np.diff(sorted(placed)) >= 0.1 - 1e-12)
    assert placed[1] == pytest.approx(0.1)  # was far enough from the others
    assert np.mean([placed[0], placed[2], placed[3]]) == pytest.approx(1.52 / 3)
    assert max(style.spread([1.0, 1.0], 0.1, 0.0, 1.0)) == pytest.approx(1.0)


@pytest.mark.parametrize("epochs", [(6, 4), (1, 1), (1, 60), (60, 1)])
def test_curves_fit_and_follow_the_history(epochs):
    rows = history("ab", epochs)
    figure = figures.curves_figure(rows)
    assert_nothing_cut_off(figure)
    top, bottom = figure.axes
    lines = {line.get_label(): line for line in (*top.lines, *bottom.lines)}
    assert {"train loss", "train, clean images", "validation"} <= lines.keys()
    assert "multi-margin" not in lines  # not recorded in this history
    np.testing.assert_allclose(
        lines["validation"].get_ydata(), [row["val"]["accuracy"] for row in rows]
    )
    loss = lines["train loss"].get_ydata()
    assert np.isnan(loss[epochs[0]]) and np.isnan(loss).sum() == 1  # breaks there
    for axes in figure.axes:
        changes = [line for line in axes.lines if line.get_gid() == "stage change"]
        assert [line.get_xdata()[0] for line in changes] == [epochs[0] + 0.5]


def test_curves_without_validation_or_with_nothing():
    rows = [{"stage": "s", "epoch": 1, "train": {"loss": 1.0}, "val": None}]
    figure = figures.curves_figure(rows)
    assert "not recorded" in words(figure)
    with pytest.raises(ValueError, match="history is empty"):
        figures.curves_figure([])


def ordered_embeddings(count, num_ranks):
    rng = np.random.default_rng(0)
    labels = np.sort(np.arange(count) % num_ranks)
    angle = 1.5 * labels / num_ranks
    directions = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    noise = rng.normal(0, 0.05, (count, 8))
    return np.pad(directions, ((0, 0), (0, 6))) + noise, labels


@pytest.mark.slow
def test_embedding_by_umap_is_safe_in_threads_and_repeats(tmp_path):
    embeddings, labels = ordered_embeddings(200, len(AGES))
    splits = ["val"] * 80 + ["test"] * 120

    def build(_):
        return figures.embedding_figure(embeddings, labels, AGES, splits)

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        first, second = pool.map(build, range(2))
    assert_nothing_cut_off(first)
    assert "Embeddings by UMAP and PCA" in words(first)
    assert {"val: 80 images", "test: 120 images", *AGES} <= set(words(first))
    for axes, again in zip(first.axes[:4], second.axes[:4], strict=True):
        path = axes.lines[0].get_xydata()  # centroids in order
        np.testing.assert_array_equal(path, again.lines[0].get_xydata())
    assert path.shape[1] == 2
    assert "tensorflow" not in sys.modules

    figures.embedding(tmp_path / "map.png", embeddings, labels, AGES, splits)
    with Image.open(tmp_path / "map.png") as image:
        assert image.format == "PNG"


@pytest.mark.parametrize("is_imported", [False, True])
def test_umap_import_keeps_tensorflow_out(tmp_path, monkeypatch, is_imported):
    """With stand-ins for both; a TensorFlow that is already there stays there."""
    (tmp_path / "tensorflow.py").write_text("")
    (tmp_path / "umap.py").write_text(
        "try:\n"
        "    import tensorflow\n"
        "    is_out = False\n"
        "except ImportError:\n"
        "    is_out = True\n"
    )
    monkeypatch.syspath_prepend(tmp_path)
    for name in ("umap", "tensorflow"):
        monkeypatch.setitem(sys.modules, name, None)  # so that it is restored
        del sys.modules[name]
    stand_in = types.ModuleType("tensorflow")
    if is_imported:
        sys.modules["tensorflow"] = stand_in
    assert maps._import_umap().is_out
    assert sys.modules.get("tensorflow") is (stand_in if is_imported else None)
    assert ("tensorflow" in sys.modules) == is_imported


@pytest.mark.parametrize("count", [1, 2, 99])
def test_few_embeddings_are_shown_by_pca(count):
    embeddings, labels = ordered_embeddings(count, 5)
    figure = figures.embedding_figure(embeddings, labels, list("01234"))
    assert_nothing_cut_off(figure)
    assert "Embeddings by PCA (too few for UMAP)" in words(figure)
    assert len(figure.axes) == 2  # one map and the bar


def test_collapsed_embeddings_are_shown_by_pca():
    figure = figures.embedding_figure(np.ones((200, 8)), np.arange(200) % 5, "01234")
    assert "Embeddings by PCA (too alike for UMAP)" in words(figure)


@pytest.fixture
def mapped(monkeypatch):
    """Embeddings that were mapped, in place of UMAP, which takes seconds."""
    seen = []

    def fake_umap(embeddings, start):
        seen.append(embeddings)
        return start + 100

    monkeypatch.setattr(maps, "_umap", fake_umap)
    return seen


def test_many_embeddings_are_sampled(mapped):
    ranks = RANKS["eighty"]
    embeddings, labels = ordered_embeddings(5500, 80)
    splits = ["test" if i % 11 == 10 else "train" for i in range(5500)]
    figure = figures.embedding_figure(embeddings, labels, ranks, splits)
    assert_nothing_cut_off(figure)
    assert [len(points) for points in mapped] == [maps.MAX_POINTS + 500]
    assert {"train: 2,000 of 5,000 images", "test: 500 images"} <= set(words(figure))
    assert all(len(axes.texts) <= style.MAX_LABELS for axes in figure.axes)


@pytest.mark.parametrize("name", RANKS)
def test_embedding_maps_splits_together_and_shows_them_apart(mapped, name):
    ranks = RANKS[name]
    embeddings, labels = ordered_embeddings(200, len(ranks))
    splits = np.array(["train", "test"])[np.arange(200) // 3 % 2]
    figure = figures.embedding_figure(embeddings, labels, ranks, splits.tolist())
    assert_nothing_cut_off(figure)
    assert len(mapped) == 1 and len(mapped[0]) == 200
    grid = figure.axes[:4]  # UMAP above PCA, train left of test
    # Training images come first in what is mapped.
    order = np.argsort(splits == "test", kind="stable")
    points, _ = maps._pca(np.asarray(embeddings, np.float32)[order])
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
    for axes in grid:
        named = [text.get_text() for text in axes.texts]
        is_named = max(map(len, ranks)) <= maps.MAX_NAME
        ends = {ranks[0], ranks[-1]} if name != "eighty" else set()  # where present
        assert ends <= set(named) if is_named else not named
        assert set(named) <= set(ranks) and not overlapping(axes.texts)
    if name == "five":
        assert [text.get_text() for text in grid[0].texts] == list("04123")


def test_pca_says_its_share_of_the_variance():
    rng = np.random.default_rng(0)
    vectors = rng.normal(size=(60, 5)) * [3, 2, 1, 0.5, 0.2] + 4
    points, share = maps._pca(vectors.astype(np.float32))
    unit = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    spread = np.linalg.eigvalsh(np.cov(unit.T))[::-1]
    assert share == pytest.approx(spread[:2].sum() / spread.sum(), abs=1e-4)
    np.testing.assert_allclose(points.var(axis=0, ddof=1), spread[:2], rtol=1e-3)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((np.zeros((0, 4)), [], "ab"), r"shape \(0, 4\)"),
        ((np.zeros((3, 4)), [0, 1], "ab"), "labels has shape"),
        ((np.zeros((2, 4)), [0, 1], "ab", ["val"]), "split_names has shape"),
        ((np.zeros((2, 4)), [0, 2], "ab"), "from 0 to 2; with 2 ranks"),
        ((np.full((2, 4), np.nan), [0, 1], "ab"), "diverged"),
    ],
)
def test_embedding_errors(arguments, message):
    with pytest.raises(ValueError, match=message):
        figures.embedding_figure(*arguments)


def test_thinned_and_short():
    assert style.thinned(5, 20) == [0, 1, 2, 3, 4]
    assert style.thinned(80, 20) == list(range(0, 80, 4))
    assert len(style.thinned(79, 12)) <= 12
    assert style.short("short", 22) == "short"
    assert style.short("a very long name of a rank", 11) == "a ver… rank"


def pictures(ranks, shape=(20, 20, 1), columns=4, rows=2, captions=1):
    rng = np.random.default_rng(0)
    made = []
    for rank in ranks:
        for row in range(rows):
            name = f"train/{rank}/a rather long name of a file {row}.png"
            images = rng.integers(0, 256, (columns, *shape), dtype=np.uint8)
            made.append(
                figures.Row(
                    rank,
                    [
                        figures.Picture(image, name if i < captions else "")
                        for i, image in enumerate(images)
                    ],
                )
            )
    return made


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
    figure = figures.sheet_figure(
        pictures(ranks, shape, columns=3, captions=captions),
        ranks,
        title="somewhere: training images",
        note="one 0.5, " * 40,
        headings=("as it is", "as it may be"),
    )
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert not overlapping(axes.texts)
    said = [text.get_text() for text in axes.texts]
    assert sum(said.count(style.short(rank, 18)) for rank in ranks) == 2 * len(ranks)
    assert len(axes.images) == 6 * len(ranks)
    boxes = [image.get_window_extent() for image in axes.images]
    boxes += [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])
    if 1 / 4 < shape[1] / shape[0] < 4:  # beyond, pictures are squeezed
        drawn = boxes[0].width / boxes[0].height
        assert drawn == pytest.approx(shape[1] / shape[0], rel=0.02)


def test_sheet_shows_the_pictures_in_their_places():
    rows = pictures(["b", "a"], (8, 8, 3), rows=1)
    figure = figures.sheet_figure(rows, ["a", "b"], title="t")
    axes = figure.axes[0]
    expected = [picture.image for row in rows for picture in row.pictures]
    for image, drawn in zip(expected, axes.images, strict=True):
        np.testing.assert_array_equal(image, drawn.get_array())
    left, right, bottom, top = np.array([i.get_extent() for i in axes.images]).T
    assert (np.diff(left.reshape(2, 4), axis=1) > 0).all()
    assert top[0] < top[4] and (bottom > top).all()  # from the top down
    # Black stays black and white stays white, whatever else is in the picture.
    dim = figures.Row("a", [figures.Picture(np.full((8, 8, 1), 90, np.uint8))])
    drawn = figures.sheet_figure([dim], ["a"], title="t").axes[0].images[0]
    assert drawn.get_clim() == (0, 255)


def test_sheet_is_saved_and_needs_pictures(tmp_path):
    figures.sheet(tmp_path / "sheet.png", pictures(["a"]), ["a"], title="t")
    with Image.open(tmp_path / "sheet.png") as image:
        assert image.format == "PNG" and min(image.size) > 300
    for rows in ([], [figures.Row("a", [])]):
        with pytest.raises(ValueError, match="needs rows with a picture each"):
            figures.sheet_figure(rows, ["a"], title="t")


def test_sheet_captions_may_have_several_lines():
    rows = pictures(["a"], rows=2)
    rows = [
        row._replace(pictures=[p._replace(caption="one\ntwo\nthree") for p in row[1]])
        for row in rows
    ]
    figure = figures.sheet_figure(
        rows, ["a"], title="t", front_heading="side", colours=["#ff0000"]
    )
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    said = [text.get_text() for text in axes.texts]
    assert said.count("two") == 8 and "side" in said and "rank" not in said
    assert mpl.colors.to_hex(axes.collections[0].get_facecolor()[0]) == "#ff0000"
    boxes = [image.get_window_extent() for image in axes.images]
    boxes += [text.get_window_extent() for text in axes.texts]
    assert not any(a.overlaps(b) for i, a in enumerate(boxes) for b in boxes[:i])


def doubtful(count, ranks, shape=(30, 30, 1)):
    return [
        figures.Doubtful(
            np.full(shape, 40 * i, np.uint8), ranks[0], ranks[1], 0.5 + i / 100
        )
        for i in range(count)
    ]


@pytest.mark.parametrize("name", [n for n in RANKS if n != "eighty"])
@pytest.mark.parametrize("counts", [(6, 6), (0, 1), (6, 2)])
def test_nearest_fits(name, counts):
    ranks = RANKS[name]
    sides = {"right": doubtful(counts[0], ranks), "wrong": doubtful(counts[1], ranks)}
    boundary = metrics.boundary_names(ranks)[0]
    figure = figures.nearest_figure(sides, boundary, ranks)
    assert_nothing_cut_off(figure)
    axes = figure.axes[0]
    assert len(axes.images) == sum(counts) and not overlapping(axes.texts)
    said = [text.get_text() for text in axes.texts]
    assert ("right" in said, "wrong" in said) == tuple(n > 0 for n in counts)
    assert said.count("above: 50%") == sum(n > 0 for n in counts)
    if max(map(len, ranks)) < 10:
        assert f"true {ranks[0]}" in said and f"called {ranks[1]}" in said


def test_nearest_keeps_the_shape_of_pictures_that_differ(tmp_path):
    images = [(40, 20, 3), (500, 1000, 3)]
    sides = {"right": [doubtful(1, "ab", shape)[0] for shape in images], "wrong": []}
    figure = figures.nearest_figure(sides, "a|b", ["a", "b"])
    tall, wide = (np.asarray(i.get_array()) for i in figure.axes[0].images)
    assert tall.shape == (40, 40, 3) and wide.shape == (240, 240, 3)
    assert (tall[:, :10] == 255).all() and (tall[:, 10:30] == 0).all()
    assert (wide[:60] == 255).all() and (wide[61:179] == 0).all()
    with pytest.raises(ValueError, match="no boundary is called 'a-b'"):
        figures.nearest_figure(sides, "a-b", ["a", "b"])
    figures.nearest(tmp_path / "nearest_0.jpg", sides, "a|b", ["a", "b"])
    with Image.open(tmp_path / "nearest_0.jpg") as image:
        assert image.format == "JPEG" and image.info["dpi"] == (150, 150)


def test_accuracies_are_where_their_labels_say():
    rows = history(list("012"), epochs=(1, 1))
    for row, accuracy in zip(rows, (0.522, 0.707), strict=True):
        row["train_eval"] = {}
        row["train"]["accuracy"] = row["val"]["accuracy"] = accuracy
    figure = figures.curves_figure(rows)
    figure.canvas.draw()
    axis = figure.axes[1].yaxis
    labels = [label.get_text() for label in axis.get_ticklabels()]
    shown = [float(label.rstrip("%")) / 100 for label in labels]
    assert shown == pytest.approx(list(axis.get_ticklocs()), abs=1e-9)
