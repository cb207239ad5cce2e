"""The plot of a benchmark: what it shows, and that nothing is cut off."""

import numpy as np
import pytest
from drawn_figures import assert_nothing_cut_off, overlapping, words
from PIL import Image

from cloc_jax.bench import growth_plot
from cloc_jax.report.figures import style


def cells(algorithms=("floor", "sorted"), batches=(16, 64, 256, 1024), **settings):
    """Made-up measurements that follow power laws: B^2 of time, B^1 of memory."""
    power = {"floor": 1.0, "sorted": 2.0, "dense": 3.0, "released": 3.0, "step": 1.0}
    rows = []
    for batch in batches:
        for algorithm in algorithms:
            time = 1e-3 * batch ** power[algorithm]
            row = {"algorithm": algorithm, "batch": batch, "devices": 1, **settings}
            row |= {"milliseconds": time, "quartiles": [0.9 * time, 1.2 * time]}
            if algorithm != "released":
                row["temporary_mib"] = 0.02 * batch
            rows.append(row)
    return rows


def end_names(axes):
    return [text.get_text() for text in axes.texts]


def test_series_differ_in_batch_only_and_are_named_by_what_varies():
    plain = cells(batches=(64, 16, 32), dim=128, dtype="float32")
    found = growth_plot.series(plain)
    assert list(found) == ["floor", "sorted"]
    assert [cell["batch"] for cell in found["sorted"]] == [16, 32, 64]
    assert growth_plot.series(
        plain + cells(dim=128, dtype="float32", devices=8)
    ).keys() == {
        "floor, 1 device",
        "floor, 8 devices",
        "sorted, 1 device",
        "sorted, 8 devices",
    }
    wide = cells(["sorted"], dim=512) + cells(["sorted"], dtype="bfloat16")
    assert list(growth_plot.series(wide)) == ["dim 512", "bfloat16"]
    assert list(growth_plot.series(cells(["step"]))) == ["step"]


def test_exponent_of_a_power_law():
    sizes = np.array([8, 24, 32, 100])
    assert growth_plot.exponent(sizes, 7 * sizes**2.5) == pytest.approx(2.5)
    noisy = sizes * np.array([1.1, 0.9, 1.2, 1.0])
    slope = np.polyfit(np.log(sizes), np.log(noisy), 1)[0]
    assert growth_plot.exponent(list(sizes), list(noisy)) == pytest.approx(slope)
    for sizes, values in (([4, 4], [1, 2]), ([4, 8], [0, 1]), ([], [])):
        with pytest.raises(ValueError, match="two different sizes"):
            growth_plot.exponent(sizes, values)


def test_growth_shows_every_series_with_its_exponent():
    rows = cells(["floor", "dense", "sorted", "released"])
    figure = growth_plot.growth_figure(rows)
    assert_nothing_cut_off(figure)
    time, memory = figure.axes
    lines = {line.get_label(): line for line in time.lines}
    assert list(lines) == ["floor", "dense", "sorted", "released"]
    np.testing.assert_allclose(lines["sorted"].get_xdata(), [16, 64, 256, 1024])
    np.testing.assert_allclose(
        lines["sorted"].get_ydata(),
        [c["milliseconds"] for c in rows if c["algorithm"] == "sorted"],
    )
    assert len(time.collections) == 4 and not memory.collections  # the quartiles
    bars = [path.vertices[:, 1] for path in time.collections[2].get_paths()]
    np.testing.assert_allclose(
        bars, [c["quartiles"] for c in rows if c["algorithm"] == "sorted"]
    )
    floor = lines.pop("floor")
    assert (floor.get_color(), floor.get_linestyle()) == (style.FAINT, "--")
    assert all(line.get_linestyle() == "-" for line in lines.values())
    assert len({line.get_color() for line in lines.values()} - {style.FAINT}) == 3
    assert end_names(time) == [
        "floor  ~ B^1.0",
        "dense  ~ B^3.0",
        "sorted  ~ B^2.0",
        "released  ~ B^3.0",
    ]
    # The released loop has no temporary memory; the others keep their colours.
    assert end_names(memory) == [
        f"{name}  ~ B^1.0" for name in ("floor", "dense", "sorted")
    ]
    for line in memory.lines[1:]:
        assert line.get_color() == lines[line.get_label()].get_color()
    for axes in figure.axes:
        assert (axes.get_xscale(), axes.get_yscale()) == ("log", "log")
        assert not overlapping(axes.texts)
        ticks = [label.get_text() for label in axes.get_xticklabels()]
        assert sorted(ticks, key=int) == ["16", "64", "256", "1024"]


def test_growth_is_fitted_to_the_last_three_sizes():
    rows = cells(["sorted"], (16, 64, 256, 1024, 4096))
    for cell in rows[:2]:
        cell["milliseconds"] = 50.0  # overheads, which the fit leaves out
    figure = growth_plot.growth_figure(rows + cells(["dense"], (16, 64)))
    assert end_names(figure.axes[0]) == ["sorted  ~ B^2.0", "dense"]


def test_growth_without_memory_with_none_used_or_of_one_size():
    rows = cells(["released"])
    figure = growth_plot.growth_figure(rows)
    assert_nothing_cut_off(figure)
    assert "not recorded" in words(figure) and not figure.axes[1].lines
    rows = cells(["sorted"], (64, 128))
    rows[0]["temporary_mib"] = 0.0  # has no place on a logarithmic axis
    assert list(growth_plot.growth_figure(rows).axes[1].lines[0].get_xdata()) == [128]
    figure = growth_plot.growth_figure(cells(batches=(100,)))
    assert_nothing_cut_off(figure)
    assert end_names(figure.axes[0]) == ["floor", "sorted"]
    with pytest.raises(ValueError, match="no cells"):
        growth_plot.growth_figure([])


@pytest.mark.parametrize("dims", [(128,), tuple(range(100, 106))])
def test_growth_names_too_long_or_too_many_go_to_a_legend(dims):
    rows = [
        row
        for dim in dims
        for dtype in ("float32", "bfloat16")
        for count in (1, 8)
        for row in cells(dim=dim, dtype=dtype, devices=count, ranks=count)
    ]
    figure = growth_plot.growth_figure(rows)
    assert_nothing_cut_off(figure)
    for axes in figure.axes:
        named = [text.get_text() for text in axes.get_legend().get_texts()]
        assert len(named) == len(axes.lines) == len(growth_plot.series(rows))
        assert all("  ~ B^" in name for name in named) and not axes.texts
        assert not overlapping(axes.get_legend().get_texts())


def test_growth_thins_out_close_sizes():
    sizes = [*range(100, 132, 2), 4000, 40000]
    figure = growth_plot.growth_figure(cells(batches=sizes))
    assert_nothing_cut_off(figure)
    for axes in figure.axes:
        labels = axes.get_xticklabels()
        assert {"4000", "40000"} < {label.get_text() for label in labels}
        assert len(labels) < 6 and not overlapping(labels)


def test_growth_is_saved(tmp_path):
    growth_plot.growth(tmp_path / "growth.png", cells())
    with Image.open(tmp_path / "growth.png") as image:
        assert image.format == "PNG" and min(image.size) > 400


def test_meshes_are_series_of_their_own():
    same = {"algorithm": "step", "batch": 64, "devices": 8}
    found = growth_plot.series([same, same | {"mesh": "2x4"}, same | {"mesh": "1x8"}])
    assert list(found) == ["step", "mesh 2x4", "mesh 1x8"]
